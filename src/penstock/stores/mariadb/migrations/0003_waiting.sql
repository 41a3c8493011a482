-- What messages wait for, and what their runs have stored.
-- floor: 3

ALTER TABLE penstock_history MODIFY verb ENUM ('publish', 'complete', 'fail', 'nack', 'reject',
    'release', 'park', 'reclaim', 'cancel', 'expire', 'redrive', 'wait', 'decide') NOT NULL;

-- A scheduled message with the flag HELD has one row for each thing it waits for. due_at is NEVER
-- for one without a time limit, number is the fence of the delivery that waits, or 0.
CREATE TABLE IF NOT EXISTS penstock_hold (
    held_id BIGINT NOT NULL,
    number  BIGINT NOT NULL,
    due_at  BIGINT NOT NULL,
    place   INT NOT NULL,
    need    INT NOT NULL,
    kind    VARCHAR(16) NOT NULL,
    name    VARCHAR(255) NOT NULL,
    policy  VARCHAR(16) NOT NULL,
    on_dead VARCHAR(16) NOT NULL,
    PRIMARY KEY (held_id, place),
    KEY due (due_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

-- A request to look at a held message.
CREATE TABLE IF NOT EXISTS penstock_nudge (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    held_id    BIGINT NOT NULL,
    awaited_id BIGINT,
    KEY held (held_id)
) ENGINE InnoDB;

-- A message waits for the end of another. state is NULL until that was seen.
CREATE TABLE IF NOT EXISTS penstock_edge (
    held_id    BIGINT NOT NULL,
    number     BIGINT NOT NULL,
    awaited_id BIGINT NOT NULL,
    state      VARCHAR(16),
    PRIMARY KEY (held_id, number, awaited_id),
    KEY awaited (awaited_id)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_step (
    message_id BIGINT NOT NULL,
    due_at     BIGINT,
    at         BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    position   INT NOT NULL,
    done       BOOLEAN NOT NULL,
    kind       VARCHAR(16) NOT NULL,
    name       VARCHAR(255) NOT NULL,
    `key`      VARCHAR(255) NOT NULL,
    body       LONGBLOB NOT NULL,
    PRIMARY KEY (message_id, name, `key`)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_signal (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    message_id BIGINT NOT NULL,
    at         BIGINT NOT NULL,
    consumed   BOOLEAN NOT NULL,
    name       VARCHAR(255) NOT NULL,
    `key`      VARCHAR(255),
    body       LONGBLOB NOT NULL,
    KEY message (message_id, name, id)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;
