-- What messages wait for, and what their runs have stored.
-- floor: 3

ALTER TYPE penstock.verb ADD VALUE 'wait';
ALTER TYPE penstock.verb ADD VALUE 'decide';

-- A scheduled message with the flag HELD has one row for each thing it waits for. due_at is NEVER
-- for one without a time limit; number is the fence of the delivery that waits, or 0.
CREATE TABLE penstock.hold (
    held_id bigint NOT NULL,
    number  bigint NOT NULL,
    due_at  bigint NOT NULL,
    place   int NOT NULL,
    need    int NOT NULL,
    kind    text NOT NULL,
    name    text NOT NULL,
    policy  text NOT NULL,
    on_dead text NOT NULL
);
CREATE INDEX hold_due ON penstock.hold (due_at) WHERE due_at < 9007199254740991;
ALTER TABLE penstock.hold ADD PRIMARY KEY (held_id, place);

-- A request to look at a held message.
CREATE TABLE penstock.nudge (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    held_id    bigint NOT NULL,
    awaited_id bigint
);
CREATE INDEX nudge_held ON penstock.nudge (held_id);

-- A message waits for the end of another. state is NULL until that was seen.
CREATE TABLE penstock.edge (
    held_id    bigint NOT NULL,
    number     bigint NOT NULL,
    awaited_id bigint NOT NULL,
    state      text
);
CREATE INDEX edge_awaited ON penstock.edge (awaited_id);
ALTER TABLE penstock.edge ADD PRIMARY KEY (held_id, number, awaited_id);

CREATE TABLE penstock.step (
    message_id bigint NOT NULL,
    due_at     bigint,
    at         bigint NOT NULL,
    fence      bigint NOT NULL,
    position   int NOT NULL,
    done       boolean NOT NULL,
    kind       text NOT NULL,
    name       text NOT NULL,
    key        text NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (message_id, name, key)
);

CREATE TABLE penstock.signal (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    message_id bigint NOT NULL,
    at         bigint NOT NULL,
    consumed   boolean NOT NULL,
    name       text NOT NULL,
    key        text,
    body       bytea NOT NULL
);
CREATE INDEX signal_message ON penstock.signal (message_id, name, id);

ALTER TABLE penstock.hold SET (autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
ALTER TABLE penstock.nudge SET (autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
