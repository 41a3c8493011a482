CREATE MACRO failed(verb) AS verb IN ('fail', 'nack', 'reject', 'reclaim');
CREATE MACRO worked(verb, claimed_at) AS
    claimed_at IS NOT NULL AND (failed(verb) OR verb IN ('complete', 'cancel'));
-- As fingerprints.py does, but DuckDB cannot look ahead for a digit.
CREATE MACRO template(error) AS trim(
    regexp_replace(regexp_replace(regexp_replace(regexp_replace(
    regexp_replace(regexp_replace(regexp_replace(regexp_replace(error,
    '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}', '<id>', 'g'),
    '\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b', '<address>', 'g'),
    '\b[a-z][a-z0-9+]*://\S+', '<url>', 'g'),
    '''[^''\n]{0,200}''|"[^"\n]{0,200}"', '<text>', 'g'),
    '(?:/[\w.@-]+){2,}/?', '<path>', 'g'),
    '\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}\b', '<hex>', 'g'),
    '\d+(?:[.:,]\d+)*', '<n>', 'g'),
    '\s+', ' ', 'g'));
CREATE MACRO fingerprint(error) AS left(sha256(template(error)), 16);
CREATE MACRO seconds("start", "end") AS CASE WHEN "start" IS NOT NULL AND "end" IS NOT NULL
    THEN greatest(epoch_us("end") - epoch_us("start"), 0) / 1e6 END;
CREATE MACRO bucket(seconds) AS ceil(ln(greatest(seconds, 1e-6)) / ln(1.02))::INT;
CREATE MACRO middle(bucket) AS pow(1.02, bucket) * 2 / 2.02;
CREATE MACRO spread(earlier, middle) AS
    list_aggregate(list_transform(earlier, lambda one: abs(one - middle)), 'median') * 1.4826;
CREATE MACRO unusual(value, middle, spread, either_way, least) AS
    (CASE WHEN either_way THEN abs(value - middle) ELSE value - middle END)
    > 6 * greatest(spread, abs(middle) * 0.05, least);

-- step: attempt
WITH rests AS (
    SELECT id, list({
        'position': position, 'ready_at': coalesce(due_at, "at"), 'state': state,
        'consumer': consumer, 'fingerprint': fingerprint(error), 'failed': failed(verb)}) AS rests
    FROM history WHERE NOT final GROUP BY id),
placed AS (
    SELECT h.*, m.type, m.priority, m.created_at, m.run_at, m.max_attempts, m.lease, m.correlation_id,
        octet_length(m.body) AS body_bytes, fingerprint(h.error) AS fingerprint,
        list_filter(r.rests, lambda rest: rest.position < h.position) AS earlier
    FROM history h LEFT JOIN message m USING (id) LEFT JOIN rests r USING (id)),
last AS (
    SELECT *, list_max(earlier).state AS rested,
        coalesce(list_max(earlier).ready_at, greatest(created_at, run_at)) AS ready_at,
        list_filter(earlier, lambda rest: rest.failed AND rest.fingerprint = fingerprint) AS alike
    FROM placed)
SELECT * EXCLUDE (earlier, alike, lease, max_attempts, fence, run_at),
    coalesce(lease, 30.0) AS lease, coalesce(max_attempts, 20) - attempts AS attempts_left,
    seconds(ready_at, claimed_at) AS wait, seconds(claimed_at, "at") AS run,
    CASE WHEN failed(verb) AND error IS NOT NULL THEN coalesce(len(alike), 0) + 1 END AS alike,
    CASE WHEN failed(verb) AND error IS NOT NULL THEN len(list_distinct(list_append(
        list_transform(alike, lambda rest: rest.consumer), consumer))) END AS alike_consumers,
    strftime("at", '%Y-%m-%d') AS day
FROM last

-- step: metrics_hour
WITH tried AS (
    SELECT date_trunc('hour', "at") AS hour, *, worked(verb, claimed_at) AS done,
        state IN ('ready', 'scheduled') AS returned
    FROM attempt),
tallied AS (
    SELECT hour, queue_id, type, max(tenant) AS tenant, max(scope) AS scope, max(queue) AS queue,
        count(*) FILTER (done) AS attempts,
        count(*) FILTER (done AND state = 'completed') AS completed,
        count(*) FILTER (done AND failed(verb)) AS failures,
        count(*) FILTER (done AND failed(verb) AND returned) AS retried,
        count(*) FILTER (verb = 'reclaim') AS lost,
        count(*) FILTER (state = 'failed') AS failed,
        count(*) FILTER (state = 'dead' AND rested IS DISTINCT FROM 'dead') AS dead,
        count(*) FILTER (state = 'expired') AS expired,
        count(*) FILTER (state = 'cancelled') AS cancelled,
        count(*) FILTER (verb = 'redrive' AND returned) AS redriven,
        count(*) FILTER (verb IN ('release', 'park')) AS handed_back,
        count(*) FILTER (done AND state = 'completed' AND run < 0.5) AS flash,
        sum(wait) FILTER (done) AS wait_sum, sum(run) FILTER (done) AS run_sum,
        max(wait) FILTER (done) AS wait_max, max(run) FILTER (done) AS run_max,
        quantile_disc(bucket(wait), [0.5, 0.95, 0.99]) FILTER (done) AS waits,
        quantile_disc(bucket(run), [0.5, 0.95, 0.99]) FILTER (done) AS runs,
        histogram(bucket(wait)) FILTER (done) AS wait_histogram,
        histogram(bucket(run)) FILTER (done) AS run_histogram
    FROM tried GROUP BY ALL),
arrived AS (
    SELECT date_trunc('hour', created_at) AS hour, queue_id, type, max(tenant) AS tenant,
        max(scope) AS scope, max(queue) AS queue, count(*) AS published
    FROM message GROUP BY ALL)
SELECT * EXCLUDE (waits, runs, tenant, scope, queue, tenant_1, scope_1, queue_1),
    coalesce(tenant, tenant_1) AS tenant, coalesce(scope, scope_1) AS scope,
    coalesce(queue, queue_1) AS queue, failures / attempts AS failure_rate,
    retried / attempts AS retry_rate, middle(waits[1]) AS wait_p50, middle(waits[2]) AS wait_p95,
    middle(waits[3]) AS wait_p99, middle(runs[1]) AS run_p50, middle(runs[2]) AS run_p95,
    middle(runs[3]) AS run_p99, strftime(hour, '%Y-%m-%d') AS day
FROM (SELECT tallied.*, arrived.* RENAME (tenant AS tenant_1, scope AS scope_1, queue AS queue_1)
      FROM tallied FULL JOIN arrived USING (hour, queue_id, type))

-- step: consumer_hour
SELECT date_trunc('hour', "at") AS hour, consumer, queue_id, max(tenant) AS tenant,
    max(scope) AS scope, max(queue) AS queue, count(*) AS attempts,
    count(*) FILTER (state = 'completed') AS completed, count(*) FILTER (failed(verb)) AS failures,
    count(*) FILTER (verb = 'reclaim') AS lost, sum(run) AS busy, max(run) AS run_max,
    min(claimed_at) AS first_at, max("at") AS last_at, strftime(hour, '%Y-%m-%d') AS day
FROM attempt WHERE worked(verb, claimed_at) AND consumer IS NOT NULL GROUP BY ALL

-- step: backlog_minute
WITH moved AS (
    SELECT date_trunc('minute', created_at) AS minute, queue_id, tenant, scope, queue,
        1 AS arrived, 0 AS "left", 0 AS died
    FROM message
    UNION ALL
    SELECT date_trunc('minute', "at"), queue_id, tenant, scope, queue,
        (was_dead AND NOT is_dead AND NOT final)::INT, (NOT was_dead AND (final OR is_dead))::INT,
        is_dead::INT - was_dead::INT
    FROM (SELECT *, rested IS NOT DISTINCT FROM 'dead' AS was_dead, state = 'dead' AS is_dead
          FROM attempt)
    WHERE final OR is_dead OR was_dead),
changed AS (
    SELECT minute, queue_id, max(tenant) AS tenant, max(scope) AS scope, max(queue) AS queue,
        sum(arrived) AS arrived, sum("left") AS "left", sum(died) AS died
    FROM moved GROUP BY ALL)
SELECT *, sum(arrived - "left") OVER line AS backlog, sum(died) OVER line AS dead,
    strftime(minute, '%Y-%m-%d') AS day
FROM changed WINDOW line AS (PARTITION BY queue_id ORDER BY minute)

-- step: triage
WITH broken AS (
    SELECT date_trunc('day', "at") AS day_at, * FROM attempt
    WHERE worked(verb, claimed_at) AND failed(verb) AND fingerprint IS NOT NULL),
clusters AS (
    SELECT day_at, queue_id, type, fingerprint, max(tenant) AS tenant, max(scope) AS scope,
        max(queue) AS queue, count(*) AS count, count(DISTINCT id) AS messages,
        count(DISTINCT id) FILTER (state = 'dead') AS dead, min("at") AS first_at,
        max("at") AS last_at, arg_min({'id': id, 'error': error[:1000]}, position) AS one
    FROM broken GROUP BY ALL),
totals AS (
    SELECT date_trunc('day', hour) AS day_at, queue_id, type, sum(attempts) AS tried,
        sum(failures) AS missed
    FROM metrics_hour GROUP BY ALL HAVING missed > 0),
known AS (
    SELECT *, hash(id) % 1000000 / 1e6 < 500 / tried AS usual,
        failed(verb) AND fingerprint IS NOT NULL AND hash(id) % 1000000 / 1e6 < 500 / missed AS hit
    FROM (SELECT date_trunc('day', "at") AS day_at, * FROM attempt WHERE worked(verb, claimed_at))
    JOIN totals USING (day_at, queue_id, type)),
drawn AS (
    SELECT DISTINCT day_at, queue_id, type, id, unnest(
        CASE WHEN usual AND hit THEN ['', fingerprint] WHEN usual THEN [''] ELSE [fingerprint] END
        ) AS "group"
    FROM known WHERE usual OR hit),
bodies AS (
    SELECT id, from_json(decode(body), '"MAP(VARCHAR, VARCHAR)"') AS body
    FROM message WHERE id IN (SELECT id FROM drawn)),
entries AS (SELECT id, unnest(map_entries(body), recursive := true) FROM bodies),
sizes AS (SELECT day_at, queue_id, type, "group", count(*) AS size FROM drawn GROUP BY ALL),
everyone AS (SELECT day_at, queue_id, type, size AS everyone_size FROM sizes WHERE "group" = ''),
shares AS (
    SELECT day_at, queue_id, type, "group", size, key AS name, value, count(*) AS times,
        count(*) / any_value(size) AS share
    FROM drawn JOIN sizes USING (day_at, queue_id, type, "group") JOIN entries USING (id)
    WHERE length(value) <= 64 GROUP BY ALL),
pairs AS (
    SELECT day_at, count(*) AS pairs FROM shares WHERE "group" <> '' AND size >= 10 GROUP BY ALL),
compared AS (
    SELECT day_at, queue_id, type, one."group" AS fingerprint, name, value, one.share, one.size,
        coalesce(usual.share, 1 / 500) AS usual, pairs,
        (one.times + coalesce(usual.times, 0)) / (one.size + everyone_size) AS pooled
    FROM shares AS one JOIN everyone USING (day_at, queue_id, type) JOIN pairs USING (day_at)
        LEFT JOIN (SELECT * FROM shares WHERE "group" = '') AS usual
        USING (day_at, queue_id, type, name, value)
    WHERE one."group" <> '' AND one.share >= 0.3 AND one.size >= 10),
notable AS (
    SELECT * FROM compared WHERE share >= usual * 1.5 AND size * (share * ln(share / pooled)
        + CASE WHEN share < 1 THEN (1 - share) * ln((1 - share) / (1 - pooled)) ELSE 0 END)
        > ln(pairs / 0.01)),
attributes AS (
    SELECT day_at, queue_id, type, fingerprint, list({'name': name, 'value': value, 'share': share,
        'usual': usual} ORDER BY share / usual DESC)[:5] AS attributes
    FROM notable GROUP BY ALL)
SELECT left(sha256(concat_ws('|', day_at, queue_id, type, fingerprint)), 20) AS id,
    clusters.*, template(one.error) AS template, attributes, strftime(day_at, '%Y-%m-%d') AS day
FROM clusters LEFT JOIN attributes USING (day_at, queue_id, type, fingerprint)

-- step: anomaly
WITH told AS (
    SELECT date_trunc('hour', "at") AS hour, queue_id, type, tenant, scope, queue, id, position,
        "at", unnest(list_filter([
            CASE WHEN run > 10 THEN {'kind': 'slow_processing', 'value': run} END,
            CASE WHEN deliveries <= 1 AND rested IS NULL AND body_bytes > 5000
                THEN {'kind': 'large_payload', 'value': body_bytes::DOUBLE} END,
            CASE WHEN verb = 'reclaim' THEN {'kind': 'lost_lease', 'value': run} END,
            CASE WHEN alike IS NOT NULL AND state IN ('ready', 'scheduled') AND attempts_left = 1
                THEN {'kind': 'last_attempt', 'value': attempts::DOUBLE} END,
            CASE WHEN state = 'dead' AND rested IS DISTINCT FROM 'dead'
                THEN {'kind': 'dead_letter', 'value': attempts::DOUBLE} END,
            CASE WHEN run - lease > lease * 2 THEN {'kind': 'overdue', 'value': run - lease} END,
            CASE WHEN alike >= 3 AND alike_consumers >= 2
                THEN {'kind': 'poison_message', 'value': alike::DOUBLE} END],
            lambda each: each IS NOT NULL), recursive := true)
    FROM attempt),
by_message AS (
    SELECT hour, kind, queue_id, type, NULL AS consumer, max(tenant) AS tenant,
        max(scope) AS scope, max(queue) AS queue, count(*) AS count, max(value) AS value,
        arg_max(id, value) AS message_id, min("at") AS first_at, max("at") AS last_at
    FROM told GROUP BY ALL),
by_hour AS (
    SELECT hour, 'flash_message' AS kind, queue_id, type, tenant, scope, queue, flash AS count,
        run_p50 AS value
    FROM metrics_hour WHERE flash > 0
    UNION ALL
    SELECT hour, 'retry_storm', queue_id, type, tenant, scope, queue, retried, retried / attempts
    FROM metrics_hour WHERE retried >= 20 AND retried / attempts >= 0.5),
stuck AS (
    SELECT hour, 'stuck_consumer' AS kind, queue_id, consumer, tenant, scope, queue, lost AS count,
        lost AS value, first_at, last_at
    FROM consumer_hour WHERE lost >= 3 AND completed = 0),
claims AS (
    SELECT date_trunc('hour', claimed_at) AS hour, date_trunc('second', claimed_at) AS second, *
    FROM attempt WHERE claimed_at IS NOT NULL AND consumer IS NOT NULL),
busy_claims AS (
    SELECT hour, consumer, queue_id FROM claims GROUP BY ALL HAVING count(*) >= 50),
bursts AS (
    SELECT hour, 'claim_burst' AS kind, queue_id, consumer, max(tenant) AS tenant,
        max(scope) AS scope, max(queue) AS queue, max(several) AS count, max(several) AS value,
        min(first_at) AS first_at, max(last_at) AS last_at
    FROM (SELECT *, sum(one) OVER (PARTITION BY consumer, queue_id, hour ORDER BY second
              RANGE BETWEEN INTERVAL 4 SECONDS PRECEDING AND CURRENT ROW) AS several
          FROM (SELECT consumer, queue_id, hour, second, tenant, scope, queue, count(*) AS one,
                    min(claimed_at) AS first_at, max(claimed_at) AS last_at
                FROM claims SEMI JOIN busy_claims USING (hour, consumer, queue_id) GROUP BY ALL))
    WHERE several >= 50 GROUP BY ALL),
sent AS (
    SELECT date_trunc('hour', created_at) AS hour, date_trunc('second', created_at) AS second, *
    FROM message),
busy_sent AS (SELECT hour, queue_id, type FROM sent GROUP BY ALL HAVING count(*) >= 1000),
bulks AS (
    SELECT hour, 'bulk_publish' AS kind, queue_id, type, max(tenant) AS tenant,
        max(scope) AS scope, max(queue) AS queue, max(several) AS count, max(several) AS value,
        min(first_at) AS first_at, max(last_at) AS last_at
    FROM (SELECT *, sum(one) OVER (PARTITION BY queue_id, type, hour ORDER BY second
              RANGE BETWEEN INTERVAL 4 SECONDS PRECEDING AND CURRENT ROW) AS several
          FROM (SELECT queue_id, type, hour, second, tenant, scope, queue, count(*) AS one,
                    min(created_at) AS first_at, max(created_at) AS last_at
                FROM sent SEMI JOIN busy_sent USING (hour, queue_id, type) GROUP BY ALL))
    WHERE several >= 1000 GROUP BY ALL),
filled AS (
    SELECT hour, queue_id, type, series.tenant, series.scope, series.queue,
        coalesce(completed, 0)::DOUBLE AS completed,
        CASE WHEN attempts >= 50 THEN failure_rate END AS failure_rate,
        CASE WHEN attempts >= 50 THEN wait_p95 END AS wait_p95,
        CASE WHEN attempts >= 50 THEN run_p95 END AS run_p95
    FROM (SELECT queue_id, type, max(tenant) AS tenant, max(scope) AS scope, max(queue) AS queue
          FROM metrics_hour GROUP BY ALL) AS series
    CROSS JOIN (SELECT DISTINCT hour FROM metrics_hour)
    LEFT JOIN metrics_hour USING (hour, queue_id, type)),
series AS (
    SELECT *, unnest([
        {'kind': 'unusual_throughput', 'value': completed, 'either_way': true, 'least': 5.0,
         'earlier': list(completed) OVER days},
        {'kind': 'unusual_failures', 'value': failure_rate, 'either_way': false, 'least': 0.02,
         'earlier': list(failure_rate) OVER days},
        {'kind': 'unusual_wait', 'value': wait_p95, 'either_way': false, 'least': 0.25,
         'earlier': list(wait_p95) OVER days},
        {'kind': 'unusual_run', 'value': run_p95, 'either_way': false, 'least': 0.05,
         'earlier': list(run_p95) OVER days}], recursive := true)
    FROM filled
    WINDOW days AS (PARTITION BY queue_id, type, extract('hour' FROM hour) ORDER BY hour
                    ROWS BETWEEN 28 PRECEDING AND 1 PRECEDING)),
seasons AS (
    SELECT hour, kind, queue_id, type, tenant, scope, queue, 1 AS count, value,
        list_aggregate(list_filter(earlier, lambda one: one IS NOT NULL), 'median') AS middle
    FROM series
    WHERE len(list_filter(earlier, lambda one: one IS NOT NULL)) >= 4
        AND (NOT either_way OR greatest(value, middle) >= 50)
        AND unusual(value, middle, spread(earlier, middle), either_way, least))
SELECT left(sha256(concat_ws('|', hour, kind, queue_id, type, consumer)), 20) AS id, *,
    strftime(hour, '%Y-%m-%d') AS day
FROM (FROM by_message UNION ALL BY NAME FROM by_hour UNION ALL BY NAME FROM stuck
      UNION ALL BY NAME FROM bursts UNION ALL BY NAME FROM bulks UNION ALL BY NAME FROM seasons)
