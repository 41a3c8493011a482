-- The five places, history, and what names and guards them. Moments are microseconds.
-- floor: 1

CREATE TABLE penstock_fact (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE penstock_counter (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO penstock_counter (name, value)
VALUES ('fence', 0), ('directory', 0), ('epoch', 0), ('pruned', 0);

CREATE TABLE penstock_scope (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    name   TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
);

CREATE TABLE penstock_queue (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    scope_id INTEGER NOT NULL,
    name     TEXT NOT NULL,
    state    TEXT NOT NULL DEFAULT 'active',
    settings TEXT NOT NULL
);
CREATE UNIQUE INDEX penstock_queue_name ON penstock_queue (scope_id, name) WHERE state != 'deleted';

-- Written once, never rewritten. rank is the one it was published with.
CREATE TABLE penstock_message (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id   INTEGER NOT NULL,
    type       TEXT NOT NULL,
    priority   INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    run_at     INTEGER,
    expires_at INTEGER,
    body       BLOB NOT NULL,
    meta       TEXT
);
CREATE INDEX penstock_message_correlation ON penstock_message (meta ->> 'correlation_id')
    WHERE meta IS NOT NULL AND meta ->> 'correlation_id' IS NOT NULL;

CREATE TABLE penstock_ready (
    queue_id   INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    type       TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    flags      INTEGER NOT NULL,
    PRIMARY KEY (queue_id, rank, id)
) WITHOUT ROWID;
CREATE INDEX penstock_ready_expiry ON penstock_ready (expires_at)
    WHERE expires_at < 9007199254740991;

-- due_at is NEVER for a message that waits in its key's line, in order of position.
CREATE TABLE penstock_scheduled (
    due_at     INTEGER NOT NULL,
    id         INTEGER NOT NULL,
    queue_id   INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    type       TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    flags      INTEGER NOT NULL,
    key        TEXT,
    position   INTEGER,
    PRIMARY KEY (due_at, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX penstock_scheduled_id ON penstock_scheduled (id);
CREATE INDEX penstock_scheduled_queue ON penstock_scheduled (queue_id, id);
CREATE INDEX penstock_scheduled_line ON penstock_scheduled (queue_id, key, position)
    WHERE due_at = 9007199254740991;
CREATE INDEX penstock_scheduled_expiry ON penstock_scheduled (expires_at)
    WHERE expires_at < 9007199254740991;

-- The message whose turn it is, through all its retries.
CREATE TABLE penstock_head (
    queue_id INTEGER NOT NULL,
    key      TEXT NOT NULL,
    id       INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;

CREATE TABLE penstock_lease (
    id          INTEGER PRIMARY KEY,
    fence       INTEGER NOT NULL,
    queue_id    INTEGER NOT NULL,
    rank        INTEGER NOT NULL,
    type        TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    deliveries  INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    flags       INTEGER NOT NULL,
    consumer    TEXT NOT NULL,
    claimed_at  INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    -- How long it was asked for, last.
    length      INTEGER NOT NULL,
    percent     REAL,
    note        TEXT,
    -- When a run of it was first seen; short runs are not.
    begun_at    INTEGER,
    -- Of a message claimed from the dead letters.
    dead_at     INTEGER,
    dead_reason TEXT,
    dead_error  TEXT
);
CREATE INDEX penstock_lease_until ON penstock_lease (lease_until);

CREATE TABLE penstock_dead (
    id         INTEGER PRIMARY KEY,
    queue_id   INTEGER NOT NULL,
    rank       INTEGER NOT NULL,
    type       TEXT NOT NULL,
    attempts   INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    flags      INTEGER NOT NULL,
    dead_at    INTEGER NOT NULL,
    reason     TEXT,
    error      TEXT
);
CREATE INDEX penstock_dead_queue ON penstock_dead (queue_id, dead_at, id);

-- Append-only. A message ends once.
CREATE TABLE penstock_history (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    id         INTEGER NOT NULL,
    queue_id   INTEGER NOT NULL,
    verb       TEXT NOT NULL,
    state      TEXT NOT NULL,
    reason     TEXT,
    error      TEXT,
    attempts   INTEGER NOT NULL,
    deliveries INTEGER NOT NULL,
    consumer   TEXT,
    fence      INTEGER,
    claimed_at INTEGER,
    at         INTEGER NOT NULL,
    due_at     INTEGER,
    final      INTEGER NOT NULL,
    traceback  TEXT
);
CREATE UNIQUE INDEX penstock_history_final ON penstock_history (id) WHERE final = 1;
CREATE INDEX penstock_history_story ON penstock_history (id) WHERE final = 0;

CREATE TABLE penstock_dedup (
    queue_id   INTEGER NOT NULL,
    key        TEXT NOT NULL,
    id         INTEGER NOT NULL,
    digest     BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (queue_id, key)
) WITHOUT ROWID;
CREATE INDEX penstock_dedup_unique ON penstock_dedup (id)
    WHERE expires_at = 9007199254740991;
CREATE INDEX penstock_dedup_expiry ON penstock_dedup (expires_at)
    WHERE expires_at < 9007199254740991;

CREATE TABLE penstock_name (
    queue_id INTEGER NOT NULL,
    name     TEXT NOT NULL,
    id       INTEGER NOT NULL UNIQUE,
    PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;

CREATE TABLE penstock_result (
    id         INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL,
    body       BLOB NOT NULL
);
CREATE INDEX penstock_result_expiry ON penstock_result (expires_at);

CREATE TABLE penstock_schedule (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id INTEGER NOT NULL,
    name     TEXT NOT NULL,
    paused   INTEGER NOT NULL,
    next_at  INTEGER NOT NULL,
    last_at  INTEGER,
    plan     TEXT NOT NULL,
    UNIQUE (queue_id, name)
);

CREATE TABLE penstock_agent (
    name   TEXT PRIMARY KEY,
    at     INTEGER NOT NULL,
    by     TEXT NOT NULL,
    result TEXT
) WITHOUT ROWID;

CREATE TABLE penstock_cursor (
    name        TEXT PRIMARY KEY,
    epoch       INTEGER NOT NULL,
    message     INTEGER NOT NULL,
    history     INTEGER NOT NULL,
    advanced_at INTEGER NOT NULL
) WITHOUT ROWID;

-- Who runs handlers on this store. A row is a notice, never a lock.
CREATE TABLE penstock_worker (
    id         TEXT PRIMARY KEY,
    host       TEXT NOT NULL,
    pid        INTEGER NOT NULL,
    profile    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    stopping   INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
