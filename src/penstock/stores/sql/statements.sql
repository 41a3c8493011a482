-- Statements that are the same in at least two engines. An engine's own file replaces one of the
-- same name. PostgreSQL has the tables in a schema: there, penstock_x is read as penstock.x.
-- A ticket is (queue_id, rank, id, type, attempts, deliveries, expires_at, flags).

-- name: next_number
UPDATE penstock_counter SET value = value + 1 WHERE name = :name RETURNING value;
-- name: number
SELECT value FROM penstock_counter WHERE name = :name;
-- name: publish_checked
INSERT INTO penstock_message
    (queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES (:queue_id, :type, :priority, :rank, :created_at, :run_at, :expires_at, :body, :meta)
RETURNING id;
-- name: dedup_seen
SELECT id, digest FROM penstock_dedup
WHERE queue_id = :queue_id AND key = :key AND expires_at > :now;
-- name: dedup_remember
INSERT INTO penstock_dedup (queue_id, key, id, digest, expires_at)
VALUES (:queue_id, :key, :id, :digest, :expires_at)
ON CONFLICT (queue_id, key) DO UPDATE
SET id = excluded.id, digest = excluded.digest, expires_at = excluded.expires_at;
-- name: name_taken
SELECT id FROM penstock_name WHERE queue_id = :queue_id AND name = :name;
-- name: name_take
INSERT INTO penstock_name (queue_id, name, id) VALUES (:queue_id, :name, :id);
-- name: put_ready
INSERT INTO penstock_ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
VALUES (:queue_id, :rank, :id, :type, :attempts, :deliveries, :expires_at, :flags);
-- name: put_scheduled
INSERT INTO penstock_scheduled
    (queue_id, rank, id, type, attempts, deliveries, expires_at, flags, due_at, key, position)
VALUES (:queue_id, :rank, :id, :type, :attempts, :deliveries, :expires_at, :flags, :due_at, :key,
        :position);
-- name: put_dead
INSERT INTO penstock_dead
    (queue_id, rank, id, type, attempts, deliveries, flags, dead_at, reason, error)
VALUES (:queue_id, :rank, :id, :type, :attempts, :deliveries, :flags, :dead_at, :reason, :error);
-- name: head
SELECT id FROM penstock_head WHERE queue_id = :queue_id AND key = :key;
-- name: is_head
SELECT 1 FROM penstock_head WHERE id = :id;
-- name: take_head
INSERT INTO penstock_head (queue_id, key, id) VALUES (:queue_id, :key, :id);
-- name: head_of
SELECT queue_id, key FROM penstock_head WHERE id = :id;
-- name: free_head
DELETE FROM penstock_head WHERE id = :id;
-- name: get_in_line
UPDATE penstock_scheduled SET due_at = 9007199254740991, position = coalesce(position, id)
WHERE id = :id;
-- name: peek_type
SELECT 1 FROM penstock_ready WHERE queue_id = :queue_id AND type = :type LIMIT 1;
-- name: take_ready
DELETE FROM penstock_ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: lease_expired
SELECT id, fence FROM penstock_lease WHERE lease_until < :now ORDER BY lease_until LIMIT :limit;
-- name: take_scheduled
DELETE FROM penstock_scheduled WHERE id = :id
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: next_rank
SELECT rank FROM penstock_ready WHERE queue_id = :queue_id AND rank > :rank ORDER BY rank LIMIT 1;
-- name: dead_counts
SELECT queue_id, count(*) FROM penstock_dead GROUP BY queue_id;
-- name: end_tick
UPDATE penstock_agent SET result = :result WHERE name = :name AND by = :by;
-- name: agent_runs
SELECT name, at, by, result FROM penstock_agent ORDER BY name;
-- name: drop_dedup
DELETE FROM penstock_dedup WHERE queue_id = :queue_id AND key = :key AND expires_at <= :now;
-- name: drop_result
DELETE FROM penstock_result WHERE id = :id;
-- name: held_by_cursors
-- The cursor of an agent holds retention for a shorter time than that of an export.
SELECT min(message), min(history) FROM penstock_cursor
WHERE advanced_at > CASE WHEN name LIKE 'agent:%' THEN :agents_since ELSE :since END;
-- name: schedule_save
INSERT INTO penstock_schedule (queue_id, name, paused, next_at, plan)
VALUES (:queue_id, :name, :paused, :next_at, :plan)
ON CONFLICT (queue_id, name) DO UPDATE
SET paused = excluded.paused, next_at = excluded.next_at, plan = excluded.plan
RETURNING id, queue_id, paused, next_at, last_at, plan;
-- name: schedules
SELECT id, queue_id, paused, next_at, last_at, plan FROM penstock_schedule ORDER BY id;
-- name: schedule_delete
DELETE FROM penstock_schedule WHERE id = :id;
-- name: scope_create
INSERT INTO penstock_scope (tenant, name) VALUES (:tenant, :name)
ON CONFLICT DO NOTHING RETURNING id;
-- name: scope
SELECT id, tenant, name, paused FROM penstock_scope WHERE tenant = :tenant AND name = :name;
-- name: scope_pause
UPDATE penstock_scope SET paused = :paused WHERE id = :id;
-- name: queue_create
INSERT INTO penstock_queue (scope_id, name, settings) VALUES (:scope_id, :name, :settings)
ON CONFLICT DO NOTHING RETURNING id;
-- name: queue_holds
SELECT EXISTS (SELECT 1 FROM penstock_ready WHERE queue_id = :id)
    OR EXISTS (SELECT 1 FROM penstock_scheduled WHERE queue_id = :id)
    OR EXISTS (SELECT 1 FROM penstock_dead WHERE queue_id = :id)
    OR EXISTS (SELECT 1 FROM penstock_lease WHERE queue_id = :id);
-- name: queue_unschedule
DELETE FROM penstock_schedule WHERE queue_id = :id;
-- name: message
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at, rank
FROM penstock_message WHERE id = :id;
-- name: where_scheduled
SELECT attempts, deliveries, due_at FROM penstock_scheduled WHERE id = :id;
-- name: where_dead
SELECT attempts, deliveries, reason, error FROM penstock_dead WHERE id = :id;
-- name: ended
SELECT state FROM penstock_history WHERE id = :id AND final = 1;
-- name: result
SELECT body FROM penstock_result WHERE id = :id AND expires_at > :now;
-- name: scan_ready
DELETE FROM penstock_ready WHERE queue_id = :queue_id AND id = :id
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: take_dead
DELETE FROM penstock_dead WHERE id = :id
RETURNING queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags;
-- name: rank_of
SELECT rank FROM penstock_message WHERE id = :id;
-- name: is_awaited
SELECT 1 FROM penstock_edge AS e WHERE e.awaited_id = :id AND e.state IS NULL
  AND EXISTS (SELECT 1 FROM penstock_hold AS h WHERE h.held_id = e.held_id) LIMIT 1;
-- name: pass_head
UPDATE penstock_head SET id = :new WHERE id = :id;
-- name: pass_name
UPDATE penstock_name SET id = :new WHERE queue_id = :queue_id AND name = :name;
-- name: rerank_scheduled
UPDATE penstock_scheduled SET rank = :rank WHERE id = :id AND rank != :rank;
-- name: highest
SELECT (SELECT coalesce(max(id), 0) FROM penstock_message),
       (SELECT coalesce(max(position), 0) FROM penstock_history);
-- name: front_of_line
SELECT id FROM penstock_ready WHERE queue_id = :queue_id ORDER BY rank, id LIMIT :limit;
-- name: claimed_count
SELECT count(*) FROM penstock_lease WHERE queue_id = :queue_id;
-- name: held
SELECT id, fence, queue_id, consumer, attempts, claimed_at, lease_until
FROM penstock_lease WHERE fence > :after ORDER BY fence, id LIMIT :limit;
-- name: first_ready
SELECT q.id, (
    SELECT r.id FROM penstock_ready AS r WHERE r.queue_id = q.id ORDER BY r.rank, r.id LIMIT 1)
FROM penstock_queue AS q WHERE q.state <> 'deleted';
-- name: queues_with_keys
-- With a limit, PostgreSQL looks at one key of each queue instead of at all of them.
SELECT q.id FROM penstock_queue AS q
WHERE q.state <> 'deleted'
  AND (SELECT h.queue_id FROM penstock_head AS h WHERE h.queue_id = q.id LIMIT 1) = q.id;
-- name: cursor_save
INSERT INTO penstock_cursor (name, epoch, message, history, advanced_at)
VALUES (:name, :epoch, :message, :history, :now)
ON CONFLICT (name) DO UPDATE
SET epoch = excluded.epoch, message = excluded.message, history = excluded.history,
    advanced_at = excluded.advanced_at;
-- name: cursors
SELECT name, epoch, message, history, advanced_at FROM penstock_cursor
WHERE name NOT LIKE 'agent:%' ORDER BY name;
-- name: worker_save
INSERT INTO penstock_worker (id, host, pid, profile, started_at, seen_at)
VALUES (:id, :host, :pid, :profile, :now, :now)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, profile = excluded.profile;
-- name: worker_delete
DELETE FROM penstock_worker WHERE id = :id;
-- name: workers
SELECT id, host, pid, profile, started_at, seen_at, stopping FROM penstock_worker
ORDER BY started_at, id;
-- name: worker_stop
UPDATE penstock_worker SET stopping = 1 WHERE id = :id;
-- name: fact
SELECT value FROM penstock_fact WHERE name = :name;
-- name: fact_set
INSERT INTO penstock_fact (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- name: document_save
INSERT INTO penstock_document (kind, name, body, version, expires_at)
VALUES (:kind, :name, :body, :version, :expires_at)
ON CONFLICT (kind, name) DO UPDATE
SET body = excluded.body, version = excluded.version, expires_at = excluded.expires_at;
-- name: document
SELECT kind, name, body, version, expires_at FROM penstock_document
WHERE kind = :kind AND name = :name AND expires_at > :now;
-- name: documents
SELECT kind, name, body, version, expires_at FROM penstock_document
WHERE kind = :kind AND name > :after AND expires_at > :now ORDER BY name LIMIT :limit;
-- name: document_delete
DELETE FROM penstock_document WHERE kind = :kind AND name = :name;
-- name: old_documents
SELECT kind, name FROM penstock_document
WHERE expires_at <= :now AND expires_at < 9007199254740991 LIMIT :limit;
-- name: drop_document
DELETE FROM penstock_document WHERE kind = :kind AND name = :name AND expires_at <= :now;
-- name: act_save
INSERT INTO penstock_act (at, tenant, subject, verb, target, scope, request_id, detail)
VALUES (:at, :tenant, :subject, :verb, :target, :scope, :request_id, :detail);
-- name: acts
SELECT id, at, tenant, subject, verb, target, scope, request_id, detail FROM penstock_act
WHERE (:tenant IS NULL OR tenant = :tenant) AND id < :before ORDER BY id DESC LIMIT :limit;
-- name: acts_after
SELECT id, at, tenant, subject, verb, target, scope, request_id, detail FROM penstock_act
WHERE id > :after ORDER BY id LIMIT :limit;
-- name: old_acts
-- Keeps one year.
SELECT id FROM penstock_act WHERE at < :now - 31536000000000 LIMIT :limit;
-- name: copy_sizes
SELECT id, length(body) FROM penstock_message WHERE id > :after ORDER BY id LIMIT :limit;
-- name: copy_messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at, rank
FROM penstock_message WHERE id BETWEEN :first AND :last ORDER BY id;
-- name: copy_heads
SELECT id FROM penstock_head WHERE id BETWEEN :first AND :last;
-- name: copy_ready_scan
SELECT id, rank, attempts, deliveries, flags FROM penstock_ready WHERE id BETWEEN :first AND :last;
-- name: copy_scheduled
SELECT id, rank, attempts, deliveries, flags, due_at, position FROM penstock_scheduled
WHERE id BETWEEN :first AND :last;
-- name: copy_lease
SELECT id, rank, attempts, deliveries, flags, dead_at, dead_reason, dead_error FROM penstock_lease
WHERE id BETWEEN :first AND :last;
-- name: copy_dead
SELECT id, rank, attempts, deliveries, flags, dead_at, reason, error FROM penstock_dead
WHERE id BETWEEN :first AND :last;
-- name: copy_results
SELECT id, expires_at, body FROM penstock_result WHERE id BETWEEN :first AND :last;
-- name: copy_wait_sizes
-- The bytes of steps and signals; an edge and a hold count as 50. No row: the page has no waits.
SELECT message_id, sum(length(body)) FROM penstock_step
WHERE message_id BETWEEN :first AND :last GROUP BY message_id
UNION ALL
SELECT message_id, sum(length(body)) FROM penstock_signal
WHERE message_id BETWEEN :first AND :last GROUP BY message_id
UNION ALL
SELECT held_id, count(*) * 50 FROM penstock_edge
WHERE held_id BETWEEN :first AND :last GROUP BY held_id
UNION ALL
SELECT held_id, count(*) * 50 FROM penstock_hold
WHERE held_id BETWEEN :first AND :last GROUP BY held_id;
-- name: copy_holds
SELECT held_id, place, number, due_at, kind, name, policy, need, on_dead FROM penstock_hold
WHERE held_id BETWEEN :first AND :last ORDER BY held_id, place;
-- name: copy_edges
SELECT held_id, awaited_id, number, state FROM penstock_edge
WHERE held_id BETWEEN :first AND :last ORDER BY held_id, number, awaited_id;
-- name: copy_steps
SELECT message_id, name, key, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id BETWEEN :first AND :last ORDER BY message_id, position;
-- name: copy_signals
SELECT id, message_id, name, key, at, consumed, body FROM penstock_signal
WHERE message_id BETWEEN :first AND :last ORDER BY message_id, id;
-- name: copy_awaited_results
SELECT r.id, r.expires_at, r.body FROM penstock_result AS r WHERE r.id IN (
    SELECT e.awaited_id FROM penstock_edge AS e
    WHERE e.held_id BETWEEN :first AND :last AND NOT EXISTS (
        SELECT 1 FROM penstock_message AS m WHERE m.id = e.awaited_id));
-- name: copy_stored
SELECT id FROM penstock_message WHERE id BETWEEN :first AND :last;
-- name: hold_add
INSERT INTO penstock_hold (held_id, place, number, due_at, kind, name, policy, need, on_dead)
VALUES (:held_id, :place, :number, :due_at, :kind, :name, :policy, :need, :on_dead);
-- name: edge_add
INSERT INTO penstock_edge (held_id, number, awaited_id) VALUES (:held_id, :number, :awaited_id);
-- name: holds_after
SELECT DISTINCT held_id FROM penstock_hold WHERE held_id > :after AND kind = 'after'
ORDER BY held_id LIMIT :limit;
-- name: nudge_add
INSERT INTO penstock_nudge (held_id) VALUES (:held_id);
-- name: nudge_awaiting
INSERT INTO penstock_nudge (held_id, awaited_id)
SELECT held_id, awaited_id FROM penstock_edge WHERE awaited_id = :id AND state IS NULL;
-- name: drop_holds_of
DELETE FROM penstock_hold WHERE held_id = :id;
-- name: drop_nudges_of
DELETE FROM penstock_nudge WHERE held_id = :id;
-- name: nudged
SELECT held_id FROM penstock_nudge ORDER BY id LIMIT :limit;
-- name: holds_due
SELECT held_id FROM penstock_hold WHERE due_at <= :now AND due_at < 9007199254740991
ORDER BY due_at LIMIT :limit;
-- name: next_hold_due
SELECT due_at FROM penstock_hold WHERE due_at < 9007199254740991 ORDER BY due_at LIMIT 1;
-- name: take_held
DELETE FROM penstock_scheduled WHERE id = :id AND flags & {HELD} <> 0
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: edges_of
SELECT held_id, awaited_id, number, state FROM penstock_edge WHERE held_id = :id
ORDER BY number, awaited_id;
-- name: awaited_results
SELECT r.id, r.body FROM penstock_edge AS e JOIN penstock_result AS r ON r.id = e.awaited_id
WHERE e.held_id = :id;
-- name: torn_waits
-- Held messages without a hold, holds without a held message, and holds that are over, or have an
-- end that is not noted yet, and that no nudge announces.
SELECT (SELECT count(*) FROM penstock_scheduled AS s WHERE s.flags & {HELD} <> 0 AND NOT EXISTS (
            SELECT 1 FROM penstock_hold AS h WHERE h.held_id = s.id)),
       (SELECT count(*) FROM penstock_hold AS h WHERE NOT EXISTS (
            SELECT 1 FROM penstock_scheduled AS s WHERE s.id = h.held_id)),
       (SELECT count(*) FROM penstock_hold AS h
        WHERE h.kind = 'after' AND h.policy <> 'decision'
          AND NOT EXISTS (SELECT 1 FROM penstock_nudge AS n WHERE n.held_id = h.held_id)
          AND (h.policy <> 'any' AND NOT EXISTS (
                SELECT 1 FROM penstock_edge AS e
                WHERE e.held_id = h.held_id AND e.number = h.number AND e.state IS NULL)
            OR h.policy = 'all' AND EXISTS (
                SELECT 1 FROM penstock_edge AS e
                WHERE e.held_id = h.held_id AND e.number = h.number AND e.state <> 'completed')
            OR h.policy = 'any' AND h.need <= (
                SELECT count(*) FROM penstock_edge AS e
                WHERE e.held_id = h.held_id AND e.number = h.number AND e.state = 'completed')
            OR EXISTS (
                SELECT 1 FROM penstock_edge AS e
                WHERE e.held_id = h.held_id AND e.number = h.number AND e.state IS NULL AND (
                    EXISTS (SELECT 1 FROM penstock_history AS r
                            WHERE r.id = e.awaited_id AND r.final)
                    OR NOT EXISTS (SELECT 1 FROM penstock_message AS m WHERE m.id = e.awaited_id)
                    OR h.on_dead = 'settle' AND EXISTS (
                        SELECT 1 FROM penstock_dead AS d WHERE d.id = e.awaited_id))))),
       (SELECT count(*) FROM penstock_hold);
-- name: drop_hold
DELETE FROM penstock_hold WHERE held_id = :held_id AND place = :place;
-- name: reschedule_held
UPDATE penstock_scheduled SET due_at = :due_at WHERE id = :id AND flags & {HELD} <> 0;
-- name: flag_steps
UPDATE penstock_lease SET flags = flags | {STEPS} WHERE id = :id AND fence = :fence;
-- name: step
SELECT name, key, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id = :id AND name = :name AND key = :key;
-- name: steps
SELECT name, key, kind, position, body, done, due_at, at, fence FROM penstock_step
WHERE message_id = :id ORDER BY position;
-- name: step_delete
DELETE FROM penstock_step WHERE message_id = :id AND name = :name AND key = :key;
-- name: signal_of_key
SELECT id, body FROM penstock_signal WHERE message_id = :id AND name = :name AND key = :key;
-- name: signal_count
SELECT count(*) FROM penstock_signal WHERE message_id = :id AND consumed = 0;
-- name: signals
SELECT id, message_id, name, key, at, consumed, body FROM penstock_signal
WHERE message_id = :id ORDER BY id;
-- name: signal_consume
UPDATE penstock_signal SET consumed = 1 WHERE id = :signal_id AND message_id = :id;
