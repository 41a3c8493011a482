-- What messages wait for, and what their runs have stored.
-- floor: 3

-- A scheduled message with the flag HELD has one row for each thing it waits for. due_at is NEVER
-- for one without a time limit; number is the fence of the delivery that waits, or 0.
CREATE TABLE penstock_hold (
    held_id INTEGER NOT NULL,
    place   INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    due_at  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    policy  TEXT NOT NULL,
    need    INTEGER NOT NULL,
    on_dead TEXT NOT NULL,
    PRIMARY KEY (held_id, place)
) WITHOUT ROWID;
CREATE INDEX penstock_hold_due ON penstock_hold (due_at) WHERE due_at < 9007199254740991;

-- A request to look at a held message.
CREATE TABLE penstock_nudge (
    id         INTEGER PRIMARY KEY,
    held_id    INTEGER NOT NULL,
    awaited_id INTEGER
);
CREATE INDEX penstock_nudge_held ON penstock_nudge (held_id);

-- A message waits for the end of another. state is NULL until that was seen.
CREATE TABLE penstock_edge (
    held_id    INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    awaited_id INTEGER NOT NULL,
    state      TEXT,
    PRIMARY KEY (held_id, number, awaited_id)
) WITHOUT ROWID;
CREATE INDEX penstock_edge_awaited ON penstock_edge (awaited_id);

CREATE TABLE penstock_step (
    message_id INTEGER NOT NULL,
    name       TEXT NOT NULL,
    key        TEXT NOT NULL,
    kind       TEXT NOT NULL,
    position   INTEGER NOT NULL,
    done       INTEGER NOT NULL,
    due_at     INTEGER,
    at         INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (message_id, name, key)
);

CREATE TABLE penstock_signal (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id INTEGER NOT NULL,
    name       TEXT NOT NULL,
    key        TEXT,
    at         INTEGER NOT NULL,
    consumed   INTEGER NOT NULL,
    body       BLOB NOT NULL
);
CREATE INDEX penstock_signal_message ON penstock_signal (message_id, name, id);
