"""Every statement walks the same indexes, whatever the size and the statistics of the store."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from penstock.stores.mariadb.statement import SQL
from tests.mariadb.plans import TABLES, VALUES, analyse, connect, fill, walk
from tests.mariadb.scenes import open_store
from tests.servers.mariadb import MariaDB

# Rows, queues, and whether the server knows what became of its tables since they were empty.
SHAPES: dict[str, tuple[int, int, bool]] = {
    "not analysed": (20_000, 10, False),
    "analysed": (20_000, 10, True),
    "small": (60, 10, True),
    "one queue": (20_000, 1, True),
    "1,000 queues": (20_000, 1_000, True),
}
LINE, HELD, BODY = "penstock_ready by PRIMARY", "penstock_lease by PRIMARY", "m by PRIMARY"
OF_CLAIM = "l by until"
# Those in which an index, or the order of tables, is a choice.
WALKS: dict[str, list[str]] = {
    "any_ready": [LINE],
    # Of queues themselves there are none here.
    "ready_queues": ["q end to end", "r by PRIMARY"],
    "pick": [LINE],
    "number_claim": [LINE],
    "claim": [LINE],
    "claimed": [OF_CLAIM, BODY],
    "claim_leave_ready": [OF_CLAIM, "r by PRIMARY"],
    "claim_leave_dead": [OF_CLAIM, "d by PRIMARY"],
    "own_lengths": [OF_CLAIM, BODY],
    "expired_waits": ["penstock_ready by expiry"],
    "leave_ready": ["r by PRIMARY"],
    "leave_ready_each": ["r by PRIMARY"],
    "leave_scheduled": ["s by PRIMARY"],
    "leave_dead": ["d by PRIMARY"],
    "leave_leases": ["l by PRIMARY"],
    "lock_dead_set": ["penstock_dead by PRIMARY"],
    "record_dead_set": ["penstock_dead by PRIMARY"],
    "redrive_dead_set": ["d by PRIMARY", BODY],
    "drop_dead_set": ["d by PRIMARY"],
    "changed_since": ["penstock_history by ends_once"],
    "claim_dead": ["penstock_dead by queue"],
    "heads": ["penstock_head by PRIMARY"],
    "lines_of_heads": ["h by id", "s by line"],
    "call_from_line": ["penstock_scheduled by PRIMARY"],
    "keys_of_leases": [HELD, "h by id"],
    "leave_leases_of": ["l by PRIMARY"],
    "complete": [HELD],
    "complete_leave": ["l by PRIMARY"],
    "hold_leases": [HELD],
    "free_leases": [HELD],
    "extend_many": [HELD],
    "extended": [HELD],
    "leases": [*["h by ends_once"] * 2, "l by PRIMARY", BODY, *["r by ends_once"] * 2],
    "leases_expired": ["penstock_lease by until"],
    "settle_look": [HELD],
    "promote_many": ["h by id", "penstock_scheduled by due"],
    "next_due": ["penstock_scheduled by due"],
    "due": ["penstock_scheduled by due"],
    "depth": [LINE, "penstock_scheduled by queue"],
    "first_in_line": ["penstock_scheduled by line"],
    "front_of_line": [LINE],
    "take_old_dead": ["penstock_dead by queue"],
    "expire_ready": ["penstock_ready by expiry"],
    "expire_scheduled": ["penstock_scheduled by expiry"],
    "expired_ready": ["penstock_ready by expiry"],
    "expired_scheduled": ["penstock_scheduled by expiry"],
    "old_dedup": ["penstock_dedup by expiry"],
    "old_results": ["r by expiry", "e by awaited", "h by ends_once"],
    "prune_history": ["h by ends_once"],
    "holds_due": ["penstock_hold by due"],
    "find_correlated": ["penstock_message by correlation"],
    "find_ended": ["h by ends_once", BODY],
    "feed_messages": ["penstock_message by PRIMARY"],
    "feed_history": ["penstock_history by PRIMARY"],
}
# Statements that read a whole table of messages, and why they may.
WHOLE = {
    "census": "it counts everything, for operators",
    "copy_waits": "crash tests count them, and read everything",
    "depths": "it counts what is not ended, for operators",
    "queue_holds": "a queue is deleted by hand, and what is claimed is never much",
    "held": "it watches claims while somebody listens, and what is claimed is never much",
    "claimed_count": "it explains one message, for operators, and what is claimed is never much",
    "dead_counts": "it counts the dead, once a minute",
    "torn_waits": "it checks every hold, for operators",
    "copy_ready_scan": "only if ranks have changed, and then once for a page of a copy",
}
# Of a table so small that it is no matter, and old already.
SMALL = {"prune_result", "copy_results_stored"}
ASKED = {name for name, each in SQL.items() if set(each.names) <= VALUES.keys() | {"picks"}} - {
    # Neither is a query.
    "index_types",
    "listen",
}


@pytest.fixture(scope="module", params=SHAPES)
def connection(
    request: pytest.FixtureRequest, mariadb_server: MariaDB
) -> Iterator[pymysql.Connection]:
    rows, queues, analysed = SHAPES[request.param]
    with mariadb_server.database() as url:
        asyncio.run(make_store(url))
        with closing(connect(mariadb_server, url)) as connection:
            fill(connection, rows, queues)
            if analysed:
                analyse(connection)
            yield connection


async def make_store(url: str) -> None:
    async with await open_store(url):
        pass


def test_every_statement_walks_its_indexes(connection: pymysql.Connection) -> None:
    assert WALKS.keys() <= ASKED
    assert {name: walk(connection, name) for name in WALKS} == {
        name: sorted(steps) for name, steps in WALKS.items()
    }


def test_no_statement_reads_a_whole_table_of_messages(connection: pymysql.Connection) -> None:
    scanned = {
        name
        for name in ASKED
        for step in walk(connection, name)
        if step.endswith("end to end") and of_messages(step)
    }
    assert scanned - SMALL == WHOLE.keys()


def of_messages(step: str) -> bool:
    table = step.partition(" ")[0].removeprefix("penstock_")
    # By their first letters; those of queues and scopes are few.
    return table in TABLES or (len(table) == 1 and table not in "qs")


def test_every_value_of_a_statement_is_named_here() -> None:
    """What writes and reads nothing needs none."""
    unasked: dict[str, Any] = {
        name: each for name, each in SQL.items() if name not in ASKED and "picks" not in each.names
    }
    reading = {name for name, each in unasked.items() if "SELECT" in " ".join(each.pieces)} - {
        "held_by_cursors",
        # It reads no table.
        "restore_counters",
        # Made of others, which are asked.
        "look",
        "take",
    }
    assert reading == set()
