-- Names are verbs and the same in every engine's file. Statements that engines share are in
-- stores/sql/statements.sql. A name may have several statements: they are sent together, and the
-- result is that of the last one with rows.
-- A ticket is (queue_id, rank, id, type, attempts, deliveries, expires_at, flags).
-- Set statements force an index, or a small table would be scanned across locked rows. Rows to
-- delete are first locked by a SELECT that skips locked ones.

-- name: enter
-- Until this commits, the export treats nothing written after this read as final.
SELECT number FROM penstock_generation ORDER BY number DESC LIMIT 1 LOCK IN SHARE MODE;
-- name: moment
SELECT @now;
-- name: next_number
UPDATE penstock_counter SET value = value + 1 WHERE name = :name;
SELECT value FROM penstock_counter WHERE name = :name;
-- name: lock
SELECT slot FROM penstock_guard FORCE INDEX (PRIMARY) WHERE slot IN (:slots) FOR UPDATE;
-- name: try_lock
SELECT slot FROM penstock_guard FORCE INDEX (PRIMARY) WHERE slot IN (:slots)
FOR UPDATE SKIP LOCKED;

-- name: publish
INSERT INTO penstock_message
    (queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES :rows;
-- name: publish_one
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
VALUES (:queue_id, :rank, last_insert_id(), :type, 0, 0, :expires_at, 0);
-- name: publish_ready
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0, ifnull(expires_at, 9007199254740991), 0
FROM penstock_message
WHERE id BETWEEN last_insert_id() AND last_insert_id() + :more AND run_at IS NULL;
-- name: publish_scheduled
INSERT INTO penstock_scheduled
    (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags)
SELECT run_at, id, queue_id, rank, type, 0, 0, ifnull(expires_at, 9007199254740991), 0
FROM penstock_message
WHERE id BETWEEN last_insert_id() AND last_insert_id() + :more AND run_at IS NOT NULL;
-- name: publish_rows
INSERT INTO penstock_message
    (queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES :rows
RETURNING id;
-- name: dedup_seen
SELECT id, digest FROM penstock_dedup
WHERE queue_id = :queue_id AND `key` = :key AND expires_at > :now;
-- name: dedups_seen
SELECT `key` FROM penstock_dedup
WHERE queue_id = :queue_id AND `key` IN (:keys) AND expires_at > :now;
-- name: dedup_place
-- A placeholder that is already expired; the sweep of old keys removes it if it stays unused.
INSERT IGNORE INTO penstock_dedup (queue_id, `key`, id, digest, expires_at)
VALUES (:queue_id, :key, 0, '', 0);
-- name: dedup_remember
INSERT INTO penstock_dedup (queue_id, `key`, id, digest, expires_at)
VALUES (:queue_id, :key, :id, :digest, :expires_at)
ON DUPLICATE KEY UPDATE
    id = VALUES(id), digest = VALUES(digest), expires_at = VALUES(expires_at);
-- name: unique_free
DELETE FROM penstock_dedup
WHERE id = :id AND expires_at = 9007199254740991 AND `key` >= 'unique:' AND `key` < 'unique;';
-- name: depth
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM penstock_ready WHERE queue_id = :queue_id LIMIT :most) AS r)
     + (SELECT count(*) FROM (
            SELECT 1 FROM penstock_scheduled FORCE INDEX (queue)
            WHERE queue_id = :queue_id LIMIT :most) AS s);

-- name: put_scheduled
INSERT INTO penstock_scheduled
    (queue_id, rank, id, type, attempts, deliveries, expires_at, flags, due_at, `key`, position)
VALUES (:queue_id, :rank, :id, :type, :attempts, :deliveries, :expires_at, :flags, :due_at, :key,
        :position);
-- name: put_history
INSERT INTO penstock_history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence, claimed_at,
     at, due_at, final, traceback)
VALUES (:id, :queue_id, :verb, :state, :reason, :error, :attempts, :deliveries, :consumer, :fence,
        :claimed_at, :at, :due_at, nullif(:final, 0), :traceback);

-- name: head
SELECT id FROM penstock_head WHERE queue_id = :queue_id AND `key` = :key;
-- name: heads
SELECT `key` FROM penstock_head FORCE INDEX (PRIMARY)
WHERE queue_id = :queue_id AND `key` IN (:keys);
-- name: lines_of_heads
SELECT h.id, h.queue_id, h.`key`, (
    SELECT s.id FROM penstock_scheduled AS s FORCE INDEX (line)
    WHERE s.queue_id = h.queue_id AND s.`key` = h.`key` AND s.due_at = 9007199254740991
    ORDER BY s.position LIMIT 1)
FROM penstock_head AS h FORCE INDEX (id) WHERE h.id IN (:ids);
-- name: call_from_line
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_scheduled FORCE INDEX (PRIMARY)
WHERE id IN (:ids) AND due_at = 9007199254740991 FOR UPDATE SKIP LOCKED;
-- name: head_of
SELECT queue_id, `key` FROM penstock_head WHERE id = :id;
-- name: take_head
INSERT INTO penstock_head (queue_id, `key`, id) VALUES (:queue_id, :key, :id);
-- name: first_in_line
SELECT id FROM penstock_scheduled FORCE INDEX (line)
WHERE queue_id = :queue_id AND `key` = :key AND due_at = 9007199254740991
ORDER BY position LIMIT 1;
-- name: end_of_line
-- An id that no message will have.
INSERT INTO penstock_message (queue_id, type, priority, rank, created_at, body)
VALUES (0, '', 0, 0, 0, '');
DELETE FROM penstock_message WHERE id = last_insert_id();
SELECT last_insert_id();

-- name: any_ready
SELECT 1 FROM penstock_ready FORCE INDEX (PRIMARY) WHERE queue_id IN (:queues) LIMIT 1;
-- name: look
-- Polls inside the server, without round trips. Returns the queues of new messages; without any,
-- the wanted queues that have work for another reason.
BEGIN NOT ATOMIC
    DECLARE look INT DEFAULT 0;
    DECLARE newest BIGINT;
    SELECT coalesce(max(id), 0) INTO newest FROM penstock_message;
    WHILE look < :looks AND newest <= :seen DO
        DO sleep(:pause);
        SET look = look + 1;
        SELECT coalesce(max(id), 0) INTO newest FROM penstock_message;
    END WHILE;
    SELECT newest;
    IF newest > :seen THEN :news; ELSE :ready; END IF;
END;
-- name: listen
DO :locks;
-- name: ring
-- Runs before the commit: the woken session needs longer to poll than this one to commit.
-- Sessions of other users cannot be woken.
BEGIN NOT ATOMIC
    DECLARE listener BIGINT;
    DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
    SET listener = is_used_lock(:lock);
    IF listener IS NOT NULL THEN KILL QUERY listener; END IF;
END;
-- name: queues_of_news
SELECT DISTINCT queue_id FROM (
    SELECT queue_id FROM penstock_message FORCE INDEX (PRIMARY)
    WHERE id > :seen ORDER BY id LIMIT :most) AS news;
-- name: ready_queues
-- EXISTS would be turned into a join that reads every row.
SELECT q.id FROM penstock_queue AS q FORCE INDEX (PRIMARY)
WHERE q.id IN (:queues) AND (
    SELECT 1 FROM penstock_ready AS r FORCE INDEX (PRIMARY) WHERE r.queue_id = q.id LIMIT 1);
-- name: pick
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_ready FORCE INDEX (PRIMARY)
WHERE queue_id = :queue AND expires_at > @now
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: pick_type
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_ready
WHERE queue_id = :queue AND type = :type AND expires_at > @now
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: number_claim
-- A claim that finds nothing writes nothing and takes no number.
-- SET would lock the rows it reads.
SELECT CASE WHEN EXISTS (
    SELECT 1 FROM penstock_ready FORCE INDEX (PRIMARY) WHERE queue_id IN (:queues) LIMIT 1)
    THEN nextval(penstock_fence) END, NULL INTO @fence, @at;
-- name: claim
-- Takes the time after locking the first ticket, so everything it sees was committed before.
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags, consumer,
     claimed_at, lease_until, length)
SELECT id, @fence, queue_id, rank, type, attempts, deliveries + 1, expires_at,
       CASE WHEN :begins AND deliveries > 0 THEN flags | {UNBEGUN} ELSE flags END,
       :consumer, @at := ifnull(@at, :moment), @at + :length, :length
FROM (:picks) AS first WHERE @fence IS NOT NULL
ORDER BY rank, id LIMIT :limit;
-- name: claimed
-- Finds the leases by lease_until, which all leases of a claim share and which has an index.
SELECT l.id, l.queue_id, l.type, m.priority, m.created_at, m.body, m.meta, l.fence, l.attempts,
       l.deliveries, l.lease_until, l.flags, l.rank, l.dead_at
FROM penstock_lease AS l FORCE INDEX (until)
STRAIGHT_JOIN penstock_message AS m FORCE INDEX (PRIMARY) ON m.id = l.id
WHERE l.lease_until = @at + :length AND l.fence = @fence;
-- name: claim_leave_ready
DELETE r FROM penstock_lease AS l FORCE INDEX (until)
STRAIGHT_JOIN penstock_ready AS r FORCE INDEX (PRIMARY)
    ON r.queue_id = l.queue_id AND r.rank = l.rank AND r.id = l.id
WHERE l.lease_until = @at + :length AND l.fence = @fence;
-- name: claim_leave_dead
DELETE d FROM penstock_lease AS l FORCE INDEX (until)
STRAIGHT_JOIN penstock_dead AS d FORCE INDEX (PRIMARY) ON d.id = l.id
WHERE l.lease_until = @at + :length AND l.fence = @fence;
-- name: own_lengths
-- Messages published with their own lease. Runs last, because it changes lease_until, by which
-- the leases of a claim are found.
UPDATE penstock_lease AS l FORCE INDEX (until)
STRAIGHT_JOIN penstock_message AS m FORCE INDEX (PRIMARY) ON m.id = l.id
SET l.length = CAST(json_value(m.meta, '$.lease') * 1000000 AS INT),
    l.lease_until = @at + CAST(json_value(m.meta, '$.lease') * 1000000 AS INT)
WHERE l.lease_until = @at + :length AND l.fence = @fence AND l.flags & {OWN_LEASE};
-- name: take
-- One compound statement, so that unneeded parts are skipped without a round trip.
BEGIN NOT ATOMIC
    START TRANSACTION;
    :clock;
    :number;
    IF @fence IS NOT NULL THEN
        :claim;
        IF @at IS NOT NULL THEN
            :leave;
            :claimed;
            IF EXISTS (
                SELECT 1 FROM penstock_lease FORCE INDEX (until)
                WHERE lease_until = @at + :length AND fence = @fence AND flags & {OWN_LEASE})
            THEN :own_lengths; END IF;
        END IF;
    END IF;
    :expired;
    COMMIT;
END;
-- name: expired_waits
SELECT 1 FROM penstock_ready FORCE INDEX (expiry)
WHERE expires_at <= @now AND expires_at < 9007199254740991 AND queue_id IN (:queues) LIMIT 1;
-- name: leave_ready
DELETE r FROM penstock_ready AS r FORCE INDEX (PRIMARY)
WHERE queue_id = :queue AND rank = :rank AND id IN (:ids);
-- name: leave_ready_each
DELETE r FROM penstock_ready AS r FORCE INDEX (PRIMARY)
WHERE (queue_id, rank, id) IN (:tickets);
-- name: pick_dead
SELECT * FROM penstock_dead FORCE INDEX (queue)
WHERE queue_id = :queue AND (:any_type OR type IN (:types))
ORDER BY dead_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: number_dead
SELECT CASE WHEN EXISTS (
    SELECT 1 FROM penstock_dead FORCE INDEX (queue) WHERE queue_id IN (:queues) LIMIT 1)
    THEN nextval(penstock_fence) END, NULL INTO @fence, @at;
-- name: claim_dead
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags, consumer,
     claimed_at, lease_until, length, dead_at, dead_reason, dead_error)
SELECT id, @fence, queue_id, rank, type, attempts, deliveries, 9007199254740991, flags | {FROM_DEAD},
       :consumer, @at := ifnull(@at, :moment), @at + :length, :length, dead_at, reason, error
FROM (:picks) AS first WHERE @fence IS NOT NULL
ORDER BY dead_at, id LIMIT :limit;
-- name: leave_dead
DELETE d FROM json_table(:array, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN penstock_dead AS d FORCE INDEX (PRIMARY) ON d.id = gone.id;

-- name: complete
INSERT INTO penstock_history
    (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
SELECT id, queue_id, 'complete', 'completed', attempts + 1, deliveries, consumer, fence,
       claimed_at, @now, 1
FROM penstock_lease FORCE INDEX (PRIMARY)
WHERE (:locks) AND flags & {ENDING} = 0
RETURNING id, fence;
-- name: complete_results
INSERT INTO penstock_result (id, expires_at, body)
SELECT l.id, @now + CAST(1000000 * json_value(q.settings, '$.keep_results') AS INT), given.body
FROM (:given) AS given
JOIN penstock_lease AS l ON l.id = given.id AND l.fence = given.fence AND l.flags & {ENDING} = 0
JOIN penstock_queue AS q ON q.id = l.queue_id
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), body = VALUES(body);
-- name: complete_leave
DELETE l FROM penstock_lease AS l FORCE INDEX (PRIMARY)
WHERE (:locks) AND flags & {ENDING} = 0;
-- name: keys_of_leases
-- Leases with an ordering key or unique key to free. NULL if no line waits for its end: the line
-- of a dead letter has moved on.
SELECT l.id, l.fence, h.queue_id, h.`key`
FROM (SELECT id, fence FROM penstock_lease FORCE INDEX (PRIMARY)
      WHERE (:locks) AND flags & {ENDING} AND NOT flags & {ENDING_ALONE}) AS l
LEFT JOIN penstock_head AS h FORCE INDEX (id) ON h.id = l.id;
-- name: leave_leases_of
DELETE l FROM json_table(:array, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN penstock_lease AS l FORCE INDEX (PRIMARY) ON l.id = gone.id;
-- name: free_leases
-- Leases that are not locked by another transaction.
SELECT id, fence FROM penstock_lease FORCE INDEX (PRIMARY)
WHERE (:locks) FOR UPDATE SKIP LOCKED;
-- name: keep_result
INSERT INTO penstock_result (id, expires_at, body)
SELECT m.id, :now + CAST(1000000 * json_value(q.settings, '$.keep_results') AS INT), :body
FROM penstock_message AS m JOIN penstock_queue AS q ON q.id = m.queue_id WHERE m.id = :id
ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), body = VALUES(body);
-- name: keep_nothing
-- A message that others wait for and that completed without a result gets a null, so that a result
-- that is no longer stored can be told from None.
INSERT INTO penstock_result (id, expires_at, body)
SELECT h.id, h.at + CAST(1000000 * json_value(q.settings, '$.keep_results') AS INT), 'null'
FROM penstock_history AS h JOIN penstock_queue AS q ON q.id = h.queue_id
WHERE h.id IN (:ids) AND h.final = 1 AND h.state = 'completed'
  AND h.at + CAST(1000000 * json_value(q.settings, '$.keep_results') AS INT) >= :now
ON DUPLICATE KEY UPDATE penstock_result.id = penstock_result.id;
-- name: hold_leases
SELECT count(*) FROM penstock_lease FORCE INDEX (PRIMARY)
WHERE (:locks) FOR UPDATE NOWAIT;
-- name: extend_many
UPDATE penstock_lease FORCE INDEX (PRIMARY)
SET lease_until = greatest(lease_until, @now + :length), length = :length
WHERE (:locks);
-- name: extended
SELECT id, fence, lease_until, flags FROM penstock_lease FORCE INDEX (PRIMARY)
WHERE (:locks);
-- name: begin
UPDATE penstock_lease SET flags = flags & ~{UNBEGUN}, begun_at = coalesce(begun_at, :now)
WHERE id = (SELECT id FROM (
    SELECT id FROM penstock_lease WHERE id = :id AND fence = :fence
    FOR UPDATE SKIP LOCKED) AS held);
-- name: progress
UPDATE penstock_lease SET percent = coalesce(:percent, percent), note = coalesce(:note, note),
    begun_at = coalesce(begun_at, :now)
WHERE id = (SELECT id FROM (
    SELECT id FROM penstock_lease WHERE id = :id AND fence = :fence
    FOR UPDATE SKIP LOCKED) AS held);
-- name: leases
SELECT l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.flags, l.claimed_at, l.lease_until,
       l.length, (SELECT m.meta FROM penstock_message AS m WHERE m.id = l.id), l.dead_reason,
       (SELECT count(*) FROM penstock_history AS h
        WHERE h.id = l.id AND h.final IS NULL AND h.verb = 'park'
          AND h.position > coalesce((SELECT max(r.position) FROM penstock_history AS r
                                     WHERE r.id = l.id AND r.final IS NULL
                                       AND r.verb IN ('redrive', 'wait')), 0)),
       (SELECT min(h.claimed_at) FROM penstock_history AS h
        WHERE h.id = l.id AND h.final IS NULL
          AND h.position > coalesce((SELECT max(r.position) FROM penstock_history AS r
                                     WHERE r.id = l.id AND r.final IS NULL
                                       AND r.verb IN ('redrive', 'wait')), 0)),
       @now
FROM penstock_lease AS l FORCE INDEX (PRIMARY) WHERE (:locks);
-- name: leases_expired
SELECT id, fence, @now FROM penstock_lease FORCE INDEX (until)
WHERE lease_until < @now ORDER BY lease_until LIMIT :limit;
-- name: lease_expired
SELECT id, fence FROM penstock_lease FORCE INDEX (until)
WHERE lease_until < :now ORDER BY lease_until LIMIT :limit;
-- name: settle_look
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags, consumer, fence,
       claimed_at, dead_at, dead_error, lease_until
FROM penstock_lease FORCE INDEX (PRIMARY) WHERE id IN (:ids) FOR UPDATE SKIP LOCKED;
-- name: leave_leases
DELETE l FROM penstock_lease AS l FORCE INDEX (PRIMARY)
WHERE (:locks);
-- name: settle
DELETE FROM penstock_lease WHERE id = (SELECT id FROM (
    SELECT id FROM penstock_lease
    WHERE id = :id AND fence = :fence AND flags = :flags AND lease_until < :expired_by
    FOR UPDATE SKIP LOCKED) AS held)
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags, consumer, fence,
          claimed_at, dead_at, dead_error;
-- name: take_lease
DELETE FROM penstock_lease WHERE id = (SELECT id FROM (
    SELECT id FROM penstock_lease WHERE id = :id AND fence = :fence
    FOR UPDATE SKIP LOCKED) AS held)
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags, consumer, fence,
          claimed_at, dead_at, dead_error;
-- name: request_cancel
UPDATE penstock_lease SET flags = flags | {CANCEL_REQUESTED}
WHERE id = (SELECT id FROM (
    SELECT id FROM penstock_lease WHERE id = :id AND fence = :fence
    FOR UPDATE SKIP LOCKED) AS held);

-- name: story_of_fence
SELECT verb, state FROM penstock_history WHERE id = :id AND fence = :fence;
-- name: lease_fence
SELECT l.fence, free.id IS NULL
FROM penstock_lease AS l
LEFT JOIN (SELECT id FROM penstock_lease WHERE id = :id FOR UPDATE SKIP LOCKED) AS free
    ON free.id = l.id
WHERE l.id = :id;

-- name: promote_many
-- Due tickets without an ordering key, or that hold theirs.
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM (SELECT * FROM penstock_scheduled FORCE INDEX (due)
      WHERE due_at <= @now AND due_at < 9007199254740991 AND flags & {HELD} = 0
      ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED) AS due
WHERE flags & {KEYED} = 0 OR EXISTS (SELECT 1 FROM penstock_head AS h WHERE h.id = due.id)
RETURNING id, queue_id;
-- name: leave_scheduled
-- With a list of ids, a small table would be scanned.
DELETE s FROM json_table(:array, '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN penstock_scheduled AS s FORCE INDEX (PRIMARY) ON s.id = gone.id;
-- name: due
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags, `key`
FROM penstock_scheduled FORCE INDEX (due)
WHERE due_at <= :now AND due_at < 9007199254740991 AND flags & {HELD} = 0
ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: next_due
SELECT due_at FROM penstock_scheduled FORCE INDEX (due)
WHERE due_at < 9007199254740991 ORDER BY due_at, id LIMIT 1;
-- name: due_when
SELECT @now, (SELECT due_at FROM penstock_scheduled FORCE INDEX (due)
              WHERE due_at < 9007199254740991 ORDER BY due_at, id LIMIT 1);
-- name: scan_ready
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_ready FORCE INDEX (PRIMARY) WHERE queue_id = :queue_id AND id = :id
FOR UPDATE SKIP LOCKED;
-- name: expire_ready
-- Expired messages that free no key.
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_ready FORCE INDEX (expiry)
WHERE expires_at <= @now AND expires_at < 9007199254740991 AND flags & {ENDING} = 0
  AND (:everywhere OR queue_id IN (:queues))
ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: expire_scheduled
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_scheduled FORCE INDEX (expiry)
WHERE expires_at <= @now AND expires_at < 9007199254740991 AND flags & {ENDING} = 0
ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: expired
INSERT INTO penstock_history (id, queue_id, attempts, deliveries, verb, state, at, final)
VALUES :rows;
-- name: expired_ready
SELECT queue_id, rank, id FROM penstock_ready FORCE INDEX (expiry)
WHERE expires_at <= :now AND expires_at < 9007199254740991 ORDER BY expires_at LIMIT :limit;
-- name: expired_in_line
SELECT queue_id, rank, id FROM penstock_ready FORCE INDEX (expiry)
WHERE queue_id IN (:queues) AND expires_at <= :now AND expires_at < 9007199254740991
ORDER BY expires_at LIMIT :limit;
-- name: expired_scheduled
SELECT id FROM penstock_scheduled FORCE INDEX (expiry)
WHERE expires_at <= :now AND expires_at < 9007199254740991 ORDER BY expires_at LIMIT :limit;
-- name: next_rank
SELECT rank FROM penstock_ready FORCE INDEX (PRIMARY)
WHERE queue_id = :queue_id AND rank > :rank ORDER BY rank LIMIT 1;
-- name: waited
SELECT r.id FROM penstock_ready AS r FORCE INDEX (PRIMARY)
WHERE r.queue_id = :queue_id AND r.rank = :rank
  AND (SELECT m.created_at FROM penstock_message AS m WHERE m.id = r.id) <= :before
ORDER BY r.id LIMIT :limit;
-- name: ready_since
-- When messages were published or due, when their last wait began, and the moments that may have
-- ended it: its time limit, the first signal it waited for, and the last end of another message.
SELECT m.id, coalesce(m.run_at, m.created_at), w.at,
       CASE WHEN w.due_at <= :now THEN w.due_at END,
       (SELECT min(s.at) FROM penstock_signal AS s FORCE INDEX (message) WHERE s.message_id = m.id
          AND s.name = CASE WHEN w.reason LIKE 'signal:%' THEN substr(w.reason, 8) END
          AND (s.consumed = 0 OR s.at >= w.at)),
       (SELECT max((SELECT h.at FROM penstock_history AS h FORCE INDEX (ends_once)
                    WHERE h.id = e.awaited_id AND h.final = 1))
        FROM penstock_edge AS e FORCE INDEX (PRIMARY)
        WHERE e.held_id = m.id AND e.number = coalesce(w.fence, 0) AND e.state IS NOT NULL)
FROM penstock_message AS m LEFT JOIN (
    SELECT id, max(position) AS position FROM penstock_history FORCE INDEX (ends_once)
    WHERE id IN (:ids) AND final IS NULL AND verb = 'wait' AND state = 'scheduled'
    GROUP BY id) AS last ON last.id = m.id
LEFT JOIN penstock_history AS w ON w.position = last.position
WHERE m.id IN (:ids);
-- name: age
UPDATE penstock_ready SET rank = :above
WHERE queue_id = :queue_id AND rank = :rank AND id = (SELECT id FROM (
    SELECT id FROM penstock_ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id
    FOR UPDATE SKIP LOCKED) AS held);
-- name: claim_tick
INSERT IGNORE INTO penstock_agent (name, at, `by`) VALUES (:name, 0, '');
UPDATE penstock_agent SET at = :now, `by` = :by
WHERE name = :name AND (`by` = :by OR at <= :before OR at > :after);
-- name: end_tick
UPDATE penstock_agent SET result = :result WHERE name = :name AND `by` = :by;
-- name: agent_runs
SELECT name, at, `by`, result FROM penstock_agent ORDER BY name;
-- name: old_dedup
SELECT queue_id, `key` FROM penstock_dedup FORCE INDEX (expiry)
WHERE expires_at <= :now AND expires_at < 9007199254740991 LIMIT :limit;
-- name: drop_dedup
DELETE d FROM penstock_dedup AS d FORCE INDEX (PRIMARY)
WHERE queue_id = :queue_id AND `key` = :key AND expires_at <= :now;
-- name: old_results
-- Results are kept until the messages that wait for them have ended. NOT EXISTS would read every
-- edge into a temporary table.
SELECT id FROM penstock_result AS r FORCE INDEX (expiry) WHERE expires_at <= :now AND (
    SELECT e.held_id FROM penstock_edge AS e FORCE INDEX (awaited)
    WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock_history AS h WHERE h.id = e.held_id AND h.final = 1)
    LIMIT 1) IS NULL
LIMIT :limit;
-- name: prunable
SELECT h.position, h.id, h.queue_id, h.at, h.final IS NOT NULL, h.id
FROM penstock_history AS h FORCE INDEX (PRIMARY)
WHERE h.position > :after
  AND h.position <= @final
ORDER BY h.position LIMIT :limit;
-- name: prune_history
DELETE h FROM penstock_history AS h FORCE INDEX (ends_once) WHERE id IN (:ids);
-- name: prune_message
DELETE m FROM penstock_message AS m FORCE INDEX (PRIMARY) WHERE id IN (:ids);
-- name: prune_name
DELETE n FROM penstock_name AS n FORCE INDEX (id) WHERE id IN (:ids);
-- name: prune_result
DELETE r FROM penstock_result AS r FORCE INDEX (PRIMARY) WHERE id IN (:ids) AND (
    SELECT e.held_id FROM penstock_edge AS e FORCE INDEX (awaited)
    WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock_history AS h WHERE h.id = e.held_id AND h.final = 1)
    LIMIT 1) IS NULL;
-- name: pruned_up_to
UPDATE penstock_counter SET value = greatest(value, :id) WHERE name = 'pruned';

-- name: schedules_lock
-- A locked schedule is fired by the transaction that holds it, or later.
SELECT id, next_at FROM penstock_schedule WHERE id IN (:ids) AND NOT paused
FOR UPDATE SKIP LOCKED;
-- name: schedule_move
UPDATE penstock_schedule SET next_at = :next_at, last_at = :seen_at
WHERE id = :id AND next_at = :seen_at AND NOT paused;
-- name: schedule_save
INSERT INTO penstock_schedule (queue_id, name, paused, next_at, plan)
VALUES (:queue_id, :name, :paused, :next_at, :plan)
ON DUPLICATE KEY UPDATE
    paused = VALUES(paused), next_at = VALUES(next_at), plan = VALUES(plan)
RETURNING id, queue_id, paused, next_at, last_at, plan;
-- name: schedules_due
SELECT id, queue_id, paused, next_at, last_at, plan FROM penstock_schedule
WHERE NOT paused AND next_at <= :due_by ORDER BY next_at, id;
-- name: scope_create
INSERT IGNORE INTO penstock_scope (tenant, name) VALUES (:tenant, :name) RETURNING id;
-- name: queue_create
INSERT IGNORE INTO penstock_queue (scope_id, name, settings) VALUES (:scope_id, :name, :settings)
RETURNING id;
-- name: queues
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue AS q JOIN penstock_scope AS s ON s.id = q.scope_id
WHERE (:tenant IS NULL OR s.tenant = :tenant) AND (:scope IS NULL OR s.name = :scope)
ORDER BY s.tenant, s.name, q.name, q.id;
-- name: queue
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue AS q JOIN penstock_scope AS s ON s.id = q.scope_id
WHERE s.tenant = :tenant AND s.name = :scope AND q.name = :name AND q.state <> 'deleted';
-- name: queue_by_id
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue AS q JOIN penstock_scope AS s ON s.id = q.scope_id WHERE q.id = :id;
-- name: queue_change
UPDATE penstock_queue SET name = coalesce(:name, name), state = coalesce(:state, state),
                          settings = coalesce(:settings, settings)
WHERE id = :id;
-- name: index_types
CREATE INDEX IF NOT EXISTS type ON penstock_ready (queue_id, type, rank, id);

-- name: messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
FROM penstock_message WHERE id IN (:ids);
-- name: leases_of
SELECT id, attempts, deliveries, flags, lease_until, consumer, percent, note, dead_reason,
       dead_error, claimed_at, begun_at
FROM penstock_lease WHERE id IN (:ids);
-- name: scheduled_of
-- With the message that holds the key a ticket waits for.
SELECT s.id, s.attempts, s.deliveries, s.due_at, h.id
FROM penstock_scheduled AS s
LEFT JOIN penstock_head AS h
    ON s.due_at = 9007199254740991 AND h.queue_id = s.queue_id AND h.`key` = s.`key`
WHERE s.id IN (:ids);
-- name: dead_of
SELECT id, attempts, deliveries, reason, error FROM penstock_dead WHERE id IN (:ids);
-- name: timelines
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer,
       fence, claimed_at, at, due_at, final, if(:full, traceback, NULL)
FROM penstock_history FORCE INDEX (ends_once) WHERE id IN (:ids) ORDER BY position;
-- name: lock_dead
SELECT flags FROM penstock_dead WHERE id = :id FOR UPDATE SKIP LOCKED;
-- name: lock_dead_set
SELECT id, queue_id FROM penstock_dead FORCE INDEX (PRIMARY)
WHERE id IN (:ids) AND flags & :mask = 0 FOR UPDATE SKIP LOCKED;
-- name: record_dead_set
INSERT INTO penstock_history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, at, final)
SELECT id, queue_id, :verb, :state, :reason, :error, if(:final, attempts, 0),
       if(:final, deliveries, 0), :at, nullif(:final, 0)
FROM penstock_dead FORCE INDEX (PRIMARY) WHERE id IN (:ids);
-- name: redrive_dead_set
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0,
       coalesce((SELECT m.expires_at FROM penstock_message AS m WHERE m.id = d.id),
                9007199254740991), flags
FROM penstock_dead AS d FORCE INDEX (PRIMARY) WHERE id IN (:ids);
-- name: drop_dead_set
DELETE d FROM json_table('[:ids]', '$[*]' COLUMNS (id BIGINT PATH '$')) AS gone
STRAIGHT_JOIN penstock_dead AS d FORCE INDEX (PRIMARY) ON d.id = gone.id;
-- name: take_some_ready
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_ready FORCE INDEX (PRIMARY) WHERE queue_id = :queue_id
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: take_some_scheduled
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM penstock_scheduled FORCE INDEX (queue) WHERE queue_id = :queue_id
ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: take_some_dead
SELECT queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags
FROM penstock_dead FORCE INDEX (queue) WHERE queue_id = :queue_id
ORDER BY dead_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: take_old_dead
SELECT queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags
FROM penstock_dead FORCE INDEX (queue) WHERE queue_id = :queue_id AND dead_at < :before
ORDER BY dead_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: lock_ready
SELECT rank, flags FROM penstock_ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id
FOR UPDATE SKIP LOCKED;
-- name: lock_ready_anywhere
SELECT rank, flags FROM penstock_ready FORCE INDEX (PRIMARY) WHERE queue_id = :queue_id AND id = :id
FOR UPDATE SKIP LOCKED;
-- name: lock_scheduled
SELECT due_at, `key`, position, flags FROM penstock_scheduled WHERE id = :id FOR UPDATE SKIP LOCKED;
-- name: is_awaited
SELECT 1 FROM penstock_edge AS e STRAIGHT_JOIN penstock_hold AS h ON h.held_id = e.held_id
WHERE e.awaited_id = :id AND e.state IS NULL LIMIT 1;
-- name: last_position
SELECT max(position) FROM penstock_history FORCE INDEX (ends_once) WHERE id = :id;
-- name: changed_since
SELECT id FROM penstock_history FORCE INDEX (ends_once)
WHERE id IN (:ids) AND position > :as_of;
-- name: search_messages
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0 FROM penstock_message AS m FORCE INDEX (PRIMARY)
WHERE m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_ids
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0 FROM penstock_message AS m FORCE INDEX (PRIMARY)
WHERE m.id IN (:ids) AND m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_correlated
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_message AS m FORCE INDEX (correlation)
WHERE m.correlation = :correlation AND m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_claimed
SELECT l.id, l.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_lease AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN penstock_message AS m ON m.id = l.id
WHERE l.id < :id ORDER BY l.id DESC LIMIT :limit;
-- name: search_ready
SELECT r.id, r.queue_id, m.type, m.created_at, length(m.body), r.rank
FROM penstock_ready AS r FORCE INDEX (PRIMARY) STRAIGHT_JOIN penstock_message AS m ON m.id = r.id
WHERE r.queue_id = :queue_id AND r.rank >= :key AND (r.rank > :key OR r.id > :id)
ORDER BY r.rank, r.id LIMIT :limit;
-- name: search_scheduled
SELECT s.id, s.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_scheduled AS s FORCE INDEX (queue) STRAIGHT_JOIN penstock_message AS m ON m.id = s.id
WHERE s.queue_id = :queue_id AND s.id < :id ORDER BY s.id DESC LIMIT :limit;
-- name: search_dead
SELECT d.id, d.queue_id, m.type, m.created_at, length(m.body), d.dead_at
FROM penstock_dead AS d FORCE INDEX (queue) STRAIGHT_JOIN penstock_message AS m ON m.id = d.id
WHERE d.queue_id = :queue_id AND d.dead_at <= :key AND (d.dead_at < :key OR d.id < :id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit;
-- name: search_unsuccessful
-- MariaDB has no partial indexes, so each page reads a bounded window of all rows. The last message
-- of the window is always returned, with the key 1 if it did not end so: the next page goes on there.
WITH ends AS (
    SELECT id, final, state FROM penstock_history FORCE INDEX (ends_once)
    WHERE id < :id ORDER BY id DESC, final DESC LIMIT 2000),
reached AS (SELECT min(id) AS id FROM ends)
SELECT e.id, m.queue_id, m.type, m.created_at, length(m.body),
       min(e.final IS NULL OR e.state = 'completed')
FROM reached STRAIGHT_JOIN ends AS e STRAIGHT_JOIN penstock_message AS m ON m.id = e.id
WHERE e.final = 1 AND e.state <> 'completed' OR e.id = reached.id
GROUP BY e.id ORDER BY e.id DESC LIMIT :limit;
-- name: find_all
SELECT id FROM penstock_message FORCE INDEX (PRIMARY)
WHERE queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_oldest
SELECT id FROM penstock_message FORCE INDEX (PRIMARY)
WHERE queue_id IN (:queues) AND id > :after
  AND (:type IS NULL OR type = :type) ORDER BY id LIMIT :limit;
-- name: find_correlated
SELECT id FROM penstock_message FORCE INDEX (correlation)
WHERE correlation = :correlation AND queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_ready
SELECT id FROM penstock_ready
WHERE queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_scheduled
SELECT id FROM penstock_scheduled
WHERE queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_claimed
SELECT id FROM penstock_lease FORCE INDEX (PRIMARY)
WHERE queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_dead
SELECT id FROM penstock_dead
WHERE queue_id IN (:queues) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_ended
SELECT m.id FROM penstock_message AS m FORCE INDEX (PRIMARY)
STRAIGHT_JOIN penstock_history AS h ON h.id = m.id AND h.final = 1 AND h.state = :state
WHERE m.queue_id IN (:queues) AND m.id < :before
  AND (:type IS NULL OR m.type = :type) ORDER BY m.id DESC LIMIT :limit;

-- name: committed
SELECT coalesce((SELECT max(id) FROM penstock_message), 0),
       coalesce((SELECT max(position) FROM penstock_history), 0);
-- name: generations
SELECT number, message, history FROM penstock_generation ORDER BY number;
-- name: free_generations
SELECT number FROM penstock_generation FOR UPDATE SKIP LOCKED;
-- name: next_generation
INSERT IGNORE INTO penstock_generation (number, message, history)
VALUES (:number, :message, :history);
-- name: drop_generations
DELETE FROM penstock_generation WHERE number < :number;
-- name: feed_messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
FROM penstock_message FORCE INDEX (PRIMARY)
WHERE id > :after AND id <= :last ORDER BY id LIMIT :limit;
-- name: heads_messages
SELECT id, queue_id, type, created_at, run_at, octet_length(body), meta
FROM penstock_message FORCE INDEX (PRIMARY)
WHERE id > :after AND id <= :last ORDER BY id LIMIT :limit;
-- name: heads_of
SELECT id, queue_id, type, created_at, run_at, octet_length(body), meta
FROM penstock_message WHERE id IN (:ids);
-- name: rests_of
SELECT id, position, verb, state, error, consumer, at, due_at
FROM penstock_history FORCE INDEX (ends_once) WHERE id IN (:ids) AND final IS NULL ORDER BY position;
-- name: feed_history
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history FORCE INDEX (PRIMARY)
WHERE position > :after AND position <= :last ORDER BY position LIMIT :limit;
-- name: past
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history FORCE INDEX (PRIMARY) WHERE position < :before AND position > :after
ORDER BY position DESC LIMIT :limit;
-- name: headings
SELECT id, queue_id, type, meta FROM penstock_message WHERE id IN (:ids);
-- name: recent
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history FORCE INDEX (PRIMARY) WHERE position > :after ORDER BY position LIMIT :limit;
-- name: census
SELECT queue_id, place, count(*),
       CAST(sum(((id % 1000003) * (id % 1000033)) % 1000000007) AS INT) FROM (
    SELECT queue_id, 'message' AS place, id FROM penstock_message
    UNION ALL SELECT queue_id, 'ready', id FROM penstock_ready
    UNION ALL SELECT queue_id, 'scheduled', id FROM penstock_scheduled
    UNION ALL SELECT queue_id, 'lease', id FROM penstock_lease
    UNION ALL SELECT queue_id, 'dead', id FROM penstock_dead
    UNION ALL SELECT queue_id, 'ended', id FROM penstock_history WHERE final = 1
) AS places GROUP BY queue_id, place ORDER BY queue_id, place;
-- name: depths
SELECT queue_id, 'ready', count(*) FROM penstock_ready GROUP BY queue_id
UNION ALL SELECT queue_id, 'scheduled', count(*) FROM penstock_scheduled GROUP BY queue_id
UNION ALL SELECT queue_id, 'lease', count(*) FROM penstock_lease GROUP BY queue_id
UNION ALL SELECT queue_id, 'dead', count(*) FROM penstock_dead GROUP BY queue_id
UNION ALL SELECT queue_id, state, count(*) FROM (
    SELECT queue_id, state FROM penstock_history WHERE final = 1
    ORDER BY position DESC LIMIT :ended) AS last GROUP BY queue_id, state;
-- name: cursor_save
INSERT INTO penstock_cursor (name, epoch, message, history, advanced_at)
VALUES (:name, :epoch, :message, :history, :now)
ON DUPLICATE KEY UPDATE epoch = VALUES(epoch), message = VALUES(message),
    history = VALUES(history), advanced_at = VALUES(advanced_at);
-- name: worker_save
INSERT INTO penstock_worker (id, host, pid, profile, started_at, seen_at)
VALUES (:id, :host, :pid, :profile, :now, :now)
ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at), profile = VALUES(profile);
-- name: fact_set
INSERT INTO penstock_fact (name, value) VALUES (:name, :value)
ON DUPLICATE KEY UPDATE value = VALUES(value);

-- name: document_save
INSERT INTO penstock_document (kind, name, body, version, expires_at)
VALUES (:kind, :name, :body, :version, :expires_at)
ON DUPLICATE KEY UPDATE
    body = VALUES(body), version = VALUES(version), expires_at = VALUES(expires_at);
-- name: old_documents
SELECT kind, name FROM penstock_document FORCE INDEX (expiry)
WHERE expires_at <= :now LIMIT :limit;
-- name: drop_acts
DELETE FROM penstock_act WHERE at < :now - 31536000000000 LIMIT :limit;

-- name: frontier
-- Ids are taken when a message is written, before the commit.
SELECT auto_increment FROM information_schema.tables
WHERE table_schema = database() AND table_name = 'penstock_message';
-- name: copy_counters
SELECT (SELECT auto_increment - 1 FROM information_schema.tables
        WHERE table_schema = database() AND table_name = 'penstock_message'),
       (SELECT next_not_cached_value - 1 FROM penstock_fence),
       (SELECT value FROM penstock_counter WHERE name = 'pruned');
-- name: copy_keys
SELECT queue_id, `key`, id, digest, expires_at FROM penstock_dedup
WHERE (queue_id = :queue_id AND `key` > :key OR queue_id > :queue_id) AND expires_at > :now
ORDER BY queue_id, `key` LIMIT :limit;
-- name: copy_ready
SELECT r.id, r.rank, r.attempts, r.deliveries, r.flags
FROM penstock_message m STRAIGHT_JOIN penstock_ready r
    ON r.queue_id = m.queue_id AND r.rank = m.rank AND r.id = m.id
WHERE m.id BETWEEN :first AND :last;
-- name: copy_history
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, ifnull(final, 0), traceback
FROM penstock_history FORCE INDEX (ends_once) WHERE id BETWEEN :first AND :last
ORDER BY position;
-- name: copy_waits
SELECT count(*) FROM (
    SELECT id, flags FROM penstock_ready
    UNION ALL SELECT id, flags FROM penstock_scheduled
    UNION ALL SELECT id, flags FROM penstock_lease
    UNION ALL SELECT id, flags FROM penstock_dead
) AS tickets WHERE flags & ({HELD} | {STEPS}) <> 0 OR id IN (
    SELECT message_id FROM penstock_signal WHERE NOT consumed);
-- name: copy_steps
SELECT message_id, name, `key`, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id BETWEEN :first AND :last ORDER BY message_id, position;
-- name: copy_signals
SELECT id, message_id, name, `key`, at, consumed, body FROM penstock_signal
WHERE message_id BETWEEN :first AND :last ORDER BY message_id, id;
-- name: copy_results_stored
SELECT id FROM penstock_result WHERE id IN (:ids);
-- name: restore_message
INSERT INTO penstock_message (
    id, queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES :rows;
-- name: restore_ready
INSERT INTO penstock_ready (
    queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
VALUES :rows;
-- name: restore_scheduled
INSERT INTO penstock_scheduled (
    queue_id, rank, id, type, attempts, deliveries, expires_at, flags, due_at, `key`, position)
VALUES :rows;
-- name: restore_dead
INSERT INTO penstock_dead (
    queue_id, rank, id, type, attempts, deliveries, flags, dead_at, reason, error)
VALUES :rows;
-- name: restore_head
INSERT INTO penstock_head (
    queue_id, `key`, id)
VALUES :rows;
-- name: restore_history
INSERT INTO penstock_history (
    id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
    claimed_at, at, due_at, final, traceback)
VALUES :rows;
-- name: restore_dedup
INSERT IGNORE INTO penstock_dedup (
    queue_id, `key`, id, digest, expires_at)
VALUES :rows;
-- name: restore_name
INSERT INTO penstock_name (
    queue_id, name, id)
VALUES :rows;
-- name: restore_result
INSERT INTO penstock_result (
    id, expires_at, body)
VALUES :rows;
-- name: restore_hold
INSERT INTO penstock_hold (
    held_id, place, number, due_at, kind, name, policy, need, on_dead)
VALUES :rows;
-- name: restore_edge
INSERT INTO penstock_edge (
    held_id, number, awaited_id, state)
VALUES :rows;
-- name: restore_step
INSERT INTO penstock_step (
    message_id, name, `key`, kind, position, done, due_at, at, fence, body)
VALUES :rows;
-- name: restore_signal
INSERT INTO penstock_signal (
    id, message_id, name, `key`, at, consumed, body)
VALUES :rows;
-- name: restore_nudge
INSERT INTO penstock_nudge (
    held_id)
VALUES :rows;
-- name: restore_counters
SELECT setval(penstock_fence, :fence);
UPDATE penstock_counter SET value = greatest(value, :pruned) WHERE name = 'pruned';
-- name: restore_sequence
-- The counter of ids never falls, also if the row is deleted.
INSERT INTO penstock_message (id, queue_id, type, priority, rank, created_at, body)
VALUES (:message, 0, '', 0, 0, 0, '');
DELETE FROM penstock_message WHERE id = :message;

-- name: flag_awaited_ready
-- One whose rank has changed is found by nudge_missed.
UPDATE penstock_message AS m STRAIGHT_JOIN penstock_ready AS r
    ON r.queue_id = m.queue_id AND r.rank = m.rank AND r.id = m.id
SET r.flags = r.flags | {AWAITED}
WHERE m.id IN (:ids) AND r.flags & {AWAITED} = 0;
-- name: flag_awaited_scheduled
UPDATE penstock_scheduled SET flags = flags | {AWAITED}
WHERE id IN (:ids) AND flags & {AWAITED} = 0;
-- name: flag_awaited_lease
UPDATE penstock_lease SET flags = flags | {AWAITED}
WHERE id IN (:ids) AND flags & {AWAITED} = 0;
-- name: flag_awaited_dead
UPDATE penstock_dead SET flags = flags | {AWAITED}
WHERE id IN (:ids) AND flags & {AWAITED} = 0;
-- name: holds_due
SELECT held_id FROM penstock_hold FORCE INDEX (due) WHERE due_at <= :now AND due_at < 9007199254740991
ORDER BY due_at LIMIT :limit;
-- name: next_hold_due
SELECT due_at FROM penstock_hold FORCE INDEX (due) WHERE due_at < 9007199254740991 ORDER BY due_at LIMIT 1;
-- name: nudges_of
SELECT id, held_id, awaited_id FROM penstock_nudge WHERE held_id IN (:ids);
-- name: holds_of
SELECT held_id, place, number, due_at, kind, name, policy, need, on_dead FROM penstock_hold
WHERE held_id IN (:ids) ORDER BY held_id, place;
-- name: held_tickets
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags FROM penstock_scheduled
WHERE id IN (:ids) AND flags & {HELD} <> 0
FOR UPDATE SKIP LOCKED;
-- name: held_among
SELECT id FROM penstock_scheduled WHERE id IN (:ids) AND flags & {HELD} <> 0;
-- name: signals_held
SELECT DISTINCT message_id, name FROM penstock_signal
WHERE message_id IN (:ids) AND consumed = 0;
-- name: edges_ended
-- A message that is no longer stored had ended. It counts as completed, without a result.
SELECT e.held_id, e.awaited_id, h.state FROM penstock_edge AS e
JOIN penstock_history AS h ON h.id = e.awaited_id AND h.final = 1
WHERE e.held_id IN (:ids) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock_edge AS e
JOIN penstock_dead AS d ON d.id = e.awaited_id
WHERE e.held_id IN (:ids) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'completed' FROM penstock_edge AS e
WHERE e.held_id IN (:ids) AND e.state IS NULL
  AND NOT EXISTS (SELECT 1 FROM penstock_message AS m WHERE m.id = e.awaited_id);
-- name: edges_ended_by
SELECT e.held_id, e.awaited_id, h.state FROM penstock_edge AS e
JOIN penstock_history AS h ON h.id = e.awaited_id AND h.final = 1
WHERE e.awaited_id IN (:awaited) AND e.held_id IN (:ids) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock_edge AS e
JOIN penstock_dead AS d ON d.id = e.awaited_id
WHERE e.awaited_id IN (:awaited) AND e.held_id IN (:ids) AND e.state IS NULL;
-- name: edges_settle
UPDATE penstock_edge SET state = :state
WHERE held_id IN (:ids) AND awaited_id IN (:awaited) AND state IS NULL;
-- name: edges_open
-- Searched from the end: messages of one publish end in about the order of their ids.
SELECT held_id, number FROM penstock_hold
WHERE held_id IN (:ids) AND kind = 'after' AND (
    SELECT awaited_id FROM penstock_edge
    WHERE penstock_edge.held_id = penstock_hold.held_id
      AND penstock_edge.number = penstock_hold.number AND state IS NULL
    ORDER BY awaited_id DESC LIMIT 1) IS NOT NULL;
-- name: edge_counts
SELECT held_id, number, state, count(*) FROM penstock_edge
WHERE held_id IN (:ids) GROUP BY held_id, number, state;
-- name: drop_holds
DELETE FROM penstock_hold WHERE held_id IN (:ids);
-- name: drop_nudges
DELETE FROM penstock_nudge WHERE id IN (:ids);
-- name: resume_held
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags & ~{HELD}
FROM penstock_scheduled WHERE id IN (:ids);
-- name: leave_held
DELETE FROM penstock_scheduled WHERE id IN (:ids);
-- name: heads_among
SELECT id FROM penstock_head WHERE id IN (:ids);
-- name: lease_shared
SELECT flags FROM penstock_lease WHERE id = :id AND fence = :fence
LOCK IN SHARE MODE SKIP LOCKED;
-- name: step
SELECT name, `key`, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id = :id AND name = :name AND `key` = :key;
-- name: steps
SELECT name, `key`, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id = :id ORDER BY position;
-- name: steps_dated
-- Also some signals that were not received yet, oldest first, with their ids as positions.
SELECT @now, name, `key`, kind, position, body, done, due_at, at, fence
FROM penstock_step WHERE message_id = :id
UNION ALL
(SELECT @now, name, `key`, 'received', id, body, consumed, NULL, at, 0
 FROM penstock_signal WHERE message_id = :id AND NOT consumed ORDER BY id LIMIT 10)
ORDER BY 5;
-- name: child_records
SELECT name, `key`, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id IN (:ids) AND kind IN ('gather', 'enqueue') ORDER BY message_id, position;
-- name: step_save
INSERT INTO penstock_step (message_id, name, `key`, kind, position, done, due_at, at, fence, body)
VALUES (:id, :name, :key, :kind, :position, :done, :due_at, :at, :fence, :body)
ON DUPLICATE KEY UPDATE kind = VALUES(kind), done = VALUES(done), due_at = VALUES(due_at),
    at = VALUES(at), fence = VALUES(fence), body = VALUES(body);
-- name: step_delete
DELETE FROM penstock_step WHERE message_id = :id AND name = :name AND `key` = :key;
-- name: last_redrive
SELECT position, at FROM penstock_history
WHERE id = :id AND final IS NULL AND verb = 'redrive' ORDER BY position DESC LIMIT 1;
-- name: wait_counts
SELECT (SELECT count(*) FROM penstock_history
        WHERE id = :id AND final IS NULL AND verb = 'wait' AND position > :position),
       (SELECT count(*) FROM penstock_step WHERE message_id = :id AND at >= :at),
       (SELECT count(*) FROM penstock_step WHERE message_id = :id AND fence = :fence);
-- name: recent_waits
SELECT at, claimed_at, due_at FROM penstock_history
WHERE id = :id AND final IS NULL AND verb = 'wait' ORDER BY position DESC LIMIT :limit;
-- name: signal_of_key
SELECT id, body FROM penstock_signal WHERE message_id = :id AND name = :name AND `key` = :key;
-- name: signal_add
INSERT INTO penstock_signal (message_id, name, `key`, at, consumed, body)
VALUES (:id, :name, :key, :at, 0, :body)
RETURNING id;
-- name: signals
SELECT id, message_id, name, `key`, at, consumed, body FROM penstock_signal
WHERE message_id = :id ORDER BY id;
-- name: prune_step
DELETE FROM penstock_step WHERE message_id IN (:ids);
-- name: prune_signal
DELETE FROM penstock_signal WHERE message_id IN (:ids);
-- name: prune_edge
DELETE FROM penstock_edge WHERE held_id IN (:ids);
-- name: prune_hold
DELETE FROM penstock_hold WHERE held_id IN (:ids);
-- name: look_when
SELECT @now, EXISTS (SELECT 1 FROM penstock_nudge),
       (SELECT due_at FROM penstock_hold FORCE INDEX (due)
        WHERE due_at < 9007199254740991 ORDER BY due_at LIMIT 1);
