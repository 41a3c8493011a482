-- One statement per name; names are verbs and the same in every engine's file. Statements that
-- engines share are in stores/sql/statements.sql.
-- A ticket is (queue_id, rank, id, type, attempts, deliveries, expires_at, flags).

-- name: publish_message
INSERT INTO penstock_message
    (queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: publish_ready
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0, ifnull(expires_at, 9007199254740991), :flags
FROM penstock_message WHERE id BETWEEN :first AND :last AND ifnull(run_at, 0) <= :now;
-- name: publish_ready_uniform
-- The messages of a uniform batch that are ready at once: their rows are not read again.
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT :queue_id, :rank, id, :type, 0, 0, ifnull(:expires_at, 9007199254740991), :flags
FROM penstock_message WHERE id BETWEEN :first AND :last;
-- name: publish_scheduled
INSERT INTO penstock_scheduled
    (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags)
SELECT run_at, id, queue_id, rank, type, 0, 0, ifnull(expires_at, 9007199254740991), :flags
FROM penstock_message WHERE id BETWEEN :first AND :last AND run_at > :now;
-- name: unique_free
DELETE FROM penstock_dedup
WHERE id = :id AND expires_at = 9007199254740991 AND key >= 'unique:' AND key < 'unique;';
-- name: depth
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM penstock_ready WHERE queue_id = :queue_id LIMIT :most))
     + (SELECT count(*) FROM (
            SELECT 1 FROM penstock_scheduled WHERE queue_id = :queue_id LIMIT :most));

-- name: put_history
INSERT INTO penstock_history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
     claimed_at, at, due_at, final, traceback)
VALUES (:id, :queue_id, :verb, :state, :reason, :error, :attempts, :deliveries, :consumer, :fence,
        :claimed_at, :at, :due_at, :final, :traceback);

-- name: first_in_line
-- Names the index: after ANALYZE the planner would scan and sort the whole table.
SELECT id FROM penstock_scheduled INDEXED BY penstock_scheduled_line
WHERE queue_id = :queue_id AND key = :key AND due_at = 9007199254740991
ORDER BY position LIMIT 1;
-- name: end_of_line
UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'penstock_message' RETURNING seq;

-- name: peek
SELECT 1 FROM penstock_ready WHERE queue_id = :queue_id LIMIT 1;
-- name: claim_lease
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags, consumer,
     claimed_at, lease_until, length)
SELECT id, :fence, queue_id, rank, type, attempts, deliveries + 1, expires_at,
       CASE WHEN :begins AND deliveries > 0 THEN flags | {UNBEGUN} ELSE flags END,
       :consumer, :now, :until, :until - :now
FROM (SELECT * FROM penstock_ready WHERE queue_id = :queue ORDER BY rank, id LIMIT :limit)
WHERE expires_at > :now;
-- name: claim_expired
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
FROM (SELECT * FROM penstock_ready WHERE queue_id = :queue ORDER BY rank, id LIMIT :limit)
WHERE expires_at <= :now;
-- name: claim_read
SELECT m.id, m.queue_id, m.type, m.priority, m.created_at, m.body, m.meta,
       l.attempts, l.deliveries, l.flags, l.rank
FROM penstock_ready r
CROSS JOIN penstock_lease l ON l.id = r.id
CROSS JOIN penstock_message m ON m.id = r.id
WHERE r.queue_id = ? ORDER BY r.rank, r.id LIMIT ?;
-- name: claim_remove
DELETE FROM penstock_ready WHERE queue_id = ? AND (rank, id) <= (?, ?);
-- name: pick
SELECT rank, id, queue_id FROM penstock_ready
WHERE queue_id = :queue_id ORDER BY rank, id LIMIT :limit;
-- name: pick_type
SELECT rank, id, queue_id FROM penstock_ready
WHERE queue_id = :queue_id AND type = :type ORDER BY rank, id LIMIT :limit;
-- name: ready
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags FROM penstock_ready
WHERE queue_id = :queue_id AND rank = :rank AND id = :id;
-- name: claim_pick
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags, consumer,
     claimed_at, lease_until, length)
SELECT id, :fence, queue_id, rank, type, attempts, deliveries + 1, expires_at,
       CASE WHEN :begins AND deliveries > 0 THEN flags | {UNBEGUN} ELSE flags END,
       :consumer, :now, :until, :until - :now
FROM penstock_ready WHERE queue_id = :queue AND rank = :rank AND id = :id;
-- name: claimed_read
SELECT m.id, m.queue_id, m.type, m.priority, m.created_at, m.body, m.meta,
       l.attempts, l.deliveries, l.flags, l.rank
FROM json_each(:ids) j
CROSS JOIN penstock_lease l ON l.id = j.value
CROSS JOIN penstock_message m ON m.id = l.id
ORDER BY j.key;
-- name: own_lease
UPDATE penstock_lease SET lease_until = :until, length = :until - claimed_at
WHERE id = :id AND fence = :fence;
-- name: pick_dead
SELECT dead_at, id FROM penstock_dead WHERE queue_id = :queue_id ORDER BY dead_at, id LIMIT :limit;
-- name: pick_dead_type
SELECT dead_at, id FROM penstock_dead
WHERE queue_id = :queue_id AND type = :type ORDER BY dead_at, id LIMIT :limit;
-- name: claim_dead
INSERT INTO penstock_lease
    (id, fence, queue_id, rank, type, attempts, deliveries, expires_at, flags, consumer,
     claimed_at, lease_until, length, dead_at, dead_reason, dead_error)
SELECT id, :fence, queue_id, rank, type, attempts, deliveries, 9007199254740991, flags | {FROM_DEAD},
       :consumer, :now, :until, :until - :now, dead_at, reason, error
FROM penstock_dead WHERE id = :id;

-- name: flagged
SELECT l.id, l.flags FROM json_each(?) j CROSS JOIN penstock_lease l ON l.id = j.key
WHERE l.fence = j.value AND l.flags != 0;
-- name: complete_history
INSERT INTO penstock_history
    (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
SELECT l.id, l.queue_id, 'complete', 'completed', l.attempts + 1, l.deliveries, l.consumer,
       l.fence, l.claimed_at, ?, 1
FROM json_each(?) j CROSS JOIN penstock_lease l ON l.id = j.key
WHERE l.fence = j.value;
-- name: complete_remove
DELETE FROM penstock_lease
WHERE (id, fence) IN (SELECT key, value FROM json_each(?));
-- name: history_tail
SELECT id, fence FROM penstock_history WHERE position > ?;
-- name: keep_result
INSERT OR REPLACE INTO penstock_result (id, expires_at, body)
SELECT m.id, :now + CAST(1000000 * (q.settings ->> 'keep_results') AS INTEGER), :body
FROM penstock_message m JOIN penstock_queue q ON q.id = m.queue_id WHERE m.id = :id;
-- name: keep_nothing
-- A message that others wait for and that completed without a result gets a null, so that a result
-- that is no longer stored can be told from None.
INSERT OR IGNORE INTO penstock_result (id, expires_at, body)
SELECT h.id, h.at + CAST(1000000 * (q.settings ->> 'keep_results') AS INTEGER), CAST('null' AS BLOB)
FROM json_each(:ids) AS j CROSS JOIN penstock_history AS h ON h.id = j.value AND h.final = 1
JOIN penstock_queue AS q ON q.id = h.queue_id
WHERE h.state = 'completed'
  AND h.at + CAST(1000000 * (q.settings ->> 'keep_results') AS INTEGER) >= :now;
-- name: extend
UPDATE penstock_lease SET lease_until = max(lease_until, :until), length = :until - :now
WHERE id = :id AND fence = :fence
RETURNING lease_until, flags;
-- name: begin
UPDATE penstock_lease SET flags = flags & ~{UNBEGUN}, begun_at = ifnull(begun_at, :now)
WHERE id = :id AND fence = :fence;
-- name: progress
UPDATE penstock_lease SET percent = ifnull(:percent, percent), note = ifnull(:note, note),
    begun_at = ifnull(begun_at, :now)
WHERE id = :id AND fence = :fence;
-- name: lease_read
SELECT l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.flags, l.claimed_at, l.lease_until,
       l.length, m.meta, l.dead_reason,
       (SELECT count(*) FROM penstock_history h
        WHERE h.id = l.id AND h.final = 0 AND h.verb = 'park'
          AND h.position > ifnull((SELECT max(position) FROM penstock_history r WHERE r.id = l.id
                                   AND r.final = 0 AND r.verb IN ('redrive', 'wait')), 0)),
       (SELECT min(h.claimed_at) FROM penstock_history h WHERE h.id = l.id AND h.final = 0
          AND h.position > ifnull((SELECT max(position) FROM penstock_history r WHERE r.id = l.id
                                   AND r.final = 0 AND r.verb IN ('redrive', 'wait')), 0))
FROM penstock_lease l JOIN penstock_message m ON m.id = l.id
WHERE l.id = :id AND l.fence = :fence;
-- name: settle
DELETE FROM penstock_lease
WHERE id = :id AND fence = :fence AND flags = :flags AND lease_until < :expired_by
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags,
          consumer, fence, claimed_at, dead_at, dead_error;

-- name: story_of_fence
SELECT verb, state FROM penstock_history WHERE id = :id AND final = 0 AND fence = :fence
UNION ALL
SELECT verb, state FROM penstock_history WHERE id = :id AND final = 1 AND fence = :fence;
-- name: lease_fence
SELECT fence, 0 FROM penstock_lease WHERE id = :id;

-- name: due
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags, key
FROM penstock_scheduled WHERE due_at <= :now AND flags & {HELD} = 0
ORDER BY due_at, id LIMIT :limit;
-- name: next_due
SELECT due_at FROM penstock_scheduled WHERE due_at < 9007199254740991 ORDER BY due_at LIMIT 1;
-- name: expired_ready
SELECT queue_id, rank, id FROM penstock_ready
WHERE expires_at < 9007199254740991 AND expires_at <= :now LIMIT :limit;
-- name: expired_scheduled
SELECT id FROM penstock_scheduled
WHERE expires_at < 9007199254740991 AND expires_at <= :now LIMIT :limit;
-- name: waited
SELECT r.id FROM penstock_ready r JOIN penstock_message m ON m.id = r.id
WHERE r.queue_id = :queue_id AND r.rank = :rank AND m.created_at <= :before
ORDER BY r.id LIMIT :limit;
-- name: ready_since
-- When messages were published or due, when their last wait began, and the moments that may have
-- ended it: its time limit, the first signal it waited for, and the last end of another message.
SELECT m.id, coalesce(m.run_at, m.created_at), w.at,
       CASE WHEN w.due_at <= :now THEN w.due_at END,
       (SELECT min(s.at) FROM penstock_signal AS s WHERE s.message_id = m.id
          AND s.name = CASE WHEN w.reason LIKE 'signal:%' THEN substr(w.reason, 8) END
          AND (s.consumed = 0 OR s.at >= w.at)),
       (SELECT max((SELECT h.at FROM penstock_history AS h
                    WHERE h.id = e.awaited_id AND h.final = 1))
        FROM penstock_edge AS e
        WHERE e.held_id = m.id AND e.number = coalesce(w.fence, 0) AND e.state IS NOT NULL)
FROM penstock_message AS m LEFT JOIN penstock_history AS w ON w.position = (
    SELECT max(position) FROM penstock_history
    WHERE id = m.id AND final = 0 AND verb = 'wait' AND state = 'scheduled')
WHERE m.id IN (SELECT value FROM json_each(:ids));
-- name: age
UPDATE penstock_ready SET rank = :above WHERE queue_id = :queue_id AND rank = :rank AND id = :id;
-- name: claim_tick
INSERT INTO penstock_agent (name, at, by) VALUES (:name, :now, :by)
ON CONFLICT (name) DO UPDATE SET at = excluded.at, by = excluded.by
WHERE penstock_agent.by = excluded.by OR penstock_agent.at <= :before OR penstock_agent.at > :after;
-- name: old_dedup
SELECT queue_id, key FROM penstock_dedup WHERE expires_at < 9007199254740991 AND expires_at <= :now
LIMIT :limit;
-- name: old_results
-- Results are kept until the messages that wait for them have ended.
SELECT id FROM penstock_result AS r WHERE expires_at <= :now AND NOT EXISTS (
    SELECT 1 FROM penstock_edge AS e WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock_history AS h WHERE h.id = e.held_id AND h.final = 1))
LIMIT :limit;
-- name: prunable
SELECT position, id, queue_id, at, final, id FROM penstock_history
WHERE position > :after ORDER BY position LIMIT :limit;
-- name: prune_history
DELETE FROM penstock_history WHERE position IN (
    SELECT h.position FROM json_each(:ids) j CROSS JOIN penstock_history h ON h.id = j.value
    WHERE h.final = 1
    UNION ALL
    SELECT h.position FROM json_each(:ids) j CROSS JOIN penstock_history h ON h.id = j.value
    WHERE h.final = 0);
-- name: prune_message
DELETE FROM penstock_message WHERE id IN (SELECT value FROM json_each(:ids));
-- name: prune_name
DELETE FROM penstock_name WHERE id IN (SELECT value FROM json_each(:ids));
-- name: prune_result
DELETE FROM penstock_result AS r WHERE id IN (SELECT value FROM json_each(:ids)) AND NOT EXISTS (
    SELECT 1 FROM penstock_edge AS e WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock_history AS h WHERE h.id = e.held_id AND h.final = 1));
-- name: pruned_up_to
UPDATE penstock_counter SET value = max(value, :id) WHERE name = 'pruned';

-- name: schedule_move
UPDATE penstock_schedule SET next_at = :next_at, last_at = :seen_at
WHERE id = :id AND next_at = :seen_at AND paused = 0;
-- name: schedules_due
SELECT id, queue_id, paused, next_at, last_at, plan FROM penstock_schedule
WHERE paused = 0 AND next_at <= :due_by ORDER BY next_at, id;
-- name: queues
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue q JOIN penstock_scope s ON s.id = q.scope_id
WHERE (:tenant IS NULL OR s.tenant = :tenant) AND (:scope IS NULL OR s.name = :scope)
ORDER BY s.tenant, s.name, q.name, q.id;
-- name: queue
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue q JOIN penstock_scope s ON s.id = q.scope_id
WHERE s.tenant = :tenant AND s.name = :scope AND q.name = :name AND q.state != 'deleted';
-- name: queue_by_id
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock_queue q JOIN penstock_scope s ON s.id = q.scope_id WHERE q.id = :id;
-- name: queue_change
UPDATE penstock_queue SET name = ifnull(:name, name), state = ifnull(:state, state),
    settings = ifnull(:settings, settings)
WHERE id = :id;
-- name: index_types
-- The type comes first, or claims without one would use this index and sort. It covers all that
-- pick_type reads, or claims by type would not use it.
CREATE INDEX IF NOT EXISTS penstock_ready_type ON penstock_ready (type, queue_id, rank, id);

-- name: messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
FROM penstock_message WHERE id IN (SELECT value FROM json_each(:ids));
-- name: leases_of
SELECT id, attempts, deliveries, flags, lease_until, consumer, percent, note, dead_reason,
       dead_error, claimed_at, begun_at
FROM penstock_lease WHERE id IN (SELECT value FROM json_each(:ids));
-- name: scheduled_of
-- With the message that holds the key a ticket waits for.
SELECT s.id, s.attempts, s.deliveries, s.due_at, h.id
FROM penstock_scheduled AS s
LEFT JOIN penstock_head AS h
    ON s.due_at = 9007199254740991 AND h.queue_id = s.queue_id AND h.key = s.key
WHERE s.id IN (SELECT value FROM json_each(:ids));
-- name: dead_of
SELECT id, attempts, deliveries, reason, error FROM penstock_dead WHERE id IN (SELECT value FROM json_each(:ids));
-- name: timelines
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer,
       fence, claimed_at, at, due_at, final, iif(:full, traceback, NULL)
FROM penstock_history WHERE id IN (SELECT value FROM json_each(:ids)) AND final = 0
UNION ALL
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer,
       fence, claimed_at, at, due_at, final, iif(:full, traceback, NULL)
FROM penstock_history WHERE id IN (SELECT value FROM json_each(:ids)) AND final = 1
ORDER BY 1;
-- name: request_cancel
UPDATE penstock_lease SET flags = flags | {CANCEL_REQUESTED} WHERE id = :id AND fence = :fence;
-- name: take_lease
DELETE FROM penstock_lease WHERE id = :id AND fence = :fence
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags,
          consumer, fence, claimed_at, dead_at, dead_error;
-- name: lock_dead
SELECT flags FROM penstock_dead WHERE id = :id;
-- name: lock_dead_set
SELECT id, queue_id FROM penstock_dead
WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & :mask = 0;
-- name: record_dead_set
INSERT INTO penstock_history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, at, final)
SELECT id, queue_id, :verb, :state, :reason, :error, iif(:final, attempts, 0),
       iif(:final, deliveries, 0), :at, :final
FROM penstock_dead WHERE id IN (SELECT value FROM json_each(:ids));
-- name: redrive_dead_set
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0,
       coalesce((SELECT m.expires_at FROM penstock_message AS m WHERE m.id = d.id),
                9007199254740991), flags
FROM penstock_dead AS d WHERE id IN (SELECT value FROM json_each(:ids));
-- name: drop_dead_set
DELETE FROM penstock_dead WHERE id IN (SELECT value FROM json_each(:ids));
-- name: take_some_ready
-- The upper bound and the + keep the planner from reading every ticket of a rank.
DELETE FROM penstock_ready WHERE queue_id = :queue_id AND (rank, id) <= (
    SELECT +rank, +id
    FROM (SELECT rank, id FROM penstock_ready WHERE queue_id = :queue_id
          ORDER BY rank, id LIMIT :limit)
    ORDER BY rank DESC, id DESC LIMIT 1)
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: take_some_scheduled
DELETE FROM penstock_scheduled WHERE id IN (
    SELECT id FROM penstock_scheduled WHERE queue_id = :queue_id ORDER BY id LIMIT :limit)
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: take_some_dead
DELETE FROM penstock_dead WHERE id IN (
    SELECT id FROM penstock_dead WHERE queue_id = :queue_id ORDER BY dead_at, id LIMIT :limit)
RETURNING queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags;
-- name: take_old_dead
DELETE FROM penstock_dead WHERE id IN (
    SELECT id FROM penstock_dead WHERE queue_id = :queue_id AND dead_at < :before ORDER BY dead_at, id LIMIT :limit)
RETURNING queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags;

-- name: lock_ready
SELECT rank, flags FROM penstock_ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id;
-- name: lock_ready_anywhere
SELECT rank, flags FROM penstock_ready WHERE queue_id = :queue_id AND id = :id;
-- name: lock_scheduled
SELECT due_at, key, position, flags FROM penstock_scheduled WHERE id = :id;
-- name: last_position
SELECT max(position) FROM penstock_history WHERE id = :id AND final = 0;
-- name: changed_since
SELECT id FROM penstock_history
WHERE id IN (SELECT value FROM json_each(:ids)) AND final = 0 AND position > :as_of;
-- name: search_messages
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0 FROM penstock_message AS m
WHERE m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_ids
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0 FROM penstock_message AS m
WHERE m.id IN (SELECT value FROM json_each(:ids)) AND m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_correlated
SELECT m.id, m.queue_id, m.type, m.created_at, length(m.body), 0 FROM penstock_message AS m
WHERE m.meta IS NOT NULL AND m.meta ->> 'correlation_id' = :correlation AND m.id < :id
ORDER BY m.id DESC LIMIT :limit;
-- name: search_claimed
SELECT l.id, l.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_lease AS l JOIN penstock_message AS m ON m.id = l.id
WHERE l.id < :id ORDER BY l.id DESC LIMIT :limit;
-- name: search_ready
SELECT r.id, r.queue_id, m.type, m.created_at, length(m.body), r.rank
FROM penstock_ready AS r JOIN penstock_message AS m ON m.id = r.id
WHERE r.queue_id = :queue_id AND r.rank >= :key AND (r.rank > :key OR r.id > :id)
ORDER BY r.rank, r.id LIMIT :limit;
-- name: search_scheduled
SELECT s.id, s.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_scheduled AS s JOIN penstock_message AS m ON m.id = s.id
WHERE s.queue_id = :queue_id AND s.id < :id ORDER BY s.id DESC LIMIT :limit;
-- name: search_dead
SELECT d.id, d.queue_id, m.type, m.created_at, length(m.body), d.dead_at
FROM penstock_dead AS d JOIN penstock_message AS m ON m.id = d.id
WHERE d.queue_id = :queue_id AND d.dead_at <= :key AND (d.dead_at < :key OR d.id < :id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit;
-- name: search_unsuccessful
SELECT h.id, h.queue_id, m.type, m.created_at, length(m.body), 0
FROM penstock_history AS h JOIN penstock_message AS m ON m.id = h.id
WHERE h.final = 1 AND h.state <> 'completed' AND h.id < :id ORDER BY h.id DESC LIMIT :limit;
-- name: find_all
SELECT m.id FROM penstock_message m
WHERE m.queue_id IN (SELECT value FROM json_each(:queues)) AND m.id < :before
  AND (:type IS NULL OR m.type = :type) ORDER BY m.id DESC LIMIT :limit;
-- name: find_oldest
SELECT m.id FROM penstock_message m
WHERE m.queue_id IN (SELECT value FROM json_each(:queues)) AND m.id > :after
  AND (:type IS NULL OR m.type = :type) ORDER BY m.id LIMIT :limit;
-- name: find_correlated
SELECT m.id FROM penstock_message m
WHERE m.meta IS NOT NULL AND m.meta ->> 'correlation_id' = :correlation
  AND m.queue_id IN (SELECT value FROM json_each(:queues)) AND m.id < :before
  AND (:type IS NULL OR m.type = :type) ORDER BY m.id DESC LIMIT :limit;
-- name: find_ready
SELECT id FROM penstock_ready
WHERE queue_id IN (SELECT value FROM json_each(:queues)) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_scheduled
SELECT id FROM penstock_scheduled
WHERE queue_id IN (SELECT value FROM json_each(:queues)) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_claimed
SELECT id FROM penstock_lease
WHERE queue_id IN (SELECT value FROM json_each(:queues)) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_dead
SELECT id FROM penstock_dead
WHERE queue_id IN (SELECT value FROM json_each(:queues)) AND id < :before
  AND (:type IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_ended
SELECT m.id FROM penstock_message m
JOIN penstock_history h ON h.id = m.id AND h.final = 1 AND h.state = :state
WHERE m.queue_id IN (SELECT value FROM json_each(:queues)) AND m.id < :before
  AND (:type IS NULL OR m.type = :type) ORDER BY m.id DESC LIMIT :limit;

-- name: feed_messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
FROM penstock_message WHERE id > :after ORDER BY id LIMIT :limit;
-- name: heads_messages
SELECT id, queue_id, type, created_at, run_at, length(body), meta
FROM penstock_message WHERE id > :after ORDER BY id LIMIT :limit;
-- name: heads_of
SELECT id, queue_id, type, created_at, run_at, length(body), meta
FROM penstock_message WHERE id IN (SELECT value FROM json_each(:ids));
-- name: rests_of
SELECT id, position, verb, state, error, consumer, at, due_at
FROM penstock_history WHERE id IN (SELECT value FROM json_each(:ids)) AND final = 0
ORDER BY position;
-- name: digest_messages
SELECT id, queue_id, type, created_at
FROM penstock_message WHERE id > :after ORDER BY id LIMIT :limit;
-- name: digest_history
SELECT grouped, queue_id, type, minute, consumer, min(claimed_at), max(at), max(position),
       json_group_array(run), json_group_array(wait),
       json_group_array(position) FILTER (WHERE NOT grouped)
FROM (
    SELECT h.position, h.queue_id, m.type, h.at / 60000000 AS minute, h.consumer, h.claimed_at, h.at,
           h.at - h.claimed_at AS run, h.claimed_at - coalesce(m.run_at, m.created_at) AS wait,
           h.verb = 'complete' AND h.claimed_at IS NOT NULL AND m.id IS NOT NULL
           AND h.at - h.claimed_at <= :run AND length(m.body) <= :size
           AND (m.meta IS NULL OR instr(m.meta, '"lease"') = 0)
           AND h.queue_id NOT IN (SELECT value FROM json_each(:whole))
           AND NOT EXISTS (SELECT 1 FROM penstock_history AS r WHERE r.id = h.id AND r.final = 0)
           AS grouped
    FROM penstock_history AS h LEFT JOIN penstock_message AS m ON m.id = h.id
    WHERE h.position > :after ORDER BY h.position LIMIT :limit)
GROUP BY grouped, iif(grouped, queue_id, 0), iif(grouped, type, ''), iif(grouped, minute, 0),
         iif(grouped, consumer, '');
-- name: history_of
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history WHERE position IN (SELECT value FROM json_each(:ids))
ORDER BY position;
-- name: past
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history WHERE position < :before AND position > :after
ORDER BY position DESC LIMIT :limit;
-- name: headings
SELECT id, queue_id, type, meta FROM penstock_message WHERE id IN (SELECT value FROM json_each(:ids));
-- name: recent
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock_history WHERE position > :after ORDER BY position LIMIT :limit;
-- name: census
SELECT queue_id, place, count(*), sum(((id % 1000003) * (id % 1000033)) % 1000000007) FROM (
    SELECT queue_id, 'message' AS place, id FROM penstock_message
    UNION ALL SELECT queue_id, 'ready', id FROM penstock_ready
    UNION ALL SELECT queue_id, 'scheduled', id FROM penstock_scheduled
    UNION ALL SELECT queue_id, 'lease', id FROM penstock_lease
    UNION ALL SELECT queue_id, 'dead', id FROM penstock_dead
    UNION ALL SELECT queue_id, 'ended', id FROM penstock_history WHERE final = 1
) GROUP BY queue_id, place ORDER BY queue_id, place;
-- name: depths
SELECT queue_id, 'ready', count(*) FROM penstock_ready GROUP BY queue_id
UNION ALL SELECT queue_id, 'scheduled', count(*) FROM penstock_scheduled GROUP BY queue_id
UNION ALL SELECT queue_id, 'lease', count(*) FROM penstock_lease GROUP BY queue_id
UNION ALL SELECT queue_id, 'dead', count(*) FROM penstock_dead GROUP BY queue_id
UNION ALL SELECT queue_id, state, count(*) FROM (
    SELECT queue_id, state FROM penstock_history WHERE final = 1 ORDER BY position DESC LIMIT :ended
) GROUP BY queue_id, state;
-- name: floor
SELECT max(floor) FROM penstock_migration;
-- name: skip_counters
UPDATE penstock_counter SET value = value + 1048576 WHERE name = 'fence';
-- name: begin_sequences
-- A sequence has no row before its first number, or after all were lost.
INSERT INTO sqlite_sequence (name, seq)
SELECT value, 0 FROM json_each('["penstock_message", "penstock_history"]')
WHERE value NOT IN (SELECT name FROM sqlite_sequence);
-- name: skip_sequences
UPDATE sqlite_sequence SET seq = seq + 1048576
WHERE name IN ('penstock_message', 'penstock_history');

-- name: drop_acts
DELETE FROM penstock_act WHERE id IN (
    SELECT id FROM penstock_act WHERE at < :now - 31536000000000 LIMIT :limit);

-- name: frontier
-- Ids are taken when a message is written.
SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'penstock_message'), 0) + 1;
-- name: copy_counters
SELECT ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'penstock_message'), 0),
       (SELECT value FROM penstock_counter WHERE name = 'fence'),
       (SELECT value FROM penstock_counter WHERE name = 'pruned');
-- name: copy_keys
SELECT queue_id, key, id, digest, expires_at FROM penstock_dedup
WHERE (queue_id, key) > (:queue_id, :key) AND expires_at > :now
ORDER BY queue_id, key LIMIT :limit;
-- name: copy_ready
SELECT r.id, r.rank, r.attempts, r.deliveries, r.flags
FROM penstock_message m CROSS JOIN penstock_ready r
    ON r.queue_id = m.queue_id AND r.rank = m.rank AND r.id = m.id
WHERE m.id BETWEEN :first AND :last;
-- name: copy_history
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, traceback
FROM penstock_history WHERE id BETWEEN :first AND :last AND final = 0
UNION ALL
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, traceback
FROM penstock_history WHERE id BETWEEN :first AND :last AND final = 1
ORDER BY 1;
-- name: copy_waits
SELECT count(*) FROM (
    SELECT id, flags FROM penstock_ready
    UNION ALL SELECT id, flags FROM penstock_scheduled
    UNION ALL SELECT id, flags FROM penstock_lease
    UNION ALL SELECT id, flags FROM penstock_dead
) AS tickets WHERE flags & ({HELD} | {STEPS}) <> 0 OR id IN (
    SELECT message_id FROM penstock_signal WHERE consumed = 0);
-- name: copy_results_stored
SELECT id FROM penstock_result WHERE id IN (SELECT value FROM json_each(:ids));
-- name: restore_message
INSERT INTO penstock_message (
    id, queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_ready
INSERT INTO penstock_ready (
    queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_scheduled
INSERT INTO penstock_scheduled (
    queue_id, rank, id, type, attempts, deliveries, expires_at, flags, due_at, key, position)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_dead
INSERT INTO penstock_dead (
    queue_id, rank, id, type, attempts, deliveries, flags, dead_at, reason, error)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_head
INSERT INTO penstock_head (
    queue_id, key, id)
VALUES (?, ?, ?);
-- name: restore_history
INSERT INTO penstock_history (
    id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
    claimed_at, at, due_at, final, traceback)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_dedup
INSERT INTO penstock_dedup (
    queue_id, key, id, digest, expires_at)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING;
-- name: restore_name
INSERT INTO penstock_name (
    queue_id, name, id)
VALUES (?, ?, ?);
-- name: restore_result
INSERT INTO penstock_result (
    id, expires_at, body)
VALUES (?, ?, ?);
-- name: restore_hold
INSERT INTO penstock_hold (
    held_id, place, number, due_at, kind, name, policy, need, on_dead)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_edge
INSERT INTO penstock_edge (
    held_id, number, awaited_id, state)
VALUES (?, ?, ?, ?);
-- name: restore_step
INSERT INTO penstock_step (
    message_id, name, key, kind, position, done, due_at, at, fence, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
-- name: restore_signal
INSERT INTO penstock_signal (
    id, message_id, name, key, at, consumed, body)
VALUES (?, ?, ?, ?, ?, ?, ?);
-- name: restore_nudge
INSERT INTO penstock_nudge (
    held_id)
VALUES (?);
-- name: restore_sequence
UPDATE sqlite_sequence SET seq = max(seq, :message) WHERE name = 'penstock_message';
-- name: restore_counters
UPDATE penstock_counter SET value = max(value, CASE name WHEN 'fence' THEN :fence ELSE :pruned END)
WHERE name IN ('fence', 'pruned');

-- name: flag_awaited_ready
-- One whose rank has changed is found by nudge_missed.
UPDATE penstock_ready SET flags = flags | {AWAITED}
WHERE (queue_id, rank, id) IN (
    SELECT queue_id, rank, id FROM penstock_message
    WHERE id IN (SELECT value FROM json_each(:ids))) AND flags & {AWAITED} = 0;
-- name: flag_awaited_scheduled
UPDATE penstock_scheduled SET flags = flags | {AWAITED}
WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & {AWAITED} = 0;
-- name: flag_awaited_lease
UPDATE penstock_lease SET flags = flags | {AWAITED}
WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & {AWAITED} = 0;
-- name: flag_awaited_dead
UPDATE penstock_dead SET flags = flags | {AWAITED}
WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & {AWAITED} = 0;
-- name: settle_awaited
UPDATE penstock_edge SET state = 'completed'
WHERE awaited_id IN (SELECT value FROM json_each(:ids)) AND state IS NULL
RETURNING held_id;
-- name: nudge_settled
INSERT INTO penstock_nudge (held_id, awaited_id) SELECT value, 0 FROM json_each(:ids);
-- name: nudges_of
SELECT id, held_id, awaited_id FROM penstock_nudge WHERE held_id IN (SELECT value FROM json_each(:ids));
-- name: holds_of
SELECT held_id, place, number, due_at, kind, name, policy, need, on_dead FROM penstock_hold
WHERE held_id IN (SELECT value FROM json_each(:ids)) ORDER BY held_id, place;
-- name: held_tickets
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags FROM penstock_scheduled
WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & {HELD} <> 0;
-- name: held_among
SELECT id FROM penstock_scheduled WHERE id IN (SELECT value FROM json_each(:ids)) AND flags & {HELD} <> 0;
-- name: signals_held
SELECT DISTINCT message_id, name FROM penstock_signal
WHERE message_id IN (SELECT value FROM json_each(:ids)) AND consumed = 0;
-- name: edges_ended
-- A message that is no longer stored had ended. It counts as completed, without a result.
SELECT e.held_id, e.awaited_id, h.state FROM penstock_edge AS e
JOIN penstock_history AS h ON h.id = e.awaited_id AND h.final = 1
WHERE e.held_id IN (SELECT value FROM json_each(:ids)) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock_edge AS e
JOIN penstock_dead AS d ON d.id = e.awaited_id
WHERE e.held_id IN (SELECT value FROM json_each(:ids)) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'completed' FROM penstock_edge AS e
WHERE e.held_id IN (SELECT value FROM json_each(:ids)) AND e.state IS NULL
  AND NOT EXISTS (SELECT 1 FROM penstock_message AS m WHERE m.id = e.awaited_id);
-- name: edges_ended_by
SELECT e.held_id, e.awaited_id, h.state FROM penstock_edge AS e
JOIN penstock_history AS h ON h.id = e.awaited_id AND h.final = 1
WHERE e.awaited_id IN (SELECT value FROM json_each(:awaited)) AND e.held_id IN (SELECT value FROM json_each(:ids)) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock_edge AS e
JOIN penstock_dead AS d ON d.id = e.awaited_id
WHERE e.awaited_id IN (SELECT value FROM json_each(:awaited)) AND e.held_id IN (SELECT value FROM json_each(:ids)) AND e.state IS NULL;
-- name: edges_settle
UPDATE penstock_edge SET state = :state
WHERE held_id IN (SELECT value FROM json_each(:ids)) AND awaited_id IN (SELECT value FROM json_each(:awaited)) AND state IS NULL;
-- name: edges_open
-- Searched from the end: messages of one publish end in about the order of their ids.
SELECT h.held_id, h.number FROM penstock_hold AS h
WHERE h.held_id IN (SELECT value FROM json_each(:ids)) AND h.kind = 'after' AND (
    SELECT e.awaited_id FROM penstock_edge AS e
    WHERE e.held_id = h.held_id AND e.number = h.number AND e.state IS NULL
    ORDER BY e.awaited_id DESC LIMIT 1) IS NOT NULL;
-- name: edge_counts
SELECT held_id, number, state, count(*) FROM penstock_edge
WHERE held_id IN (SELECT value FROM json_each(:ids)) GROUP BY held_id, number, state;
-- name: drop_holds
DELETE FROM penstock_hold WHERE held_id IN (SELECT value FROM json_each(:ids));
-- name: drop_nudges
DELETE FROM penstock_nudge WHERE id IN (SELECT value FROM json_each(:ids));
-- name: resume_held
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags & ~{HELD}
FROM penstock_scheduled WHERE id IN (SELECT value FROM json_each(:ids));
-- name: leave_held
DELETE FROM penstock_scheduled WHERE id IN (SELECT value FROM json_each(:ids));
-- name: heads_among
SELECT id FROM penstock_head WHERE id IN (SELECT value FROM json_each(:ids));
-- name: lease_shared
SELECT flags FROM penstock_lease WHERE id = :id AND fence = :fence;
-- name: child_records
SELECT name, key, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id IN (SELECT value FROM json_each(:ids)) AND kind IN ('gather', 'enqueue')
ORDER BY message_id, position;
-- name: step_save
INSERT INTO penstock_step (message_id, name, key, kind, position, done, due_at, at, fence, body)
VALUES (:id, :name, :key, :kind, :position, :done, :due_at, :at, :fence, :body)
ON CONFLICT (message_id, name, key) DO UPDATE SET kind = excluded.kind, done = excluded.done,
    due_at = excluded.due_at, at = excluded.at, fence = excluded.fence, body = excluded.body;
-- name: last_redrive
SELECT position, at FROM penstock_history
WHERE id = :id AND final = 0 AND verb = 'redrive' ORDER BY position DESC LIMIT 1;
-- name: wait_counts
SELECT (SELECT count(*) FROM penstock_history
        WHERE id = :id AND final = 0 AND verb = 'wait' AND position > :position),
       (SELECT count(*) FROM penstock_step WHERE message_id = :id AND at >= :at),
       (SELECT count(*) FROM penstock_step WHERE message_id = :id AND fence = :fence);
-- name: recent_waits
SELECT at, claimed_at, due_at FROM penstock_history
WHERE id = :id AND final = 0 AND verb = 'wait' ORDER BY position DESC LIMIT :limit;
-- name: signal_add
INSERT INTO penstock_signal (message_id, name, key, at, consumed, body)
VALUES (:id, :name, :key, :at, 0, :body)
RETURNING id;
-- name: prune_step
DELETE FROM penstock_step WHERE message_id IN (SELECT value FROM json_each(:ids));
-- name: prune_signal
DELETE FROM penstock_signal WHERE message_id IN (SELECT value FROM json_each(:ids));
-- name: prune_edge
DELETE FROM penstock_edge WHERE held_id IN (SELECT value FROM json_each(:ids));
-- name: prune_hold
DELETE FROM penstock_hold WHERE held_id IN (SELECT value FROM json_each(:ids));
