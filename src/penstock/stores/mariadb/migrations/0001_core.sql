-- The five places, history, and what names and guards them. Moments are microseconds.
-- floor: 1

CREATE TABLE IF NOT EXISTS penstock_fact (
    name  VARCHAR(64) PRIMARY KEY,
    value LONGTEXT NOT NULL
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_counter (
    name  VARCHAR(64) PRIMARY KEY,
    value BIGINT NOT NULL
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;
INSERT IGNORE INTO penstock_counter (name, value)
VALUES ('directory', 0), ('epoch', 0), ('pruned', 0);

-- What is taken is never given again, not even after a crash.
CREATE SEQUENCE IF NOT EXISTS penstock_fence CACHE 1000;

-- Whoever looks and then acts locks a row here; which one, a digest of what it looks at says.
CREATE TABLE IF NOT EXISTS penstock_guard (slot INT PRIMARY KEY) ENGINE InnoDB;
INSERT IGNORE INTO penstock_guard (slot) SELECT seq FROM seq_0_to_65535;

-- Whoever writes messages or history holds the youngest of these until its commit. message and
-- history are the last numbers that were committed before it began.
CREATE TABLE IF NOT EXISTS penstock_generation (
    number  BIGINT PRIMARY KEY,
    message BIGINT NOT NULL,
    history BIGINT NOT NULL
) ENGINE InnoDB;
INSERT IGNORE INTO penstock_generation (number, message, history) VALUES (1, 0, 0);

CREATE TABLE IF NOT EXISTS penstock_scope (
    id     INT AUTO_INCREMENT PRIMARY KEY,
    tenant VARCHAR(255) NOT NULL,
    name   VARCHAR(255) NOT NULL,
    paused TINYINT NOT NULL DEFAULT 0,
    UNIQUE (tenant, name)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_queue (
    id       INT AUTO_INCREMENT PRIMARY KEY,
    scope_id INT NOT NULL,
    name     VARCHAR(255) NOT NULL,
    state    VARCHAR(16) NOT NULL DEFAULT 'active',
    settings LONGTEXT NOT NULL,
    taken    VARCHAR(255) AS (CASE WHEN state <> 'deleted' THEN name END) STORED,
    UNIQUE (scope_id, taken)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- Written once, never rewritten. rank is the one it was published with.
CREATE TABLE IF NOT EXISTS penstock_message (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    created_at  BIGINT NOT NULL,
    rank        BIGINT NOT NULL,
    run_at      BIGINT,
    expires_at  BIGINT,
    queue_id    INT NOT NULL,
    priority    INT NOT NULL,
    type        VARCHAR(255) NOT NULL,
    meta        MEDIUMTEXT,
    body        LONGBLOB NOT NULL,
    correlation VARCHAR(255) AS (json_value(meta, '$.correlation_id')) VIRTUAL,
    KEY correlation (correlation)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_ready (
    queue_id   INT NOT NULL,
    rank       BIGINT NOT NULL,
    id         BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    attempts   SMALLINT NOT NULL,
    deliveries SMALLINT NOT NULL,
    flags      SMALLINT NOT NULL,
    type       VARCHAR(255) NOT NULL,
    PRIMARY KEY (queue_id, rank, id),
    KEY expiry (expires_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- due_at is NEVER for a message that waits in its key's line, in order of position.
CREATE TABLE IF NOT EXISTS penstock_scheduled (
    id         BIGINT PRIMARY KEY,
    due_at     BIGINT NOT NULL,
    rank       BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    position   BIGINT,
    queue_id   INT NOT NULL,
    attempts   SMALLINT NOT NULL,
    deliveries SMALLINT NOT NULL,
    flags      SMALLINT NOT NULL,
    type       VARCHAR(255) NOT NULL,
    `key`      VARCHAR(255),
    KEY due (due_at, id),
    KEY queue (queue_id, id),
    KEY line (queue_id, `key`, due_at, position),
    KEY expiry (expires_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- The message whose turn it is, through all its retries.
CREATE TABLE IF NOT EXISTS penstock_head (
    id       BIGINT NOT NULL UNIQUE,
    queue_id INT NOT NULL,
    `key`    VARCHAR(255) NOT NULL,
    PRIMARY KEY (queue_id, `key`)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_lease (
    id          BIGINT PRIMARY KEY,
    fence       BIGINT NOT NULL,
    lease_until BIGINT NOT NULL,
    claimed_at  BIGINT NOT NULL,
    rank        BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    -- How long it was asked for, last.
    length      BIGINT NOT NULL,
    queue_id    INT NOT NULL,
    attempts    SMALLINT NOT NULL,
    deliveries  SMALLINT NOT NULL,
    flags       SMALLINT NOT NULL,
    type        VARCHAR(255) NOT NULL,
    consumer    VARCHAR(255) NOT NULL,
    percent     DOUBLE,
    note        TEXT,
    -- When a run of it was first seen; short runs are not.
    begun_at    BIGINT,
    -- Of a message claimed from the dead letters.
    dead_at     BIGINT,
    dead_reason TEXT,
    dead_error  TEXT,
    -- With the fence, so that a claim finds its own and touches nobody else's.
    KEY until (lease_until, fence)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_dead (
    id         BIGINT PRIMARY KEY,
    rank       BIGINT NOT NULL,
    dead_at    BIGINT NOT NULL,
    queue_id   INT NOT NULL,
    attempts   SMALLINT NOT NULL,
    deliveries SMALLINT NOT NULL,
    flags      SMALLINT NOT NULL,
    type       VARCHAR(255) NOT NULL,
    reason     TEXT,
    error      TEXT,
    KEY queue (queue_id, dead_at, id)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- Append-only. A message ends once: final is 1 or NULL, and NULLs are never the same.
CREATE TABLE IF NOT EXISTS penstock_history (
    position   BIGINT AUTO_INCREMENT PRIMARY KEY,
    id         BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    claimed_at BIGINT,
    fence      BIGINT,
    due_at     BIGINT,
    queue_id   INT NOT NULL,
    attempts   SMALLINT NOT NULL,
    deliveries SMALLINT NOT NULL,
    final      TINYINT,
    verb       ENUM ('publish', 'complete', 'fail', 'nack', 'reject', 'release', 'park', 'reclaim',
                     'cancel', 'expire', 'redrive') NOT NULL,
    state      ENUM ('scheduled', 'ready', 'claimed', 'completed', 'failed', 'dead', 'expired',
                     'cancelled') NOT NULL,
    consumer   VARCHAR(255),
    reason     TEXT,
    error      TEXT,
    traceback  TEXT,
    UNIQUE KEY ends_once (id, final)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_dedup (
    queue_id   INT NOT NULL,
    `key`      VARCHAR(255) NOT NULL,
    id         BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    digest     VARBINARY(64) NOT NULL,
    PRIMARY KEY (queue_id, `key`),
    KEY message (id),
    KEY expiry (expires_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_name (
    queue_id INT NOT NULL,
    name     VARCHAR(255) NOT NULL,
    id       BIGINT NOT NULL UNIQUE,
    PRIMARY KEY (queue_id, name)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_result (
    id         BIGINT PRIMARY KEY,
    expires_at BIGINT NOT NULL,
    body       LONGBLOB NOT NULL,
    KEY expiry (expires_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_schedule (
    id       INT AUTO_INCREMENT PRIMARY KEY,
    queue_id INT NOT NULL,
    name     VARCHAR(255) NOT NULL,
    paused   TINYINT NOT NULL,
    next_at  BIGINT NOT NULL,
    last_at  BIGINT,
    plan     LONGTEXT NOT NULL,
    UNIQUE (queue_id, name)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_agent (
    name   VARCHAR(255) PRIMARY KEY,
    at     BIGINT NOT NULL,
    `by`   VARCHAR(255) NOT NULL,
    result TEXT
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_cursor (
    name        VARCHAR(255) PRIMARY KEY,
    epoch       BIGINT NOT NULL,
    message     BIGINT NOT NULL,
    history     BIGINT NOT NULL,
    advanced_at BIGINT NOT NULL
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- Who runs handlers on this store. A row is a notice, never a lock.
CREATE TABLE IF NOT EXISTS penstock_worker (
    id         VARCHAR(255) PRIMARY KEY,
    host       VARCHAR(255) NOT NULL,
    pid        INT NOT NULL,
    profile    MEDIUMTEXT NOT NULL,
    started_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    stopping   TINYINT NOT NULL DEFAULT 0
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;
