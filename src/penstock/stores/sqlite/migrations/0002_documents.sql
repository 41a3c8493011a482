-- What features keep beside the queues, and who did what.
-- floor: 1

CREATE TABLE penstock_document (
    kind       TEXT NOT NULL,
    name       TEXT NOT NULL,
    body       BLOB NOT NULL,
    version    INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE INDEX penstock_document_expiry ON penstock_document (expires_at)
    WHERE expires_at < 9007199254740991;

CREATE TABLE penstock_act (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    tenant     TEXT NOT NULL,
    subject    TEXT NOT NULL,
    verb       TEXT NOT NULL,
    target     TEXT NOT NULL,
    scope      TEXT NOT NULL,
    request_id TEXT NOT NULL,
    detail     TEXT NOT NULL
);
CREATE INDEX penstock_act_tenant ON penstock_act (tenant, id);
CREATE INDEX penstock_act_at ON penstock_act (at);
