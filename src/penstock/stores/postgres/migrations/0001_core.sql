-- The five places, history, and what names and guards them. Moments are microseconds.
-- floor: 1

-- The one clock: every moment is the server's, the same for all of a statement.
CREATE FUNCTION penstock.moment() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    AS 'SELECT (date_part(''epoch'', statement_timestamp()) * 1000000)::bigint';

-- Words that fit into four bytes: a row of history is written for every message.
CREATE TYPE penstock.verb AS ENUM ('publish', 'complete', 'fail', 'nack', 'reject', 'release',
    'park', 'reclaim', 'cancel', 'expire', 'redrive');
CREATE TYPE penstock.state AS ENUM ('scheduled', 'ready', 'claimed', 'completed', 'failed', 'dead',
    'expired', 'cancelled');

CREATE TABLE penstock.fact (
    name  text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE penstock.counter (
    name  text PRIMARY KEY,
    value bigint NOT NULL
);
INSERT INTO penstock.counter (name, value) VALUES ('directory', 0), ('epoch', 0), ('pruned', 0);

CREATE SEQUENCE penstock.message_id CACHE 1;
CREATE SEQUENCE penstock.fence CACHE 1;
CREATE SEQUENCE penstock.position CACHE 1;

CREATE TABLE penstock.scope (
    id     int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    name   text NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    UNIQUE (tenant, name)
);

CREATE TABLE penstock.queue (
    id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope_id int NOT NULL,
    name     text NOT NULL,
    state    text NOT NULL DEFAULT 'active',
    settings json NOT NULL
);
CREATE UNIQUE INDEX queue_name ON penstock.queue (scope_id, name) WHERE state <> 'deleted';

-- Written once, never rewritten. rank is the one it was published with, NULL if that follows from
-- its priority; tx is for the export.
CREATE TABLE penstock.message (
    id         bigint PRIMARY KEY DEFAULT nextval('penstock.message_id'),
    created_at bigint NOT NULL,
    tx         bigint NOT NULL DEFAULT txid_current(),
    rank       bigint,
    run_at     bigint,
    expires_at bigint,
    queue_id   int NOT NULL,
    priority   int NOT NULL,
    type       text NOT NULL,
    meta       json,
    body       bytea NOT NULL
);
CREATE INDEX message_tx ON penstock.message USING brin (tx)
    WITH (autosummarize = on, pages_per_range = 32);
CREATE INDEX message_correlation ON penstock.message ((meta ->> 'correlation_id'))
    WHERE meta ->> 'correlation_id' IS NOT NULL;

CREATE TABLE penstock.ready (
    rank       bigint NOT NULL,
    id         bigint NOT NULL,
    expires_at bigint NOT NULL,
    queue_id   int NOT NULL,
    attempts   smallint NOT NULL,
    deliveries smallint NOT NULL,
    flags      smallint NOT NULL,
    type       text NOT NULL,
    PRIMARY KEY (queue_id, rank, id)
);
CREATE INDEX ready_expiry ON penstock.ready (expires_at, queue_id)
    WHERE expires_at < 9007199254740991;

-- due_at is NEVER for a message that waits in its key's line, in order of position.
CREATE TABLE penstock.scheduled (
    due_at     bigint NOT NULL,
    id         bigint NOT NULL,
    rank       bigint NOT NULL,
    expires_at bigint NOT NULL,
    position   bigint,
    queue_id   int NOT NULL,
    attempts   smallint NOT NULL,
    deliveries smallint NOT NULL,
    flags      smallint NOT NULL,
    type       text NOT NULL,
    key        text
);
CREATE INDEX scheduled_due ON penstock.scheduled (due_at, id) WHERE due_at < 9007199254740991;
CREATE INDEX scheduled_queue ON penstock.scheduled (queue_id, id);
CREATE INDEX scheduled_line ON penstock.scheduled (queue_id, key, position)
    WHERE due_at = 9007199254740991;
CREATE INDEX scheduled_expiry ON penstock.scheduled (expires_at)
    WHERE expires_at < 9007199254740991;
-- A primary key comes last: of indexes that seem alike while a table is empty, the youngest is
-- taken, and a plan is kept for long.
ALTER TABLE penstock.scheduled ADD PRIMARY KEY (id);

-- The message whose turn it is, through all its retries.
CREATE TABLE penstock.head (
    id       bigint NOT NULL UNIQUE,
    queue_id int NOT NULL,
    key      text NOT NULL,
    PRIMARY KEY (queue_id, key)
);

-- What it is called and when it expires, its message knows.
CREATE TABLE penstock.lease (
    id          bigint NOT NULL,
    fence       bigint NOT NULL,
    lease_until bigint NOT NULL,
    claimed_at  bigint NOT NULL,
    rank        bigint NOT NULL,
    -- How long it was asked for, last, in milliseconds.
    length      int NOT NULL,
    queue_id    int NOT NULL,
    attempts    smallint NOT NULL,
    deliveries  smallint NOT NULL,
    flags       smallint NOT NULL,
    consumer    text NOT NULL,
    percent     float8,
    note        text,
    -- When a run of it was first seen; short runs are not.
    begun_at    bigint,
    -- Of a message claimed from the dead letters.
    dead_at     bigint,
    dead_reason text,
    dead_error  text
) WITH (fillfactor = 70);
CREATE INDEX lease_until ON penstock.lease (lease_until);
ALTER TABLE penstock.lease ADD PRIMARY KEY (id);

CREATE TABLE penstock.dead (
    id         bigint NOT NULL,
    rank       bigint NOT NULL,
    dead_at    bigint NOT NULL,
    queue_id   int NOT NULL,
    attempts   smallint NOT NULL,
    deliveries smallint NOT NULL,
    flags      smallint NOT NULL,
    type       text NOT NULL,
    reason     text,
    error      text
);
CREATE INDEX dead_queue ON penstock.dead (queue_id, dead_at, id);
ALTER TABLE penstock.dead ADD PRIMARY KEY (id);

-- Append-only. A message ends once.
CREATE TABLE penstock.history (
    position   bigint NOT NULL DEFAULT nextval('penstock.position'),
    tx         bigint NOT NULL DEFAULT txid_current(),
    id         bigint NOT NULL,
    at         bigint NOT NULL,
    claimed_at bigint,
    fence      bigint,
    due_at     bigint,
    queue_id   int NOT NULL,
    verb       penstock.verb NOT NULL,
    state      penstock.state NOT NULL,
    attempts   smallint NOT NULL,
    deliveries smallint NOT NULL,
    final      boolean NOT NULL,
    consumer   text,
    reason     text,
    error      text,
    traceback  text
);
CREATE UNIQUE INDEX history_final ON penstock.history (id) WHERE final;
CREATE INDEX history_story ON penstock.history (id) WHERE NOT final;
CREATE INDEX history_tx ON penstock.history USING brin (tx, position)
    WITH (autosummarize = on, pages_per_range = 32);

CREATE TABLE penstock.dedup (
    id         bigint NOT NULL,
    expires_at bigint NOT NULL,
    queue_id   int NOT NULL,
    key        text NOT NULL,
    digest     bytea NOT NULL,
    PRIMARY KEY (queue_id, key)
);
CREATE INDEX dedup_unique ON penstock.dedup (id) WHERE expires_at = 9007199254740991;
CREATE INDEX dedup_expiry ON penstock.dedup (expires_at) WHERE expires_at < 9007199254740991;

CREATE TABLE penstock.name (
    id       bigint NOT NULL UNIQUE,
    queue_id int NOT NULL,
    name     text NOT NULL,
    PRIMARY KEY (queue_id, name)
);

CREATE TABLE penstock.result (
    id         bigint NOT NULL,
    expires_at bigint NOT NULL,
    body       bytea NOT NULL
);
CREATE INDEX result_expiry ON penstock.result (expires_at);
ALTER TABLE penstock.result ADD PRIMARY KEY (id);

CREATE TABLE penstock.schedule (
    id       int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id int NOT NULL,
    name     text NOT NULL,
    paused   boolean NOT NULL,
    next_at  bigint NOT NULL,
    last_at  bigint,
    plan     json NOT NULL,
    UNIQUE (queue_id, name)
);

CREATE TABLE penstock.agent (
    name   text PRIMARY KEY,
    at     bigint NOT NULL,
    by     text NOT NULL,
    result text
);

CREATE TABLE penstock.cursor (
    name        text PRIMARY KEY,
    epoch       bigint NOT NULL,
    message     bigint NOT NULL,
    history     bigint NOT NULL,
    advanced_at bigint NOT NULL
);

-- Who runs handlers on this store. A row is a notice, never a lock.
CREATE TABLE penstock.worker (
    id         text PRIMARY KEY,
    host       text NOT NULL,
    pid        int NOT NULL,
    profile    text NOT NULL,
    started_at bigint NOT NULL,
    seen_at    bigint NOT NULL,
    stopping   boolean NOT NULL DEFAULT false
);

-- Rows come and go: what they leave behind is cleared early, not when a fifth of the table died.
-- The pages stay, for the next rows: to give them back locks everybody out.
ALTER TABLE penstock.ready SET (autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE penstock.lease SET (autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE penstock.scheduled SET (autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
