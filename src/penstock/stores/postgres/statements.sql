-- One statement per name; names are verbs and the same in every engine's file. Statements that
-- engines share are in stores/sql/statements.sql.
-- A ticket is (queue_id, rank, id, type, attempts, deliveries, expires_at, flags).
-- No statement waits for a row locked by another transaction; it is skipped.
-- LATERAL, scalar subqueries and BETWEEN n AND n replace plain joins: those are planned by the
-- table size at plan time, and a table that was empty then would be scanned ever after.

-- name: moment
SELECT penstock.moment();
-- name: here
SELECT penstock.moment(), (SELECT value FROM penstock.fact WHERE name = 'secret');
-- name: lock
SELECT pg_advisory_xact_lock(hashtextextended(what, 0))
FROM unnest(:all::text[]) WITH ORDINALITY AS asked (what, place) ORDER BY place;
-- name: try_lock
SELECT pg_try_advisory_xact_lock(hashtextextended(what, 0))
FROM unnest(:all::text[]) WITH ORDINALITY AS asked (what, place) ORDER BY place;
-- name: notify
SELECT pg_notify(:channel, :queues);

-- name: publish_one
WITH written AS (
    INSERT INTO penstock.message (queue_id, type, priority, rank, created_at, body, meta)
    VALUES (:queue_id, :type, :priority, nullif(:rank::bigint, -:priority::int),
            penstock.moment(), :body, :meta)
    RETURNING id)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT :queue_id, :rank, id, :type, 0, 0, 9007199254740991, 0 FROM written
RETURNING id;
-- name: publish_uniform
WITH written AS (
    INSERT INTO penstock.message (tx, queue_id, type, priority, rank, created_at, body, meta)
    SELECT (SELECT txid_current()), :queue_id, :type, :priority,
           nullif(:rank::bigint, -:priority::int), penstock.moment(), body, :meta
    FROM unnest(:bodies::bytea[]) AS body
    RETURNING id)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT :queue_id, :rank, id, :type, 0, 0, 9007199254740991, 0 FROM written
RETURNING id;
-- name: publish_awaited
-- As publish_uniform, of messages that others wait for.
WITH written AS (
    INSERT INTO penstock.message (tx, queue_id, type, priority, rank, created_at, body, meta)
    SELECT (SELECT txid_current()), :queue_id, :type, :priority,
           nullif(:rank::bigint, -:priority::int), penstock.moment(), body, :meta
    FROM unnest(:bodies::bytea[]) AS body
    RETURNING id)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT :queue_id, :rank, id, :type, 0, 0, 9007199254740991, {AWAITED} FROM written
RETURNING id;
-- name: publish_various
WITH asked AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, given.*
    FROM unnest(:queue_ids::int[], :types::text[], :priorities::int[], :ranks::bigint[],
                :bodies::bytea[], :metas::json[])
        AS given (queue_id, type, priority, rank, body, meta)),
written AS (
    INSERT INTO penstock.message (id, tx, queue_id, type, priority, rank, created_at, body, meta)
    SELECT id, (SELECT txid_current()), queue_id, type, priority, nullif(rank, -priority),
           penstock.moment(), body, meta
    FROM asked)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0, 9007199254740991, 0 FROM asked
RETURNING id;
-- name: publish_mixed
WITH asked AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, given.*,
           coalesce(run_at, penstock.moment() + delay) AS due
    FROM unnest(:queue_ids::int[], :types::text[], :priorities::int[], :ranks::bigint[],
                :bases::text[], :delays::bigint[], :run_ats::bigint[], :ttls::bigint[],
                :expires_ats::bigint[], :bodies::bytea[], :metas::json[])
        AS given (queue_id, type, priority, base, basis, delay, run_at, ttl, expires, body, meta)),
known AS MATERIALIZED (
    SELECT *, base + CASE basis WHEN 'created' THEN penstock.moment() / 1000
                                WHEN 'due' THEN greatest(due, penstock.moment()) / 1000
                                ELSE 0 END AS rank,
           least(expires, penstock.moment() + ttl) AS expires_at
    FROM asked),
written AS (
    INSERT INTO penstock.message
        (id, queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
    SELECT id, queue_id, type, priority, nullif(rank, -priority), penstock.moment(),
           CASE WHEN due > penstock.moment() THEN due END, expires_at, body, meta
    FROM known),
waiting AS (
    INSERT INTO penstock.scheduled
        (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags)
    SELECT due, id, queue_id, rank, type, 0, 0, coalesce(expires_at, 9007199254740991), 0
    FROM known WHERE due > penstock.moment()),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, 0, 0, coalesce(expires_at, 9007199254740991), 0
    FROM known WHERE due <= penstock.moment())
SELECT id FROM known;
-- name: publish_keyed
-- An earlier statement locked the keys, so this one sees every head.
WITH asked AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, given.*,
           coalesce(run_at, penstock.moment() + delay) AS due
    FROM unnest(:queue_ids::int[], :types::text[], :priorities::int[], :ranks::bigint[],
                :bases::text[], :delays::bigint[], :run_ats::bigint[], :ttls::bigint[],
                :expires_ats::bigint[], :bodies::bytea[], :metas::json[], :flags::int[],
                :keys::text[])
        AS given (queue_id, type, priority, base, basis, delay, run_at, ttl, expires, body, meta,
                  flags, key)),
known AS MATERIALIZED (
    SELECT *, base + CASE basis WHEN 'created' THEN penstock.moment() / 1000
                                WHEN 'due' THEN greatest(due, penstock.moment()) / 1000
                                ELSE 0 END AS rank,
           least(expires, penstock.moment() + ttl) AS expires_at,
           due > penstock.moment() AS delayed, flags & {HELD} <> 0 AS held,
           flags & {HELD} = 0 AND (key IS NULL OR (
               row_number() OVER (PARTITION BY queue_id, key, due > penstock.moment(),
                                               flags & {HELD} ORDER BY id) = 1
               AND (SELECT h.id FROM penstock.head AS h
                    WHERE h.queue_id = asked.queue_id AND h.key = asked.key) IS NULL)) AS first
    FROM asked),
written AS (
    INSERT INTO penstock.message
        (id, queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
    SELECT id, queue_id, type, priority, nullif(rank, -priority), penstock.moment(),
           CASE WHEN delayed THEN due END, expires_at, body, meta
    FROM known),
took AS (
    INSERT INTO penstock.head (queue_id, key, id)
    SELECT queue_id, key, id FROM known WHERE first AND NOT delayed AND key IS NOT NULL),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, 0, 0, coalesce(expires_at, 9007199254740991), flags
    FROM known WHERE first AND NOT delayed),
waiting AS (
    INSERT INTO penstock.scheduled
        (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags, key, position)
    SELECT CASE WHEN delayed THEN due ELSE 9007199254740991 END, id, queue_id, rank, type, 0, 0,
           coalesce(expires_at, 9007199254740991), flags, CASE WHEN NOT held THEN key END,
           CASE WHEN NOT delayed AND NOT held THEN id END
    FROM known WHERE delayed OR NOT first)
SELECT id, CASE WHEN first AND NOT delayed THEN queue_id END FROM known;
-- name: publish_keyed_now
-- As publish_keyed, of entries that are due now, never expire and are not held. `first` says that no
-- earlier entry of the batch has the same key.
WITH asked AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, given.*,
           key IS NULL OR (first AND (
               SELECT h.id FROM penstock.head AS h
               WHERE h.queue_id = given.queue_id AND h.key = given.key) IS NULL) AS leads
    FROM unnest(:queue_ids::int[], :types::text[], :priorities::int[], :ranks::bigint[],
                :bodies::bytea[], :metas::json[], :flags::int[], :keys::text[], :firsts::bool[])
        AS given (queue_id, type, priority, rank, body, meta, flags, key, first)),
written AS (
    INSERT INTO penstock.message (id, tx, queue_id, type, priority, rank, created_at, body, meta)
    SELECT id, (SELECT txid_current()), queue_id, type, priority, nullif(rank, -priority),
           penstock.moment(), body, meta
    FROM asked),
took AS (
    INSERT INTO penstock.head (queue_id, key, id)
    SELECT queue_id, key, id FROM asked WHERE leads AND key IS NOT NULL),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, 0, 0, 9007199254740991, flags FROM asked WHERE leads),
waiting AS (
    INSERT INTO penstock.scheduled
        (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags, key, position)
    SELECT 9007199254740991, id, queue_id, rank, type, 0, 0, 9007199254740991, flags, key, id
    FROM asked WHERE NOT leads)
SELECT id, CASE WHEN leads THEN queue_id END FROM asked;
-- name: publish_fanout
-- Parents that were made from another version of their document write nothing.
WITH asked AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, given.*
    FROM unnest(:places::int[], :queue_ids::int[], :types::text[], :priorities::int[],
                :ranks::bigint[], :bodies::bytea[], :metas::json[], :reasons::text[],
                :kinds::text[], :names::text[], :versions::bigint[])
        AS given (place, queue_id, type, priority, rank, body, meta, reason, kind, name, version)
    WHERE version = coalesce((
        SELECT stored.version FROM penstock.document AS stored
        WHERE stored.kind = given.kind AND stored.name = given.name
          AND stored.expires_at > penstock.moment()), 0)),
copy AS MATERIALIZED (
    SELECT nextval('penstock.message_id') AS id, asked.id AS parent_id, asked.type, asked.body,
           given.*
    FROM asked JOIN unnest(:copy_places::int[], :copy_queue_ids::int[], :copy_priorities::int[],
                           :copy_ranks::bigint[], :copy_metas::text[])
        AS given (place, queue_id, priority, rank, meta) ON given.place = asked.place),
written AS (
    INSERT INTO penstock.message (id, tx, queue_id, type, priority, rank, created_at, body, meta)
    SELECT id, (SELECT txid_current()), queue_id, type, priority, nullif(rank, -priority),
           penstock.moment(), body, meta
    FROM asked
    UNION ALL
    SELECT id, (SELECT txid_current()), queue_id, type, priority, nullif(rank, -priority),
           penstock.moment(), body,
           replace(meta, :parent_text, '"parent_id":' || parent_id)::json
    FROM copy),
ended AS (
    INSERT INTO penstock.history (id, queue_id, verb, state, reason, attempts, deliveries, at, final)
    SELECT id, queue_id, 'publish', 'completed', reason, 0, 0, penstock.moment(), true FROM asked),
placed AS (
    INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, 0, 0, 9007199254740991, 0 FROM copy)
SELECT place, id FROM asked;
-- name: publish_checked
INSERT INTO penstock.message
    (queue_id, type, priority, rank, created_at, run_at, expires_at, body, meta)
VALUES (:queue_id, :type, :priority, nullif(:rank::bigint, -:priority::int), :created_at, :run_at,
        :expires_at, :body, :meta)
RETURNING id;
-- name: dedups_seen
SELECT d.queue_id, d.key
FROM unnest(:queue_ids::int[], :keys::text[]) AS asked (queue_id, key)
CROSS JOIN LATERAL (
    SELECT queue_id, key FROM penstock.dedup
    WHERE queue_id = asked.queue_id AND key = asked.key AND expires_at > :now OFFSET 0) AS d;
-- name: dedups_remember
INSERT INTO penstock.dedup (queue_id, key, id, digest, expires_at)
SELECT * FROM unnest(:queue_ids::int[], :keys::text[], :ids::bigint[], :digests::bytea[],
                     :expires_ats::bigint[])
ON CONFLICT (queue_id, key) DO UPDATE
SET id = excluded.id, digest = excluded.digest, expires_at = excluded.expires_at;
-- name: unique_free
DELETE FROM penstock.dedup
WHERE id = :id AND expires_at = 9007199254740991 AND starts_with(key, 'unique:');
-- name: depth
SELECT (SELECT count(*) FROM (
            SELECT 1 FROM penstock.ready WHERE queue_id = :queue_id LIMIT :most) AS r)
     + (SELECT count(*) FROM (
            SELECT 1 FROM penstock.scheduled WHERE queue_id = :queue_id LIMIT :most) AS s);

-- name: put_history
INSERT INTO penstock.history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence, claimed_at,
     at, due_at, final, traceback)
VALUES (:id, :queue_id, :verb::text::penstock.verb, :state::text::penstock.state, :reason, :error, :attempts, :deliveries, :consumer, :fence,
        :claimed_at, :at, :due_at, :final, :traceback);

-- name: first_in_line
SELECT id FROM penstock.scheduled
WHERE queue_id = :queue_id AND key = :key AND due_at = 9007199254740991
ORDER BY position LIMIT 1;
-- name: end_of_line
SELECT nextval('penstock.message_id');

-- name: any_ready
SELECT 1 FROM penstock.ready WHERE queue_id = ANY (:queues::int[]) LIMIT 1;
-- name: peek_type
SELECT 1 FROM penstock.ready
WHERE queue_id = :queue_id AND type = :type::text AND type >= '' LIMIT 1;
-- name: pick_one
SELECT ctid FROM penstock.ready
WHERE queue_id = (:queues::int[])[1] AND expires_at > penstock.moment()
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: pick_after
SELECT ctid FROM penstock.ready
WHERE queue_id = (:queues::int[])[1] AND (rank, id) > (:rank, :id)
  AND expires_at > penstock.moment()
ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: pick_line
SELECT first.ctid FROM unnest(:queues::int[]) AS asked (queue_id)
CROSS JOIN LATERAL (
    SELECT r.ctid, r.rank, r.id FROM penstock.ready AS r
    WHERE r.queue_id = asked.queue_id AND r.expires_at > penstock.moment()
    ORDER BY r.rank, r.id LIMIT :limit FOR UPDATE SKIP LOCKED) AS first
ORDER BY first.rank, first.id LIMIT :limit;
-- name: pick_types
SELECT first.ctid FROM unnest(:queues::int[]) AS asked (queue_id)
CROSS JOIN unnest(:types::text[]) AS wanted (type)
CROSS JOIN LATERAL (
    SELECT r.ctid, r.rank, r.id FROM penstock.ready AS r
    WHERE r.queue_id = asked.queue_id AND r.type = wanted.type AND r.type >= ''
      AND r.expires_at > penstock.moment()
    ORDER BY r.rank, r.id LIMIT :limit FOR UPDATE SKIP LOCKED) AS first
ORDER BY first.rank, first.id LIMIT :limit;
-- name: claim
-- The last row is all NULL if there are expired messages in line; another statement ends them.
-- The + 0 keeps the planner from searching the whole line for them.
WITH taken AS (
    DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(/*pick*/))
    RETURNING queue_id, rank, id, attempts, deliveries, flags),
numbered AS MATERIALIZED (
    SELECT nextval('penstock.fence') AS fence FROM taken LIMIT 1),
held AS (
    INSERT INTO penstock.lease
        (id, fence, queue_id, rank, attempts, deliveries, flags, consumer, claimed_at,
         lease_until, length)
    SELECT id, fence, queue_id, rank, attempts, deliveries + 1,
           CASE WHEN :begins::bool AND deliveries > 0 THEN flags | {UNBEGUN} ELSE flags END,
           :consumer, penstock.moment(), penstock.moment() + length, length / 1000
    FROM (SELECT taken.*, CASE WHEN flags & {OWN_LEASE} = 0 THEN :length::bigint ELSE (
              SELECT ((m.meta ->> 'lease')::float8 * 1000000)::bigint
              FROM penstock.message AS m WHERE m.id = taken.id) END AS length
          FROM taken) AS ticket
    CROSS JOIN numbered
    RETURNING id, rank, fence, attempts, deliveries, lease_until, flags)
SELECT m.id, m.queue_id, m.type, m.priority, m.created_at, m.body, m.meta,
       held.fence, held.attempts, held.deliveries, held.lease_until, held.flags, held.rank
FROM held CROSS JOIN LATERAL (
    SELECT * FROM penstock.message WHERE id = held.id OFFSET 0) AS m
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
WHERE EXISTS (
    SELECT 1 FROM penstock.ready
    WHERE queue_id + 0 = ANY (:queues::int[]) AND expires_at <= penstock.moment()
      AND expires_at < 9007199254740991)
ORDER BY rank, id;
-- name: claim_dead
WITH taken AS (
    DELETE FROM penstock.dead WHERE ctid = ANY (ARRAY(
        SELECT first.ctid FROM unnest(:queues::int[]) AS asked (queue_id)
        CROSS JOIN LATERAL (
            SELECT d.ctid, d.dead_at, d.id FROM penstock.dead AS d
            WHERE d.queue_id = asked.queue_id
              AND (:types::text[] = '{}' OR d.type = ANY (:types::text[]))
            ORDER BY d.dead_at, d.id LIMIT :limit FOR UPDATE SKIP LOCKED) AS first
        ORDER BY first.dead_at, first.id LIMIT :limit))
    RETURNING id, queue_id, rank, attempts, deliveries, flags, dead_at, reason, error),
numbered AS MATERIALIZED (
    SELECT nextval('penstock.fence') AS fence FROM taken LIMIT 1),
held AS (
    INSERT INTO penstock.lease
        (id, fence, queue_id, rank, attempts, deliveries, flags, consumer, claimed_at,
         lease_until, length, dead_at, dead_reason, dead_error)
    SELECT id, fence, queue_id, rank, attempts, deliveries, flags | {FROM_DEAD},
           :consumer, penstock.moment(), penstock.moment() + length,
           length / 1000, dead_at, reason, error
    FROM (SELECT taken.*, CASE WHEN flags & {OWN_LEASE} = 0 THEN :length::bigint ELSE (
              SELECT ((m.meta ->> 'lease')::float8 * 1000000)::bigint
              FROM penstock.message AS m WHERE m.id = taken.id) END AS length
          FROM taken) AS ticket
    CROSS JOIN numbered
    RETURNING id, dead_at, fence, attempts, deliveries, lease_until, flags)
SELECT m.id, m.queue_id, m.type, m.priority, m.created_at, m.body, m.meta,
       held.fence, held.attempts, held.deliveries, held.lease_until, held.flags, held.dead_at
FROM held CROSS JOIN LATERAL (
    SELECT * FROM penstock.message WHERE id = held.id OFFSET 0) AS m
ORDER BY held.dead_at, held.id;

-- name: complete
WITH ended AS (
    DELETE FROM penstock.lease AS l
    USING unnest(:ids::bigint[], :fences::bigint[]) AS asked (id, fence)
    WHERE l.id BETWEEN asked.id AND asked.id AND l.fence = asked.fence AND l.flags & {ENDING} = 0
    RETURNING l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.consumer, l.claimed_at)
INSERT INTO penstock.history
    (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
SELECT id, queue_id, 'complete', 'completed', attempts + 1, deliveries, consumer, fence,
       claimed_at, penstock.moment(), true
FROM ended RETURNING id, fence;
-- name: complete_with_results
-- Results come with the deleted rows: a join with the array would compare each with all. The
-- settings of a queue are parsed once, not for each row.
WITH ended AS (
    DELETE FROM penstock.lease AS l
    USING unnest(:ids::bigint[], :fences::bigint[], :results::bytea[])
        AS asked (id, fence, result)
    WHERE l.id BETWEEN asked.id AND asked.id AND l.fence = asked.fence AND l.flags & {ENDING} = 0
    RETURNING l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.consumer, l.claimed_at,
              asked.result),
queues AS MATERIALIZED (
    SELECT id, (1000000 * (settings ->> 'keep_results')::float8)::bigint AS keep
    FROM penstock.queue WHERE id = ANY (ARRAY(
        SELECT DISTINCT queue_id FROM ended WHERE result IS NOT NULL))),
kept AS (
    INSERT INTO penstock.result (id, expires_at, body)
    SELECT ended.id, penstock.moment() + q.keep, ended.result
    FROM ended JOIN queues AS q ON q.id = ended.queue_id WHERE ended.result IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body)
INSERT INTO penstock.history
    (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
SELECT id, queue_id, 'complete', 'completed', attempts + 1, deliveries, consumer, fence,
       claimed_at, penstock.moment(), true
FROM ended RETURNING id, fence;
-- name: complete_awaited
-- As complete_with_results, also of messages that others wait for: it settles their edges, and
-- nudges each waiting message once.
WITH ended AS (
    DELETE FROM penstock.lease AS l
    USING unnest(:ids::bigint[], :fences::bigint[], :results::bytea[])
        AS asked (id, fence, result)
    WHERE l.id BETWEEN asked.id AND asked.id AND l.fence = asked.fence
      AND l.flags & {ENDING} & ~{AWAITED} = 0
    RETURNING l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.consumer, l.claimed_at,
              l.flags & {AWAITED} <> 0 AS awaited,
              coalesce(asked.result, CASE WHEN l.flags & {AWAITED} <> 0 THEN 'null'::bytea END)
                  AS result),
settled AS (
    UPDATE penstock.edge SET state = 'completed' WHERE ctid = ANY (ARRAY(
        SELECT e.place FROM ended CROSS JOIN LATERAL (
            SELECT ctid AS place FROM penstock.edge
            WHERE awaited_id = ended.id AND state IS NULL FOR UPDATE SKIP LOCKED) AS e
        WHERE ended.awaited))
    RETURNING held_id),
nudged AS (
    INSERT INTO penstock.nudge (held_id, awaited_id)
    SELECT DISTINCT held_id, 0 FROM settled),
queues AS MATERIALIZED (
    SELECT id, (1000000 * (settings ->> 'keep_results')::float8)::bigint AS keep
    FROM penstock.queue WHERE id = ANY (ARRAY(
        SELECT DISTINCT queue_id FROM ended WHERE result IS NOT NULL))),
kept AS (
    INSERT INTO penstock.result (id, expires_at, body)
    SELECT ended.id, penstock.moment() + q.keep, ended.result
    FROM ended JOIN queues AS q ON q.id = ended.queue_id WHERE ended.result IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body),
told AS (
    INSERT INTO penstock.history
        (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
    SELECT id, queue_id, 'complete', 'completed', attempts + 1, deliveries, consumer, fence,
           claimed_at, penstock.moment(), true
    FROM ended)
SELECT id, fence, awaited FROM ended;
-- name: lock_lines
-- Leases with an ordering key or unique key to free. No line waits for the end of a dead letter: it
-- has moved on.
SELECT l.id, l.fence, h.key IS NULL OR pg_try_advisory_xact_lock(
    hashtextextended('penstock key ' || h.queue_id || ' ' || h.key, 0))
FROM unnest(:ids::bigint[], :fences::bigint[]) AS asked (id, fence)
CROSS JOIN LATERAL (
    SELECT id, fence FROM penstock.lease
    WHERE id = asked.id AND fence = asked.fence AND flags & {ENDING} <> 0 AND flags & {ENDING_ALONE} = 0
    OFFSET 0) AS l
LEFT JOIN LATERAL (
    SELECT queue_id, key FROM penstock.head WHERE id = l.id OFFSET 0) AS h ON true;
-- name: complete_keyed
-- An earlier statement locked the keys, so this one sees every line.
-- Skips a lease whose successor is locked: that transaction may still roll back.
WITH held AS MATERIALIZED (
    SELECT l.*, coalesce(
        asked.result, CASE WHEN l.flags & {AWAITED} <> 0 THEN 'null'::bytea END) AS result, (
        SELECT s.id FROM penstock.scheduled AS s
        WHERE s.queue_id = h.queue_id AND s.key = h.key AND s.due_at = 9007199254740991
        ORDER BY s.position LIMIT 1) AS next
    FROM unnest(:ids::bigint[], :fences::bigint[], :results::bytea[]) AS asked (id, fence, result)
    CROSS JOIN LATERAL (
        SELECT ctid AS place, id, fence, queue_id, attempts, deliveries, flags, consumer,
               claimed_at
        FROM penstock.lease WHERE id = asked.id AND fence = asked.fence AND flags & {ENDING_ALONE} = 0
        FOR UPDATE SKIP LOCKED) AS l
    LEFT JOIN LATERAL (
        SELECT queue_id, key FROM penstock.head WHERE id = l.id OFFSET 0) AS h ON true),
called AS (
    DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(
        SELECT s.place FROM held CROSS JOIN LATERAL (
            SELECT ctid AS place FROM penstock.scheduled
            WHERE id = held.next AND due_at = 9007199254740991 FOR UPDATE SKIP LOCKED) AS s))
    RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags),
ended AS MATERIALIZED (
    SELECT held.* FROM held
    WHERE next IS NULL OR next IN (SELECT id FROM called)),
gone AS (
    DELETE FROM penstock.lease WHERE ctid = ANY (ARRAY(SELECT place FROM ended))),
freed AS (
    DELETE FROM penstock.head WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE next IS NULL))),
passed AS (
    UPDATE penstock.head AS h SET id = ended.next FROM ended
    WHERE h.id BETWEEN ended.id AND ended.id AND ended.next IS NOT NULL),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags FROM called),
forgotten AS (
    DELETE FROM penstock.dedup
    WHERE id = ANY (ARRAY(SELECT id FROM ended WHERE flags & {UNIQUE} <> 0))
      AND expires_at = 9007199254740991 AND left(key, 7) = 'unique:'),
queues AS MATERIALIZED (
    SELECT id, (1000000 * (settings ->> 'keep_results')::float8)::bigint AS keep
    FROM penstock.queue WHERE id = ANY (ARRAY(
        SELECT DISTINCT queue_id FROM ended WHERE result IS NOT NULL))),
kept AS (
    INSERT INTO penstock.result (id, expires_at, body)
    SELECT ended.id, penstock.moment() + q.keep, ended.result
    FROM ended JOIN queues AS q ON q.id = ended.queue_id WHERE ended.result IS NOT NULL
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body),
nudged AS (
    INSERT INTO penstock.nudge (held_id, awaited_id)
    SELECT e.held_id, e.awaited_id FROM ended CROSS JOIN LATERAL (
        SELECT held_id, awaited_id FROM penstock.edge
        WHERE awaited_id = ended.id AND state IS NULL OFFSET 0) AS e
    WHERE ended.flags & {AWAITED} <> 0),
told AS (
    INSERT INTO penstock.history
        (id, queue_id, verb, state, attempts, deliveries, consumer, fence, claimed_at, at, final)
    SELECT id, queue_id, 'complete', 'completed', attempts + 1, deliveries, consumer, fence,
           claimed_at, penstock.moment(), true
    FROM ended)
SELECT id, fence, CASE WHEN next IS NOT NULL THEN queue_id END FROM ended;
-- name: free_leases
-- Leases that are not locked by another transaction.
SELECT l.id, l.fence
FROM unnest(:ids::bigint[], :fences::bigint[]) AS asked (id, fence)
JOIN penstock.lease AS l ON l.id BETWEEN asked.id AND asked.id AND l.fence = asked.fence
FOR UPDATE OF l SKIP LOCKED;
-- name: keep_result
INSERT INTO penstock.result (id, expires_at, body)
SELECT m.id, :now + (1000000 * (q.settings ->> 'keep_results')::float8)::bigint, :body::bytea
FROM penstock.message AS m JOIN penstock.queue AS q ON q.id = m.queue_id WHERE m.id = :id
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, body = excluded.body;
-- name: keep_nothing
-- A message that others wait for and that completed without a result gets a null, so that a result
-- that is no longer stored can be told from None.
INSERT INTO penstock.result (id, expires_at, body)
SELECT h.id, h.at + (1000000 * (q.settings ->> 'keep_results')::float8)::bigint, 'null'::bytea
FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id, at, queue_id FROM penstock.history
    WHERE id = asked.id AND final AND state = 'completed' OFFSET 0) AS h
JOIN penstock.queue AS q ON q.id = h.queue_id
WHERE h.at + (1000000 * (q.settings ->> 'keep_results')::float8)::bigint >= :now
ON CONFLICT (id) DO NOTHING;
-- name: extend_many
UPDATE penstock.lease AS l
SET lease_until = greatest(l.lease_until, penstock.moment() + asked.length),
    length = asked.length / 1000
FROM unnest(:ids::bigint[], :fences::bigint[], :lengths::bigint[]) AS asked (id, fence, length)
WHERE l.id BETWEEN asked.id AND asked.id AND l.fence = asked.fence
RETURNING l.id, l.fence, l.lease_until, l.flags;
-- name: begin
UPDATE penstock.lease SET flags = flags & ~{UNBEGUN}, begun_at = coalesce(begun_at, :now)
WHERE id = (SELECT id FROM penstock.lease
            WHERE id = :id AND fence = :fence FOR UPDATE SKIP LOCKED);
-- name: progress
UPDATE penstock.lease SET percent = coalesce(:percent, percent), note = coalesce(:note, note),
    begun_at = coalesce(begun_at, :now)
WHERE id = (SELECT id FROM penstock.lease WHERE id = :id AND fence = :fence
            FOR UPDATE SKIP LOCKED);
-- name: leases
SELECT l.id, l.fence, l.queue_id, l.attempts, l.deliveries, l.flags, l.claimed_at, l.lease_until,
       1000 * l.length::bigint, m.meta, l.dead_reason,
       (SELECT count(*) FROM penstock.history AS h
        WHERE h.id = l.id AND NOT h.final AND h.verb = 'park'
          AND h.position > coalesce((SELECT max(r.position) FROM penstock.history AS r
                                     WHERE r.id = l.id AND NOT r.final
                                       AND r.verb IN ('redrive', 'wait')), 0)),
       (SELECT min(h.claimed_at) FROM penstock.history AS h
        WHERE h.id = l.id AND NOT h.final
          AND h.position > coalesce((SELECT max(r.position) FROM penstock.history AS r
                                     WHERE r.id = l.id AND NOT r.final
                                       AND r.verb IN ('redrive', 'wait')), 0)),
       penstock.moment()
FROM unnest(:ids::bigint[], :fences::bigint[]) AS asked (id, fence)
CROSS JOIN LATERAL (
    SELECT * FROM penstock.lease WHERE id = asked.id AND fence = asked.fence OFFSET 0) AS l
CROSS JOIN LATERAL (SELECT meta FROM penstock.message WHERE id = l.id OFFSET 0) AS m;
-- name: leases_expired
SELECT id, fence, penstock.moment() FROM penstock.lease
WHERE lease_until < penstock.moment() ORDER BY lease_until LIMIT :limit;
-- name: settle_many
WITH asked AS MATERIALIZED (
    SELECT *, CASE WHEN state = 'scheduled' THEN penstock.moment() + delay END AS due_at
    FROM unnest(:ids::bigint[], :fences::bigint[], :flags::int[], :expired_bys::bigint[],
                :verbs::text[], :states::text[], :attempts::int[], :deliveries::int[],
                :reasons::text[], :errors::text[], :delays::bigint[], :ranked::bool[],
                :tracebacks::text[])
        AS given (id, fence, flags, expired_by, verb, state, attempts, deliveries, reason, error,
                  delay, ranked, traceback)),
ended AS (
    DELETE FROM penstock.lease AS l
    USING asked CROSS JOIN LATERAL (
        SELECT ctid AS place FROM penstock.lease
        WHERE id = asked.id AND fence = asked.fence AND flags = asked.flags
          AND lease_until < asked.expired_by
        FOR UPDATE SKIP LOCKED) AS held
    JOIN penstock.message AS m ON m.id BETWEEN asked.id AND asked.id
    WHERE l.ctid = held.place
    RETURNING l.id, l.fence, l.queue_id, m.type,
              coalesce(m.expires_at, 9007199254740991) AS expires_at, l.consumer, l.claimed_at,
              l.flags & {LASTING} AS flags, l.dead_at, l.dead_error,
              CASE WHEN asked.ranked THEN coalesce(asked.due_at, penstock.moment()) / 1000
                   ELSE l.rank END AS rank,
              asked.verb, asked.state, asked.attempts, asked.deliveries, asked.reason, asked.error,
              asked.due_at, asked.traceback),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
    FROM ended WHERE state = 'ready'),
waiting AS (
    INSERT INTO penstock.scheduled
        (due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags)
    SELECT due_at, id, queue_id, rank, type, attempts, deliveries, expires_at, flags
    FROM ended WHERE state = 'scheduled'),
buried AS (
    INSERT INTO penstock.dead
        (queue_id, rank, id, type, attempts, deliveries, flags, dead_at, reason, error)
    SELECT queue_id, rank, id, type, attempts, deliveries, flags & ~{UNIQUE},
           coalesce(dead_at, penstock.moment()), reason, coalesce(error, dead_error)
    FROM ended WHERE state = 'dead'),
told AS (
    INSERT INTO penstock.history
        (id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
         claimed_at, at, due_at, final, traceback)
    SELECT id, queue_id, verb::penstock.verb, state::penstock.state, reason, error, attempts, deliveries, consumer, fence,
           claimed_at, penstock.moment(), due_at,
           state IN ('completed', 'failed', 'expired', 'cancelled'), traceback
    FROM ended)
SELECT id, queue_id, state FROM ended;
-- name: settle
DELETE FROM penstock.lease AS l USING penstock.message AS m
WHERE m.id = :id AND l.ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.lease
    WHERE id = :id AND fence = :fence AND flags = :flags AND lease_until < :expired_by
    FOR UPDATE SKIP LOCKED))
RETURNING l.queue_id, l.rank, l.id, m.type, l.attempts, l.deliveries,
          coalesce(m.expires_at, 9007199254740991), l.flags, l.consumer, l.fence, l.claimed_at,
          l.dead_at, l.dead_error;
-- name: take_lease
DELETE FROM penstock.lease AS l USING penstock.message AS m
WHERE m.id = :id AND l.ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.lease WHERE id = :id AND fence = :fence FOR UPDATE SKIP LOCKED))
RETURNING l.queue_id, l.rank, l.id, m.type, l.attempts, l.deliveries,
          coalesce(m.expires_at, 9007199254740991), l.flags, l.consumer, l.fence, l.claimed_at,
          l.dead_at, l.dead_error;
-- name: request_cancel
UPDATE penstock.lease SET flags = flags | {CANCEL_REQUESTED}
WHERE id = (SELECT id FROM penstock.lease WHERE id = :id AND fence = :fence
            FOR UPDATE SKIP LOCKED);

-- name: story_of_fence
SELECT verb::text, state::text FROM penstock.history WHERE id = :id AND NOT final AND fence = :fence
UNION ALL
SELECT verb::text, state::text FROM penstock.history WHERE id = :id AND final AND fence = :fence;
-- name: lease_fence
SELECT l.fence, free.id IS NULL
FROM penstock.lease AS l
LEFT JOIN (SELECT id FROM penstock.lease WHERE id = :id FOR UPDATE SKIP LOCKED) AS free
    ON free.id = l.id
WHERE l.id = :id;

-- name: promote_many
-- Due tickets without an ordering key, or that hold theirs.
WITH first AS MATERIALIZED (
    SELECT ctid AS place, id, flags FROM penstock.scheduled
    WHERE due_at <= penstock.moment() AND due_at < 9007199254740991 AND flags & {HELD} = 0
    ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED),
due AS (
    DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(
        SELECT place FROM first
        WHERE flags & {KEYED} = 0
           OR (SELECT h.id FROM penstock.head AS h WHERE h.id = first.id) IS NOT NULL))
    RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags FROM due
RETURNING queue_id;
-- name: due
SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags, key
FROM penstock.scheduled
WHERE due_at <= :now AND due_at < 9007199254740991 AND flags & {HELD} = 0
ORDER BY due_at, id LIMIT :limit FOR UPDATE SKIP LOCKED;
-- name: next_due
SELECT due_at FROM penstock.scheduled
WHERE due_at < 9007199254740991 ORDER BY due_at, id LIMIT 1;
-- name: due_when
SELECT penstock.moment(), (SELECT due_at FROM penstock.scheduled
                           WHERE due_at < 9007199254740991 ORDER BY due_at, id LIMIT 1);
-- name: expire_ready
WITH gone AS (
    DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM penstock.ready
        WHERE expires_at <= penstock.moment() AND expires_at < 9007199254740991
          AND flags & {ENDING} = 0 AND (:queues::int[] IS NULL OR queue_id = ANY (:queues))
        ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING id, queue_id, attempts, deliveries),
told AS (
    INSERT INTO penstock.history (id, queue_id, verb, state, attempts, deliveries, at, final)
    SELECT id, queue_id, 'expire', 'expired', attempts, deliveries, penstock.moment(), true
    FROM gone)
SELECT count(*) FROM gone;
-- name: expire_scheduled
WITH gone AS (
    DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM penstock.scheduled
        WHERE expires_at <= penstock.moment() AND expires_at < 9007199254740991
          AND flags & {ENDING} = 0 AND (:queues::int[] IS NULL OR queue_id = ANY (:queues))
        ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED))
    RETURNING id, queue_id, attempts, deliveries),
told AS (
    INSERT INTO penstock.history (id, queue_id, verb, state, attempts, deliveries, at, final)
    SELECT id, queue_id, 'expire', 'expired', attempts, deliveries, penstock.moment(), true
    FROM gone)
SELECT count(*) FROM gone;
-- name: expired_ready
SELECT queue_id, rank, id FROM penstock.ready
WHERE expires_at <= :now AND expires_at < 9007199254740991 ORDER BY expires_at LIMIT :limit;
-- name: expired_in_line
SELECT queue_id, rank, id FROM penstock.ready
WHERE queue_id = ANY (:queues::int[]) AND expires_at <= :now AND expires_at < 9007199254740991
ORDER BY expires_at LIMIT :limit;
-- name: expired_scheduled
SELECT id FROM penstock.scheduled
WHERE expires_at <= :now AND expires_at < 9007199254740991 ORDER BY expires_at LIMIT :limit;
-- name: waited
SELECT r.id FROM penstock.ready AS r
WHERE r.queue_id = :queue_id AND r.rank = :rank
  AND (SELECT m.created_at FROM penstock.message AS m WHERE m.id = r.id) <= :before
ORDER BY r.id LIMIT :limit;
-- name: ready_since
-- When messages were published or due, when their last wait began, and the moments that may have
-- ended it: its time limit, the first signal it waited for, and the last end of another message.
SELECT asked.id, coalesce(m.run_at, m.created_at), w.at,
       CASE WHEN w.due_at <= :now THEN w.due_at END,
       (SELECT min(s.at) FROM penstock.signal AS s WHERE s.message_id = asked.id
          AND s.name = CASE WHEN w.reason LIKE 'signal:%' THEN substr(w.reason, 8) END
          AND (NOT s.consumed OR s.at >= w.at)),
       (SELECT max((SELECT h.at FROM penstock.history AS h WHERE h.id = e.awaited_id AND h.final))
        FROM penstock.edge AS e
        WHERE e.held_id = asked.id AND e.number = coalesce(w.fence, 0) AND e.state IS NOT NULL)
FROM unnest(:ids::bigint[]) AS asked (id)
CROSS JOIN LATERAL (
    SELECT run_at, created_at FROM penstock.message WHERE id = asked.id OFFSET 0) AS m
LEFT JOIN LATERAL (
    SELECT at, due_at, reason, fence FROM penstock.history
    WHERE id = asked.id AND NOT final AND verb = 'wait' AND state = 'scheduled'
    ORDER BY position DESC LIMIT 1) AS w ON true;
-- name: age
UPDATE penstock.ready SET rank = :above WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id
    FOR UPDATE SKIP LOCKED));
-- name: claim_tick
INSERT INTO penstock.agent (name, at, by) VALUES (:name, :now, :by)
ON CONFLICT (name) DO UPDATE SET at = excluded.at, by = excluded.by
WHERE agent.by = excluded.by OR agent.at <= :before OR agent.at > :after;
-- name: old_dedup
SELECT queue_id, key FROM penstock.dedup
WHERE expires_at <= :now AND expires_at < 9007199254740991 LIMIT :limit;
-- name: old_results
-- Results are kept until the messages that wait for them have ended. OFFSET 0 keeps the planner
-- from a join that reads every result.
SELECT id FROM penstock.result AS r WHERE expires_at <= :now AND NOT EXISTS (
    SELECT 1 FROM penstock.edge AS e WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock.history AS h WHERE h.id = e.held_id AND h.final OFFSET 0) OFFSET 0)
LIMIT :limit;
-- name: prunable
SELECT h.tx, h.id, h.queue_id, h.at, h.final,
       coalesce((SELECT m.tx FROM penstock.message AS m WHERE m.id = h.id), 0)
FROM penstock.history AS h
WHERE h.tx > :after AND h.tx < txid_snapshot_xmin(txid_current_snapshot())
ORDER BY h.tx FETCH FIRST :limit ROWS WITH TIES;
-- name: held_by_cursors
-- The cursor of an agent holds retention for a shorter time than that of an export.
SELECT min(message), min(history) FROM penstock.cursor
WHERE advanced_at > CASE WHEN name LIKE 'agent:%' THEN :agents_since::bigint ELSE :since::bigint END;
-- name: prune_history
DELETE FROM penstock.history WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.history WHERE id = ANY (:ids::bigint[]) AND final
    UNION ALL
    SELECT ctid FROM penstock.history WHERE id = ANY (:ids::bigint[]) AND NOT final));
-- name: prune_message
DELETE FROM penstock.message WHERE id = ANY (:ids::bigint[]);
-- name: prune_name
DELETE FROM penstock.name WHERE id = ANY (:ids::bigint[]);
-- name: prune_result
DELETE FROM penstock.result AS r WHERE id = ANY (:ids::bigint[]) AND NOT EXISTS (
    SELECT 1 FROM penstock.edge AS e WHERE e.awaited_id = r.id AND NOT EXISTS (
        SELECT 1 FROM penstock.history AS h WHERE h.id = e.held_id AND h.final OFFSET 0) OFFSET 0);
-- name: pruned_up_to
UPDATE penstock.counter SET value = greatest(value, :id) WHERE name = 'pruned';

-- name: schedules_move
-- A locked schedule is fired by the transaction that holds it, or later.
WITH held AS MATERIALIZED (
    SELECT s.id, asked.seen_at, asked.next_at
    FROM unnest(:ids::int[], :seen_ats::bigint[], :next_ats::bigint[])
        AS asked (id, seen_at, next_at)
    JOIN penstock.schedule AS s ON s.id = asked.id AND s.next_at = asked.seen_at AND NOT s.paused
    FOR UPDATE OF s SKIP LOCKED)
UPDATE penstock.schedule AS s SET next_at = held.next_at, last_at = held.seen_at
FROM held WHERE s.id = held.id
RETURNING s.id, held.seen_at;
-- name: schedules_due
SELECT id, queue_id, paused, next_at, last_at, plan FROM penstock.schedule
WHERE NOT paused AND next_at <= :due_by ORDER BY next_at, id;
-- name: queues
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock.queue AS q JOIN penstock.scope AS s ON s.id = q.scope_id
WHERE (:tenant::text IS NULL OR s.tenant = :tenant) AND (:scope::text IS NULL OR s.name = :scope)
ORDER BY s.tenant, s.name, q.name, q.id;
-- name: queue
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock.queue AS q JOIN penstock.scope AS s ON s.id = q.scope_id
WHERE s.tenant = :tenant AND s.name = :scope AND q.name = :name AND q.state <> 'deleted';
-- name: queue_by_id
SELECT q.id, s.id, s.tenant, s.name, s.paused, q.name, q.state, q.settings
FROM penstock.queue AS q JOIN penstock.scope AS s ON s.id = q.scope_id WHERE q.id = :id;
-- name: queue_change
UPDATE penstock.queue SET name = coalesce(:name, name), state = coalesce(:state, state),
                          settings = coalesce(:settings, settings)
WHERE id = :id;
-- name: index_lacking
SELECT EXISTS (SELECT 1 FROM penstock.queue
               WHERE state <> 'deleted' AND (settings ->> 'filter_by_type')::bool)
   AND NOT EXISTS (SELECT 1 FROM pg_index
                   WHERE indexrelid = to_regclass('penstock.ready_type') AND indisvalid);
-- name: index_types
-- The condition is always true; it keeps statements without it from using this index.
CREATE INDEX CONCURRENTLY IF NOT EXISTS ready_type ON penstock.ready (queue_id, type, rank, id)
WHERE type >= '';

-- name: message
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at,
       coalesce(rank, -priority)
FROM penstock.message WHERE id = :id;
-- name: messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
FROM penstock.message WHERE id = ANY (:ids::bigint[]);
-- name: leases_of
SELECT id, attempts, deliveries, flags, lease_until, consumer, percent, note, dead_reason,
       dead_error, claimed_at, begun_at
FROM penstock.lease WHERE id = ANY (:ids::bigint[]);
-- name: scheduled_of
-- With the message that holds the key a ticket waits for.
SELECT s.id, s.attempts, s.deliveries, s.due_at, (
    SELECT h.id FROM penstock.head AS h
    WHERE s.due_at = 9007199254740991 AND h.queue_id = s.queue_id AND h.key = s.key)
FROM unnest(:ids::bigint[]) AS wanted (id) CROSS JOIN LATERAL (
    SELECT id, queue_id, key, attempts, deliveries, due_at FROM penstock.scheduled
    WHERE id = wanted.id OFFSET 0) AS s;
-- name: dead_of
SELECT id, attempts, deliveries, reason, error FROM penstock.dead WHERE id = ANY (:ids::bigint[]);
-- name: timelines
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer,
       fence, claimed_at, at, due_at, final, CASE WHEN :full::bool THEN traceback END
FROM penstock.history WHERE id = ANY (:ids::bigint[]) AND NOT final
UNION ALL
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer,
       fence, claimed_at, at, due_at, final, CASE WHEN :full::bool THEN traceback END
FROM penstock.history WHERE id = ANY (:ids::bigint[]) AND final
ORDER BY 1;
-- name: ended
SELECT state::text FROM penstock.history WHERE id = :id AND final;
-- name: lock_dead
SELECT flags FROM penstock.dead WHERE id = :id FOR UPDATE SKIP LOCKED;
-- name: lock_dead_set
SELECT id, queue_id FROM penstock.dead
WHERE id = ANY (:ids::bigint[]) AND flags & :mask::int = 0 FOR UPDATE SKIP LOCKED;
-- name: record_dead_set
INSERT INTO penstock.history
    (id, queue_id, verb, state, reason, error, attempts, deliveries, at, final)
SELECT id, queue_id, :verb::text::penstock.verb, :state::text::penstock.state, :reason, :error,
       CASE WHEN :final::bool THEN attempts ELSE 0 END,
       CASE WHEN :final::bool THEN deliveries ELSE 0 END, :at, :final
FROM penstock.dead WHERE id = ANY (:ids::bigint[]);
-- name: redrive_dead_set
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT queue_id, rank, id, type, 0, 0,
       coalesce((SELECT m.expires_at FROM penstock.message AS m WHERE m.id = d.id),
                9007199254740991), flags
FROM penstock.dead AS d WHERE id = ANY (:ids::bigint[]);
-- name: drop_dead_set
DELETE FROM penstock.dead WHERE id = ANY (:ids::bigint[]);
-- name: take_some_ready
DELETE FROM penstock.ready WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.ready WHERE queue_id = :queue_id
    ORDER BY rank, id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: take_some_scheduled
DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.scheduled WHERE queue_id = :queue_id
    LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING queue_id, rank, id, type, attempts, deliveries, expires_at, flags;
-- name: take_some_dead
DELETE FROM penstock.dead WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.dead WHERE queue_id = :queue_id
    ORDER BY dead_at, id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags;
-- name: take_old_dead
DELETE FROM penstock.dead WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM penstock.dead WHERE queue_id = :queue_id AND dead_at < :before
    ORDER BY dead_at, id LIMIT :limit FOR UPDATE SKIP LOCKED))
RETURNING queue_id, rank, id, type, attempts, deliveries, 9007199254740991, flags;

-- name: lock_ready
SELECT rank, flags FROM penstock.ready WHERE queue_id = :queue_id AND rank = :rank AND id = :id
FOR UPDATE SKIP LOCKED;
-- name: lock_ready_anywhere
SELECT rank, flags FROM penstock.ready WHERE queue_id = :queue_id AND id = :id FOR UPDATE SKIP LOCKED;
-- name: lock_scheduled
SELECT due_at, key, position, flags FROM penstock.scheduled WHERE id = :id FOR UPDATE SKIP LOCKED;
-- name: rank_of
SELECT coalesce(rank, -priority) FROM penstock.message WHERE id = :id;
-- name: last_position
SELECT max(position) FROM penstock.history WHERE id = :id AND NOT final;
-- name: changed_since
SELECT id FROM penstock.history
WHERE id = ANY (:ids::bigint[]) AND NOT final AND position > :as_of;
-- name: highest
-- Positions have no index that gives the last one, so their sequence is read.
SELECT (SELECT coalesce(max(id), 0) FROM penstock.message) AS message,
       coalesce(pg_sequence_last_value('penstock.position'), 0) AS history;

-- name: search_messages
SELECT m.id, m.queue_id, m.type, m.created_at, octet_length(m.body), 0 FROM penstock.message AS m
WHERE m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_ids
SELECT m.id, m.queue_id, m.type, m.created_at, octet_length(m.body), 0 FROM penstock.message AS m
WHERE m.id = ANY (:ids::bigint[]) AND m.id < :id ORDER BY m.id DESC LIMIT :limit;
-- name: search_correlated
-- OFFSET 0, here and below, keeps the planner from merging all messages with the page.
SELECT id, queue_id, type, created_at, octet_length(body), 0 FROM penstock.message
WHERE meta ->> 'correlation_id' = :correlation AND id < :id
ORDER BY meta ->> 'correlation_id' DESC, id DESC LIMIT :limit;
-- name: search_claimed
SELECT l.id, l.queue_id, m.type, m.created_at, m.size, 0
FROM penstock.lease AS l CROSS JOIN LATERAL (
    SELECT type, created_at, octet_length(body) AS size FROM penstock.message
    WHERE id = l.id OFFSET 0) AS m
WHERE l.id < :id ORDER BY l.id DESC LIMIT :limit;
-- name: search_ready
SELECT r.id, r.queue_id, m.type, m.created_at, m.size, r.rank
FROM penstock.ready AS r CROSS JOIN LATERAL (
    SELECT type, created_at, octet_length(body) AS size FROM penstock.message
    WHERE id = r.id OFFSET 0) AS m
WHERE r.queue_id = :queue_id AND r.rank >= :key AND (r.rank > :key OR r.id > :id)
ORDER BY r.rank, r.id LIMIT :limit;
-- name: search_scheduled
SELECT s.id, s.queue_id, m.type, m.created_at, m.size, 0
FROM penstock.scheduled AS s CROSS JOIN LATERAL (
    SELECT type, created_at, octet_length(body) AS size FROM penstock.message
    WHERE id = s.id OFFSET 0) AS m
WHERE s.queue_id = :queue_id AND s.id < :id ORDER BY s.id DESC LIMIT :limit;
-- name: search_dead
SELECT d.id, d.queue_id, m.type, m.created_at, m.size, d.dead_at
FROM penstock.dead AS d CROSS JOIN LATERAL (
    SELECT type, created_at, octet_length(body) AS size FROM penstock.message
    WHERE id = d.id OFFSET 0) AS m
WHERE d.queue_id = :queue_id AND d.dead_at <= :key AND (d.dead_at < :key OR d.id < :id)
ORDER BY d.dead_at DESC, d.id DESC LIMIT :limit;
-- name: search_unsuccessful
SELECT h.id, h.queue_id, m.type, m.created_at, m.size, 0
FROM penstock.history AS h CROSS JOIN LATERAL (
    SELECT type, created_at, octet_length(body) AS size FROM penstock.message
    WHERE id = h.id OFFSET 0) AS m
WHERE h.final AND h.state <> 'completed' AND h.id < :id ORDER BY h.id DESC LIMIT :limit;
-- name: find_all
SELECT id FROM penstock.message
WHERE queue_id = ANY (:queues::int[]) AND id < :before
  AND (:type::text IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_oldest
SELECT id FROM penstock.message
WHERE queue_id = ANY (:queues::int[]) AND id > :after
  AND (:type::text IS NULL OR type = :type) ORDER BY id LIMIT :limit;
-- name: find_correlated
WITH story AS MATERIALIZED (
    SELECT id, queue_id, type FROM penstock.message WHERE meta ->> 'correlation_id' = :correlation)
SELECT id FROM story
WHERE queue_id = ANY (:queues::int[]) AND id < :before
  AND (:type::text IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_ready
SELECT id FROM penstock.ready
WHERE queue_id = ANY (:queues::int[]) AND id < :before
  AND (:type::text IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_scheduled
SELECT id FROM penstock.scheduled
WHERE queue_id = ANY (:queues::int[]) AND id < :before
  AND (:type::text IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_claimed
SELECT l.id FROM penstock.lease AS l JOIN penstock.message AS m ON m.id = l.id
WHERE l.queue_id = ANY (:queues::int[]) AND l.id < :before
  AND (:type::text IS NULL OR m.type = :type) ORDER BY l.id DESC LIMIT :limit;
-- name: find_dead
SELECT id FROM penstock.dead
WHERE queue_id = ANY (:queues::int[]) AND id < :before
  AND (:type::text IS NULL OR type = :type) ORDER BY id DESC LIMIT :limit;
-- name: find_ended
SELECT m.id FROM penstock.message AS m
JOIN penstock.history AS h ON h.id = m.id AND h.final AND h.state = :state::text::penstock.state
WHERE m.queue_id = ANY (:queues::int[]) AND m.id < :before
  AND (:type::text IS NULL OR m.type = :type) ORDER BY m.id DESC LIMIT :limit;

-- name: horizon
-- Rows of transactions before this one are final.
SELECT txid_snapshot_xmin(txid_current_snapshot());
-- name: frontier
-- The first transaction that has not begun to write.
SELECT txid_snapshot_xmax(txid_current_snapshot());
-- name: feed_messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at, tx
FROM penstock.message
WHERE tx > :after AND tx < :before ORDER BY tx FETCH FIRST :limit ROWS WITH TIES;
-- name: feed_history
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, tx
FROM penstock.history
WHERE tx > :after AND tx < :before ORDER BY tx FETCH FIRST :limit ROWS WITH TIES;
-- name: heads_messages
SELECT id, queue_id, type, created_at, run_at, octet_length(body), meta, tx
FROM penstock.message
WHERE tx > :after AND tx < :before ORDER BY tx FETCH FIRST :limit ROWS WITH TIES;
-- name: digest_messages
SELECT id, queue_id, type, created_at, tx
FROM penstock.message
WHERE tx > :after AND tx < :before ORDER BY tx FETCH FIRST :limit ROWS WITH TIES;
-- name: digest_history
-- The limits keep the planner from reading all messages or all of history for a join.
WITH page AS MATERIALIZED (
    SELECT position, id, queue_id, verb, consumer, claimed_at, at, tx FROM penstock.history
    WHERE tx > :after AND tx < :before ORDER BY tx FETCH FIRST :limit ROWS WITH TIES),
rows AS MATERIALIZED (
    SELECT h.position, h.queue_id, m.type, h.at / 60000000 AS minute, h.consumer, h.claimed_at, h.at,
           h.at - h.claimed_at AS run, h.claimed_at - coalesce(m.run_at, m.created_at) AS wait, h.tx,
           coalesce(h.verb = 'complete' AND h.at - h.claimed_at <= :run::bigint AND m.size <= :size::bigint
                    AND NOT coalesce(m.leased, false) AND h.queue_id <> ALL (:whole::int[])
                    AND (SELECT true FROM penstock.history AS r
                         WHERE r.id = h.id AND NOT r.final LIMIT 1) IS NULL, false) AS grouped
    FROM page AS h LEFT JOIN LATERAL (
        SELECT id, type, created_at, run_at, octet_length(body) AS size,
               strpos(meta::text, '"lease"') > 0 AS leased
        FROM penstock.message WHERE id = h.id LIMIT 1) AS m ON true)
SELECT grouped, CASE WHEN grouped THEN queue_id END, CASE WHEN grouped THEN type END,
       CASE WHEN grouped THEN minute END, CASE WHEN grouped THEN consumer END, min(claimed_at),
       max(at), max(position), array_agg(run), array_agg(wait),
       array_agg(position) FILTER (WHERE NOT grouped), count(*), max(tx)
FROM rows GROUP BY 1, 2, 3, 4, 5;
-- name: history_of
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, tx
FROM penstock.history
WHERE tx > :after AND tx <= :last AND position = ANY (:ids::bigint[]);
-- name: summarize
-- Every search by tx reads all pages that its index has not summarized; autovacuum does it once a
-- minute at most.
SELECT brin_summarize_new_values('penstock.message_tx'),
       brin_summarize_new_values('penstock.history_tx');
-- name: heads_of
SELECT id, queue_id, type, created_at, run_at, octet_length(body), meta
FROM penstock.message WHERE id = ANY (:ids::bigint[]);
-- name: rests_of
SELECT id, position, verb::text, state::text, error, consumer, at, due_at
FROM penstock.history WHERE id = ANY (:ids::bigint[]) AND NOT final ORDER BY position;
-- name: messages_between
SELECT EXISTS (SELECT FROM penstock.message WHERE tx > :after AND tx <= :last);
-- name: history_between
SELECT EXISTS (SELECT FROM penstock.history WHERE tx > :after AND tx <= :last);
-- name: message_columns
WITH page AS MATERIALIZED (
    SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at
    FROM penstock.message WHERE tx > :after AND tx <= :last LIMIT :limit),
total AS (SELECT sum(octet_length(body)) AS bytes FROM page)
SELECT array_agg(id) AS id, array_agg(queue_id) AS queue_id,
       array_agg(type) AS type, array_agg(priority) AS priority,
       array_agg(created_at) AS created_at, array_agg(meta) AS meta,
       array_agg(run_at) AS run_at, array_agg(expires_at) AS expires_at,
       array_agg(body) FILTER (WHERE (SELECT bytes FROM total) <= :most) AS body
FROM page;
-- name: history_columns
SELECT array_agg(position) AS position, array_agg(id) AS id,
       array_agg(queue_id) AS queue_id, array_agg(verb) AS verb, array_agg(state) AS state,
       array_agg(reason) AS reason, array_agg(error) AS error, array_agg(attempts) AS attempts,
       array_agg(deliveries) AS deliveries, array_agg(consumer) AS consumer,
       array_agg(fence) AS fence, array_agg(claimed_at) AS claimed_at, array_agg(at) AS at,
       array_agg(due_at) AS due_at, array_agg(final) AS final
FROM (
    SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries,
           consumer, fence, claimed_at, at, due_at, final
    FROM penstock.history WHERE tx > :after AND tx <= :last LIMIT :limit) AS page;
-- name: past
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock.history WHERE position < :before AND position > :after
ORDER BY position DESC LIMIT :limit;
-- name: headings
SELECT id, queue_id, type, meta FROM penstock.message WHERE id = ANY (:ids::bigint[]);
-- name: recent
SELECT position, id, queue_id, verb::text, state::text, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final
FROM penstock.history WHERE position > :after AND tx > :passed ORDER BY position LIMIT :limit;
-- name: census
SELECT queue_id, place, count(*),
       sum(((id % 1000003) * (id % 1000033)) % 1000000007)::bigint FROM (
    SELECT queue_id, 'message' AS place, id FROM penstock.message
    UNION ALL SELECT queue_id, 'ready', id FROM penstock.ready
    UNION ALL SELECT queue_id, 'scheduled', id FROM penstock.scheduled
    UNION ALL SELECT queue_id, 'lease', id FROM penstock.lease
    UNION ALL SELECT queue_id, 'dead', id FROM penstock.dead
    UNION ALL SELECT queue_id, 'ended', id FROM penstock.history WHERE final
) AS places GROUP BY queue_id, place ORDER BY queue_id, place;
-- name: depths
SELECT queue_id, 'ready', count(*) FROM penstock.ready GROUP BY queue_id
UNION ALL SELECT queue_id, 'scheduled', count(*) FROM penstock.scheduled GROUP BY queue_id
UNION ALL SELECT queue_id, 'lease', count(*) FROM penstock.lease GROUP BY queue_id
UNION ALL SELECT queue_id, 'dead', count(*) FROM penstock.dead GROUP BY queue_id
UNION ALL SELECT queue_id, state::text, count(*) FROM (
    SELECT queue_id, state FROM penstock.history WHERE final
    ORDER BY id DESC LIMIT :ended) AS last GROUP BY queue_id, state;
-- name: worker_stop
UPDATE penstock.worker SET stopping = true WHERE id = :id;

-- name: acts
SELECT id, at, tenant, subject, verb, target, scope, request_id, detail FROM penstock.act
WHERE (:tenant::text IS NULL OR tenant = :tenant) AND id < :before ORDER BY id DESC LIMIT :limit;
-- name: drop_acts
DELETE FROM penstock.act
WHERE id IN (SELECT id FROM penstock.act WHERE at < :now - 31536000000000 LIMIT :limit);

-- name: copy_counters
SELECT coalesce(pg_sequence_last_value('penstock.message_id'), 0),
       coalesce(pg_sequence_last_value('penstock.fence'), 0),
       (SELECT value FROM penstock.counter WHERE name = 'pruned');
-- name: copy_keys
SELECT queue_id, key, id, digest, expires_at FROM penstock.dedup
WHERE (queue_id, key) > (:queue_id::int, :key::text) AND expires_at > :now
ORDER BY queue_id, key LIMIT :limit;
-- name: copy_sizes
SELECT id, octet_length(body) FROM penstock.message WHERE id > :after ORDER BY id LIMIT :limit;
-- name: copy_messages
SELECT id, queue_id, type, priority, created_at, body, meta, run_at, expires_at,
       coalesce(rank, -priority)
FROM penstock.message WHERE id BETWEEN :first AND :last ORDER BY id;
-- name: copy_ready
SELECT r.id, r.rank, r.attempts, r.deliveries, r.flags
FROM penstock.message m CROSS JOIN LATERAL (
    SELECT * FROM penstock.ready
    WHERE queue_id = m.queue_id AND rank = coalesce(m.rank, -m.priority) AND id = m.id
    LIMIT 1) AS r
WHERE m.id BETWEEN :first AND :last;
-- name: copy_history
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, traceback
FROM penstock.history WHERE id BETWEEN :first AND :last AND NOT final
UNION ALL
SELECT position, id, queue_id, verb, state, reason, error, attempts, deliveries, consumer, fence,
       claimed_at, at, due_at, final, traceback
FROM penstock.history WHERE id BETWEEN :first AND :last AND final
ORDER BY 1;
-- name: copy_waits
SELECT count(*) FROM (
    SELECT id, flags FROM penstock.ready
    UNION ALL SELECT id, flags FROM penstock.scheduled
    UNION ALL SELECT id, flags FROM penstock.lease
    UNION ALL SELECT id, flags FROM penstock.dead
) AS tickets WHERE flags & ({HELD} | {STEPS}) <> 0 OR id IN (
    SELECT message_id FROM penstock.signal WHERE NOT consumed);
-- name: copy_wait_sizes
-- The bytes of steps and signals; an edge and a hold count as 50. No row: the page has no waits.
SELECT message_id, sum(octet_length(body)) FROM penstock.step
WHERE message_id BETWEEN :first AND :last GROUP BY message_id
UNION ALL
SELECT message_id, sum(octet_length(body)) FROM penstock.signal
WHERE message_id BETWEEN :first AND :last GROUP BY message_id
UNION ALL
SELECT held_id, count(*) * 50 FROM penstock.edge
WHERE held_id BETWEEN :first AND :last GROUP BY held_id
UNION ALL
SELECT held_id, count(*) * 50 FROM penstock.hold
WHERE held_id BETWEEN :first AND :last GROUP BY held_id;
-- name: copy_awaited_results
SELECT r.id, r.expires_at, r.body FROM (
    SELECT DISTINCT awaited_id FROM penstock.edge WHERE held_id BETWEEN :first AND :last) AS e
CROSS JOIN LATERAL (SELECT * FROM penstock.result WHERE id = e.awaited_id LIMIT 1) AS r
WHERE (SELECT 1 FROM penstock.message AS m WHERE m.id = r.id) IS NULL;
-- name: copy_results_stored
SELECT id FROM penstock.result WHERE id = ANY (:ids::bigint[]);
-- name: restore_dedup
INSERT INTO penstock.dedup (queue_id, key, id, digest, expires_at)
SELECT * FROM unnest(:queue_ids::int[], :keys::text[], :ids::bigint[], :digests::bytea[],
                     :expires_ats::bigint[])
ON CONFLICT DO NOTHING;
-- name: restore_signal_ids
SELECT setval(pg_get_serial_sequence('penstock.signal', 'id'), max(id)) FROM penstock.signal;
-- name: restore_counters
WITH raised AS (
    UPDATE penstock.counter SET value = greatest(value, :pruned) WHERE name = 'pruned'
    RETURNING 1)
SELECT setval('penstock.message_id',
              greatest(:message::bigint, pg_sequence_last_value('penstock.message_id'), 1)),
       setval('penstock.fence',
              greatest(:fence::bigint, pg_sequence_last_value('penstock.fence'), 1))
FROM raised;

-- name: edges_add
INSERT INTO penstock.edge (held_id, number, awaited_id)
SELECT * FROM unnest(:held_ids::bigint[], :numbers::bigint[], :awaited_ids::bigint[]);
-- name: flag_awaited_ready
-- One whose rank has changed, or that another transaction ends now, is found by nudge_missed.
UPDATE penstock.ready SET flags = flags | {AWAITED} WHERE ctid = ANY (ARRAY(
    SELECT r.ctid FROM unnest(:ids::bigint[]) AS asked (id)
    CROSS JOIN LATERAL (
        SELECT queue_id, coalesce(rank, -priority) AS rank, id FROM penstock.message
        WHERE id = asked.id OFFSET 0) AS m
    CROSS JOIN LATERAL (
        SELECT ctid FROM penstock.ready
        WHERE queue_id = m.queue_id AND rank = m.rank AND id = m.id AND flags & {AWAITED} = 0
        FOR NO KEY UPDATE SKIP LOCKED) AS r));
-- name: flag_awaited_scheduled
UPDATE penstock.scheduled SET flags = flags | {AWAITED} WHERE ctid = ANY (ARRAY(
    SELECT s.ctid FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
        SELECT ctid FROM penstock.scheduled WHERE id = asked.id AND flags & {AWAITED} = 0
        FOR NO KEY UPDATE SKIP LOCKED) AS s));
-- name: flag_awaited_lease
UPDATE penstock.lease SET flags = flags | {AWAITED} WHERE id = ANY (ARRAY(
    SELECT id FROM penstock.lease WHERE id = ANY (:ids::bigint[]) AND flags & {AWAITED} = 0
    FOR NO KEY UPDATE SKIP LOCKED));
-- name: flag_awaited_dead
UPDATE penstock.dead SET flags = flags | {AWAITED} WHERE id = ANY (ARRAY(
    SELECT id FROM penstock.dead WHERE id = ANY (:ids::bigint[]) AND flags & {AWAITED} = 0
    FOR NO KEY UPDATE SKIP LOCKED));
-- name: nudges_of
SELECT id, held_id, awaited_id FROM penstock.nudge WHERE held_id = ANY (:ids::bigint[]);
-- name: holds_of
SELECT held_id, place, number, due_at, kind, name, policy, need, on_dead FROM penstock.hold
WHERE held_id = ANY (:ids::bigint[]) ORDER BY held_id, place;
-- name: held_tickets
SELECT s.* FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
    FROM penstock.scheduled WHERE id = asked.id AND flags & {HELD} <> 0
    FOR UPDATE SKIP LOCKED) AS s;
-- name: held_among
SELECT s.id FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT id FROM penstock.scheduled WHERE id = asked.id AND flags & {HELD} <> 0 OFFSET 0) AS s;
-- name: signals_held
SELECT DISTINCT message_id, name FROM penstock.signal
WHERE message_id = ANY (:ids::bigint[]) AND consumed = false;
-- name: edges_ended
-- A message that is no longer stored had ended. It counts as completed, without a result.
SELECT e.held_id, e.awaited_id, h.state::text FROM penstock.edge AS e CROSS JOIN LATERAL (
    SELECT state FROM penstock.history WHERE id = e.awaited_id AND final OFFSET 0) AS h
WHERE e.held_id = ANY (:ids::bigint[]) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock.edge AS e CROSS JOIN LATERAL (
    SELECT id FROM penstock.dead WHERE id = e.awaited_id OFFSET 0) AS d
WHERE e.held_id = ANY (:ids::bigint[]) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'completed' FROM penstock.edge AS e
LEFT JOIN LATERAL (
    SELECT id FROM penstock.message WHERE id = e.awaited_id OFFSET 0) AS m ON true
WHERE e.held_id = ANY (:ids::bigint[]) AND e.state IS NULL AND m.id IS NULL;
-- name: edges_ended_by
SELECT e.held_id, e.awaited_id, h.state::text FROM penstock.edge AS e CROSS JOIN LATERAL (
    SELECT state FROM penstock.history WHERE id = e.awaited_id AND final OFFSET 0) AS h
WHERE e.awaited_id = ANY (:awaited::bigint[]) AND e.held_id = ANY (:ids::bigint[]) AND e.state IS NULL
UNION ALL
SELECT e.held_id, e.awaited_id, 'dead' FROM penstock.edge AS e CROSS JOIN LATERAL (
    SELECT id FROM penstock.dead WHERE id = e.awaited_id OFFSET 0) AS d
WHERE e.awaited_id = ANY (:awaited::bigint[]) AND e.held_id = ANY (:ids::bigint[]) AND e.state IS NULL;
-- name: edges_settle
UPDATE penstock.edge SET state = :state
WHERE held_id = ANY (:ids::bigint[]) AND awaited_id = ANY (:awaited::bigint[]) AND state IS NULL;
-- name: edges_open
-- Searched from the end: messages of one publish end in about the order of their ids.
SELECT h.held_id, h.number FROM penstock.hold AS h CROSS JOIN LATERAL (
    SELECT 1 FROM penstock.edge
    WHERE held_id = h.held_id AND number = h.number AND state IS NULL
    ORDER BY awaited_id DESC LIMIT 1) AS e
WHERE h.held_id = ANY (:ids::bigint[]) AND h.kind = 'after';
-- name: edge_counts
SELECT held_id, number, state, count(*) FROM penstock.edge
WHERE held_id = ANY (:ids::bigint[]) GROUP BY held_id, number, state;
-- name: awaited_results
SELECT r.id, r.body FROM penstock.edge AS e CROSS JOIN LATERAL (
    SELECT id, body FROM penstock.result WHERE id = e.awaited_id OFFSET 0) AS r
WHERE e.held_id = :id;
-- name: drop_holds
DELETE FROM penstock.hold WHERE held_id = ANY (:ids::bigint[]);
-- name: drop_nudges
DELETE FROM penstock.nudge WHERE id = ANY (:ids::bigint[]);
-- name: resume_held
INSERT INTO penstock.ready (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
SELECT s.queue_id, s.rank, s.id, s.type, s.attempts, s.deliveries, s.expires_at, s.flags & ~{HELD}
FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
    SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags
    FROM penstock.scheduled WHERE id = asked.id OFFSET 0) AS s;
-- name: leave_held
-- An earlier statement locked them, so none is skipped.
DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(
    SELECT s.place FROM unnest(:ids::bigint[]) AS asked (id) CROSS JOIN LATERAL (
        SELECT ctid AS place FROM penstock.scheduled WHERE id = asked.id
        FOR UPDATE SKIP LOCKED) AS s));
-- name: heads_among
SELECT id FROM penstock.head WHERE id = ANY (:ids::bigint[]);
-- name: lease_shared
SELECT flags FROM penstock.lease WHERE id = :id AND fence = :fence FOR KEY SHARE SKIP LOCKED;
-- name: flag_steps
UPDATE penstock.lease SET flags = flags | {STEPS}
WHERE id = (SELECT id FROM penstock.lease WHERE id = :id AND fence = :fence
            FOR UPDATE SKIP LOCKED);
-- name: steps_dated
-- Also some signals that were not received yet, oldest first, with their ids as positions.
SELECT penstock.moment(), name, key, kind, position, body, done, due_at, at, fence
FROM penstock.step WHERE message_id = :id
UNION ALL
(SELECT penstock.moment(), name, key, 'received', id, body, consumed, NULL, at, 0
 FROM penstock.signal WHERE message_id = :id AND NOT consumed ORDER BY id LIMIT 10)
ORDER BY 5;
-- name: child_records
SELECT name, key, kind, position, body, done, due_at, at, fence FROM penstock.step
WHERE message_id = ANY (:ids::bigint[]) AND kind IN ('gather', 'enqueue') ORDER BY message_id, position;
-- name: step_save
INSERT INTO penstock.step (message_id, name, key, kind, position, done, due_at, at, fence, body)
VALUES (:id, :name, :key, :kind, :position, :done, :due_at, :at, :fence, :body)
ON CONFLICT (message_id, name, key) DO UPDATE SET (kind, done, due_at, at, fence, body) =
    (excluded.kind, excluded.done, excluded.due_at, excluded.at, excluded.fence, excluded.body);
-- name: step_save_leased
-- Stores a step of a run that has stored some. No row if its lease is gone or locked, or if the step
-- is done. The lock keeps the lease until the step is committed.
WITH held AS MATERIALIZED (
    SELECT l.id FROM penstock.lease AS l
    WHERE l.id = :id AND l.fence = :fence AND l.flags & {FROM_DEAD} = 0 AND l.flags & {STEPS} <> 0
      AND NOT EXISTS (
          SELECT 1 FROM penstock.step AS s
          WHERE s.message_id = :id AND s.name = :name AND s.key = :key AND s.done)
    FOR KEY SHARE OF l SKIP LOCKED),
consumed AS (
    UPDATE penstock.signal SET consumed = true
    WHERE id = :consumes AND message_id = (SELECT id FROM held))
INSERT INTO penstock.step
    (message_id, name, key, kind, position, done, due_at, at, fence, body)
SELECT id, :name, :key, :kind::text, :position::int, :done::boolean, :due_at::bigint,
       penstock.moment(), :fence, :body::bytea
FROM held
ON CONFLICT (message_id, name, key) DO UPDATE SET (kind, done, due_at, at, fence, body) =
    (excluded.kind, excluded.done, excluded.due_at, excluded.at, excluded.fence, excluded.body)
    WHERE NOT step.done
RETURNING position, at;
-- name: last_redrive
SELECT position, at FROM penstock.history
WHERE id = :id AND NOT final AND verb = 'redrive' ORDER BY position DESC LIMIT 1;
-- name: wait_counts
SELECT (SELECT count(*) FROM penstock.history
        WHERE id = :id AND NOT final AND verb = 'wait' AND position > :position),
       (SELECT count(*) FROM penstock.step WHERE message_id = :id AND at >= :at),
       (SELECT count(*) FROM penstock.step WHERE message_id = :id AND fence = :fence);
-- name: recent_waits
SELECT at, claimed_at, due_at FROM penstock.history
WHERE id = :id AND NOT final AND verb = 'wait' ORDER BY position DESC LIMIT :limit;
-- name: signal_count
SELECT count(*) FROM penstock.signal WHERE message_id = :id AND consumed = false;
-- name: signal_add
INSERT INTO penstock.signal (message_id, name, key, at, consumed, body)
VALUES (:id, :name, :key, :at, false, :body)
RETURNING id;
-- name: signal_held
-- Stores a signal without a key of a held message, with its event. Resumes the message if it waits
-- for nothing else, otherwise asks for a look. No row if it is not held, or locked, or has enough.
-- If one step of the message waits for the signal, it has received it: its run need not store that.
WITH held AS MATERIALIZED (
    SELECT ctid AS place, queue_id, rank, id, type, attempts, deliveries, expires_at, flags
    FROM penstock.scheduled
    WHERE id = :id AND flags & {HELD} <> 0
      AND (SELECT count(*) FROM penstock.signal
           WHERE message_id = :id AND NOT consumed) < :limit::int
    FOR UPDATE SKIP LOCKED),
free AS MATERIALIZED (
    SELECT held.* FROM held
    WHERE held.flags & {KEYED} = 0
      AND EXISTS (SELECT 1 FROM penstock.hold WHERE held_id = :id)
      AND NOT EXISTS (SELECT 1 FROM penstock.hold
                      WHERE held_id = :id AND (kind <> 'signal' OR name <> :name))),
receiver AS MATERIALIZED (
    SELECT min(key) AS key FROM penstock.step
    WHERE message_id = (SELECT id FROM free) AND name = :name AND kind = 'signal' AND NOT done
      AND NOT EXISTS (SELECT 1 FROM penstock.signal
                      WHERE message_id = :id AND name = :name AND NOT consumed)
    HAVING count(*) = 1),
stored AS (
    INSERT INTO penstock.signal (message_id, name, at, consumed, body)
    SELECT id, :name, penstock.moment(), EXISTS (SELECT 1 FROM receiver), :body FROM held
    RETURNING id, at),
received AS (
    UPDATE penstock.step SET done = true, at = stored.at, body = :body
    FROM receiver, stored
    WHERE step.message_id = :id AND step.name = :name AND step.key = receiver.key),
told AS (
    INSERT INTO penstock.document (kind, name, body, version, expires_at)
    SELECT :kind::text, lpad(at::text, 20, '0') || '-signal-' || id, :event::bytea, 1,
           at + :kept::bigint
    FROM stored WHERE length(:event::bytea) > 0),
left_scheduled AS (
    DELETE FROM penstock.scheduled WHERE ctid = ANY (ARRAY(SELECT place FROM free))),
dropped AS (
    DELETE FROM penstock.hold WHERE held_id = (SELECT id FROM free)),
placed AS (
    INSERT INTO penstock.ready
        (queue_id, rank, id, type, attempts, deliveries, expires_at, flags)
    SELECT queue_id, rank, id, type, attempts, deliveries, expires_at, flags & ~{HELD} FROM free),
nudged AS (
    INSERT INTO penstock.nudge (held_id)
    SELECT held.id FROM held WHERE NOT EXISTS (SELECT 1 FROM free))
SELECT id, (SELECT queue_id FROM free) FROM stored;
-- name: signal_consume
UPDATE penstock.signal SET consumed = true WHERE id = :signal_id AND message_id = :id;
-- name: prune_step
DELETE FROM penstock.step WHERE message_id = ANY (:ids::bigint[]);
-- name: prune_signal
DELETE FROM penstock.signal WHERE message_id = ANY (:ids::bigint[]);
-- name: prune_edge
DELETE FROM penstock.edge WHERE held_id = ANY (:ids::bigint[]);
-- name: prune_hold
DELETE FROM penstock.hold WHERE held_id = ANY (:ids::bigint[]);
-- name: look_when
SELECT penstock.moment(), EXISTS (SELECT 1 FROM penstock.nudge),
       (SELECT due_at FROM penstock.hold WHERE due_at < 9007199254740991 ORDER BY due_at LIMIT 1);
