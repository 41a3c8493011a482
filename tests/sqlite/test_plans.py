"""Every hot statement walks the same index, whatever the size and the statistics of the store."""

import re
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from penstock.model.store_types import Answer, Claim, Completion
from penstock.stores.sql.messages import purge_dead, redrive, take_some
from penstock.stores.sql.settle import expired_leases
from penstock.stores.sql.transaction import finish
from penstock.stores.sqlite import claim as claiming
from penstock.stores.sqlite import verbs
from penstock.stores.sqlite.transaction import SQL, SqliteTransaction
from tests.extent import ALL
from tests.sqlite.plans import database, plan

SHAPES: dict[str, tuple[int, int, bool]] = {
    "empty": (0, 10, False),
    "100,000 rows": (100_000, 10, False),
    "100,000 rows, analysed": (100_000, 10, True),
    "one queue, analysed": (20_000, 1, True),
    "1,000 queues, analysed": (20_000, 1_000, True),
}
if ALL:
    SHAPES["1,000,000 rows, analysed"] = (1_000_000, 10, True)

LOCKS = "SCAN j VIRTUAL TABLE INDEX 1:"
LIST = ["LIST SUBQUERY 1", "SCAN json_each VIRTUAL TABLE INDEX 1:"]
HELD = "SEARCH lease USING INTEGER PRIMARY KEY (rowid=?)"
HEAD = "SEARCH ready USING PRIMARY KEY (queue_id=?)"
TICKET = "SEARCH ready USING PRIMARY KEY (queue_id=? AND rank=? AND id=?)"
OF_LEASE = "SEARCH l USING INTEGER PRIMARY KEY (rowid=?)"
OF_MESSAGE = "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"
FIRST = ["CO-ROUTINE (subquery-1)", HEAD, "SCAN (subquery-1)"]
STORY = "SEARCH history USING INDEX history_story (id=?)"
ENDED = "SEARCH history USING INDEX history_final (id=?)"
ENDED_SINCE = "SEARCH h USING INDEX history_final (id=?)"
AWAITING = "SEARCH e USING COVERING INDEX edge_awaited (awaited_id=?)"

HOT: dict[str, list[str]] = {
    "next_number": ["SEARCH counter USING PRIMARY KEY (name=?)"],
    "publish_checked": [],
    "publish_ready": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "publish_ready_uniform": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "publish_scheduled": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"],
    "dedup_seen": ["SEARCH dedup USING PRIMARY KEY (queue_id=? AND key=?)"],
    "unique_free": ["SEARCH dedup USING INDEX dedup_unique (id=?)"],
    "name_taken": ["SEARCH name USING PRIMARY KEY (queue_id=? AND name=?)"],
    "head": ["SEARCH head USING PRIMARY KEY (queue_id=? AND key=?)"],
    "is_head": ["SEARCH head USING COVERING INDEX sqlite_autoindex_head_1 (id=?)"],
    "head_of": ["SEARCH head USING INDEX sqlite_autoindex_head_1 (id=?)"],
    "free_head": ["SEARCH head USING COVERING INDEX sqlite_autoindex_head_1 (id=?)"],
    "first_in_line": [
        "SEARCH scheduled USING COVERING INDEX scheduled_line (queue_id=? AND key=?)"
    ],
    "get_in_line": ["SEARCH scheduled USING COVERING INDEX scheduled_id (id=?)"],
    "peek": [HEAD],
    "claim_lease": FIRST,
    "claim_expired": FIRST,
    "claim_read": ["SEARCH r USING PRIMARY KEY (queue_id=?)", OF_LEASE, OF_MESSAGE],
    "claim_remove": ["SEARCH ready USING PRIMARY KEY (queue_id=? AND (rank,id)<(?,?))"],
    "pick": [HEAD],
    "ready": [TICKET],
    "claim_pick": [TICKET],
    "take_ready": [TICKET],
    "pick_dead": ["SEARCH dead USING COVERING INDEX dead_queue (queue_id=?)"],
    "pick_dead_type": ["SEARCH dead USING INDEX dead_queue (queue_id=?)"],
    "lock_dead": ["SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)"],
    "take_dead": ["SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)"],
    "lock_dead_set": ["SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)", *LIST],
    "record_dead_set": ["SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)", *LIST],
    "redrive_dead_set": [
        "SEARCH d USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 2",
        "SCAN json_each VIRTUAL TABLE INDEX 1:",
        "CORRELATED SCALAR SUBQUERY 1",
        OF_MESSAGE,
    ],
    "drop_dead_set": ["SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)", *LIST],
    "changed_since": [
        "SEARCH history USING INDEX history_story (id=? AND rowid>?)",
        *LIST,
    ],
    "take_some_ready": [
        "SEARCH ready USING PRIMARY KEY (queue_id=? AND (rank,id)<(?,?))",
        "SCALAR SUBQUERY 2",
        *FIRST,
        "USE TEMP B-TREE FOR ORDER BY",
        "REUSE SUBQUERY 2",
    ],
    "take_some_scheduled": [
        "SEARCH scheduled USING COVERING INDEX scheduled_id (id=?)",
        "LIST SUBQUERY 1",
        "SEARCH scheduled USING COVERING INDEX scheduled_queue (queue_id=?)",
    ],
    "take_some_dead": [
        "SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 1",
        "SEARCH dead USING COVERING INDEX dead_queue (queue_id=?)",
    ],
    "take_old_dead": [
        "SEARCH dead USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 1",
        "SEARCH dead USING COVERING INDEX dead_queue (queue_id=? AND dead_at<?)",
    ],
    "front_of_line": [HEAD],
    "flagged": [LOCKS, OF_LEASE],
    "complete_history": [LOCKS, OF_LEASE],
    "complete_remove": [HELD, *LIST, *LIST],
    "history_tail": ["SEARCH history USING INTEGER PRIMARY KEY (rowid>?)"],
    "own_lease": [HELD],
    "extend": [HELD],
    "begin": [HELD],
    "progress": [HELD],
    "settle": [HELD],
    "take_lease": [HELD],
    "lease_fence": [HELD],
    "lease_read": [
        OF_LEASE,
        OF_MESSAGE,
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH h USING INDEX history_story (id=? AND rowid>?)",
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH r USING INDEX history_story (id=?)",
        "CORRELATED SCALAR SUBQUERY 4",
        "SEARCH h USING INDEX history_story (id=? AND rowid>?)",
        "CORRELATED SCALAR SUBQUERY 3",
        "SEARCH r USING INDEX history_story (id=?)",
    ],
    "lease_expired": ["SEARCH lease USING INDEX lease_until (lease_until<?)"],
    "story_of_fence": ["COMPOUND QUERY", "LEFT-MOST SUBQUERY", STORY, "UNION ALL", ENDED],
    "ended": [ENDED],
    "due": ["SEARCH scheduled USING PRIMARY KEY (due_at<?)"],
    "next_due": ["SEARCH scheduled USING PRIMARY KEY (due_at<?)"],
    "take_scheduled": ["SEARCH scheduled USING COVERING INDEX scheduled_id (id=?)"],
    "expired_ready": ["SEARCH ready USING COVERING INDEX ready_expiry (expires_at<?)"],
    "expired_scheduled": ["SEARCH scheduled USING COVERING INDEX scheduled_expiry (expires_at<?)"],
    "next_rank": ["SEARCH ready USING PRIMARY KEY (queue_id=? AND rank>?)"],
    "waited": ["SEARCH r USING PRIMARY KEY (queue_id=? AND rank=?)", OF_MESSAGE],
    "ready_since": [
        "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 5",
        LIST[1],
        "SEARCH w USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "CORRELATED SCALAR SUBQUERY 4",
        STORY,
        "CORRELATED SCALAR SUBQUERY 1",
        "SEARCH s USING INDEX signal_message (message_id=? AND name=?)",
        "CORRELATED SCALAR SUBQUERY 3",
        "SEARCH e USING PRIMARY KEY (held_id=? AND number=?)",
        "CORRELATED SCALAR SUBQUERY 2",
        "SEARCH h USING INDEX history_final (id=?)",
    ],
    "old_dedup": ["SEARCH dedup USING COVERING INDEX dedup_expiry (expires_at<?)"],
    "drop_dedup": ["SEARCH dedup USING PRIMARY KEY (queue_id=? AND key=?)"],
    "old_results": [
        "SEARCH r USING COVERING INDEX result_expiry (expires_at<?)",
        "CORRELATED SCALAR SUBQUERY 2",
        AWAITING,
        "CORRELATED SCALAR SUBQUERY 1",
        ENDED_SINCE,
    ],
    "prunable": ["SEARCH history USING INTEGER PRIMARY KEY (rowid>?)"],
    "prune_history": [
        "SEARCH history USING INTEGER PRIMARY KEY (rowid=?)",
        "LIST SUBQUERY 2",
        "COMPOUND QUERY",
        "LEFT-MOST SUBQUERY",
        LOCKS,
        "SEARCH h USING INDEX history_final (id=?)",
        "UNION ALL",
        LOCKS,
        "SEARCH h USING INDEX history_story (id=?)",
    ],
    "prune_message": ["SEARCH message USING INTEGER PRIMARY KEY (rowid=?)", *LIST],
    "prune_name": ["SEARCH name USING COVERING INDEX sqlite_autoindex_name_1 (id=?)", *LIST],
    "prune_result": [
        "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)",
        *LIST,
        "CORRELATED SCALAR SUBQUERY 3",
        AWAITING,
        "CORRELATED SCALAR SUBQUERY 2",
        ENDED_SINCE,
    ],
    # In the order of its ids: there is no sort.
    "nudged": ["SCAN nudge"],
    "holds_due": ["SEARCH hold USING COVERING INDEX hold_due (due_at<?)"],
    "held_tickets": ["SEARCH scheduled USING INDEX scheduled_id (id=?)", *LIST],
    "feed_messages": ["SEARCH message USING INTEGER PRIMARY KEY (rowid>?)"],
    "recent": ["SEARCH history USING INTEGER PRIMARY KEY (rowid>?)"],
}

# What may be read from end to end: tables with a row for each queue, agent, worker or export.
SMALL = {"q", "s", "schedule", "agent", "worker", "cursor", "sqlite_sequence"}
# Statements that read a whole table of messages, and why they may.
WHOLE = {
    "census": "it counts everything, for operators",
    "copy_waits": "crash tests count them, and read everything",
    "depths": "it counts what is not ended, for operators",
    "dead_counts": "it counts the dead, once a minute",
    "queue_holds": "a queue is deleted by hand, and what is claimed is never much",
    "held": "it watches claims while somebody listens, and what is claimed is never much",
    "claimed_count": "it explains one message, for operators, and what is claimed is never much",
    "torn_waits": "it checks every hold, for operators",
    "nudged": "it reads the first nudges by their ids, and stops at its limit",
}
# Of a copy, if ranks have changed: once for a page, by the whole table or by skipping in an index.
SOMETIMES = {"copy_ready_scan"}
SCAN = re.compile(r"^SCAN (?!CONSTANT ROW|\w+ VIRTUAL TABLE)(\w+)", re.MULTILINE)
TYPES = SQL["index_types"]


@pytest.fixture(scope="module", params=SHAPES)
def filled(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    rows, queues, analysed = SHAPES[request.param]
    with closing(database(rows, queues, analysed=analysed)) as db:
        yield db


@pytest.fixture(params=[(), (TYPES,), (TYPES, "ANALYZE", "ANALYZE sqlite_schema")])
def db(request: pytest.FixtureRequest, filled: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """As it is; with consumers that ask for types; and with statistics of their index, too."""
    filled.execute("BEGIN")
    for statement in request.param:
        filled.execute(statement)
    yield filled
    filled.execute("ROLLBACK")
    # What was planned with the statistics is forgotten with them.
    filled.execute("ANALYZE sqlite_schema")


def test_every_hot_statement_walks_its_index(db: sqlite3.Connection) -> None:
    assert {name: plan(db, name) for name in HOT} == HOT


def test_a_claim_by_type_walks_its_own_index_where_there_is_one(db: sqlite3.Connection) -> None:
    indexed = db.execute(
        "SELECT 1 FROM sqlite_schema WHERE name = 'penstock_ready_type'"
    ).fetchone()
    index = "SEARCH ready USING COVERING INDEX ready_type (type=? AND queue_id=?)"
    assert plan(db, "pick_type") == [index if indexed else HEAD]


def test_no_statement_reads_a_whole_table_of_messages(db: sqlite3.Connection) -> None:
    scanned = {name: set(SCAN.findall("\n".join(plan(db, name)))) for name in SQL}
    whole = {name for name, tables in scanned.items() if tables - SMALL}
    assert whole - SOMETIMES == WHOLE.keys()


Verb = Callable[[SqliteTransaction, int], Coroutine[Any, Any, object]]
DeadWork = Callable[[SqliteTransaction, Sequence[int]], Coroutine[Any, Any, list[Answer]]]


async def claim_ten(tx: SqliteTransaction, queue_id: int) -> object:
    return await claiming.claim(tx, Claim((queue_id,), "tester", 10))


async def claim_ten_of_a_type(tx: SqliteTransaction, queue_id: int) -> object:
    return await claiming.claim(tx, Claim((queue_id,), "tester", 10, types=("type5",)))


async def claim_and_complete(tx: SqliteTransaction, queue_id: int) -> object:
    claimed = await claiming.claim(tx, Claim((queue_id,), "tester", 10))
    items = [Completion(each.id, each.fence) for each in claimed.messages]
    return await verbs.complete_all(tx, items)


async def purge_ten_of_each_place(tx: SqliteTransaction, queue_id: int) -> object:
    return [await take_some(tx, queue_id, place, 10) for place in ("ready", "scheduled", "dead")]


async def sweep(tx: SqliteTransaction, queue_id: int) -> object:
    return await expired_leases(tx, 10)


def count_statements(ids: Sequence[int], work: DeadWork) -> int:
    with closing(database(2_000)) as db:
        tx, ran = SqliteTransaction(db, 10**15), list[str]()
        db.set_trace_callback(ran.append)
        assert len(finish(work(tx, ids))) == len(ids)
    return len(ran)


@pytest.mark.parametrize("work", [redrive, purge_dead])
def test_a_batch_of_dead_letters_takes_as_many_statements_as_one(work: DeadWork) -> None:
    dead = list(range(3, 503, 5))
    assert count_statements(dead, work) == count_statements(dead[:1], work) < 6


def steps(rows: int, verb: Verb) -> int:
    """How many steps SQLite's machine takes: the same number each time."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    with closing(database(rows, queues=1)) as db:
        db.execute(TYPES)
        db.set_progress_handler(count, 1)
        finish(verb(SqliteTransaction(db, 10**15), 2))
    return taken


@pytest.mark.parametrize(
    "verb", [claim_ten, claim_ten_of_a_type, claim_and_complete, purge_ten_of_each_place, sweep]
)
def test_the_depth_of_a_queue_costs_nothing(verb: Verb) -> None:
    assert steps(40_000, verb) < 1.2 * steps(2_000, verb)
