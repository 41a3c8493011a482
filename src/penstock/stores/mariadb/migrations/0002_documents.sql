-- What features keep beside the queues, and who did what.
-- floor: 1

CREATE TABLE IF NOT EXISTS penstock_document (
    kind       VARCHAR(64) NOT NULL,
    name       VARCHAR(512) NOT NULL,
    version    BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    body       LONGBLOB NOT NULL,
    PRIMARY KEY (kind, name),
    KEY expiry (expires_at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS penstock_act (
    id         BIGINT AUTO_INCREMENT PRIMARY KEY,
    at         BIGINT NOT NULL,
    tenant     VARCHAR(255) NOT NULL,
    subject    TEXT NOT NULL,
    verb       TEXT NOT NULL,
    target     TEXT NOT NULL,
    scope      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    detail     TEXT NOT NULL,
    KEY tenant (tenant, id),
    KEY at (at)
) ENGINE InnoDB COLLATE utf8mb4_nopad_bin;
