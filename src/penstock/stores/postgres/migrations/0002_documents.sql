-- What features keep beside the queues, and who did what.
-- floor: 1

CREATE TABLE penstock.document (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    body       bytea NOT NULL,
    version    bigint NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (kind, name)
);
CREATE INDEX document_expiry ON penstock.document (expires_at) WHERE expires_at < 9007199254740991;

CREATE TABLE penstock.act (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         bigint NOT NULL,
    tenant     text NOT NULL,
    subject    text NOT NULL,
    verb       text NOT NULL,
    target     text NOT NULL,
    scope      text NOT NULL,
    request_id text NOT NULL,
    detail     text NOT NULL
);
CREATE INDEX act_tenant ON penstock.act (tenant, id);
CREATE INDEX act_at ON penstock.act (at);
