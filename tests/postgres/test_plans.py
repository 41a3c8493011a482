"""Every statement walks the same indexes, whatever the size and the statistics of the store."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.extent import ALL
from tests.postgres.plans import (
    INDEX_TYPES,
    STATEMENTS,
    Connection,
    buffers,
    connect,
    empty,
    fill,
    prepare,
    walk,
)
from tests.servers.postgres import Postgres

SHAPES: dict[str, tuple[int, int, bool]] = {
    "empty": (0, 10, False),
    "empty, analysed": (0, 10, True),
    "emptied": (20_000, 10, True),
    "100,000 rows": (100_000, 10, False),
    "100,000 rows, analysed": (100_000, 10, True),
    "one queue, analysed": (20_000, 1, True),
    "1,000 queues, analysed": (20_000, 1_000, True),
}
if ALL:
    SHAPES["1,000,000 rows, analysed"] = (1_000_000, 10, True)

BODY = "message_pkey (id)"
# Two are for the few with a lease of their own.
HANDED_OUT = [BODY, BODY, BODY]
HELD = "lease_pkey (id)"
TAKEN = [HELD, "lease by place"]
CLAIMED = ["ready by place", *HANDED_OUT, "ready_expiry (expires_at)"]
STORY, ENDED = "history_story (id)", "history_final (id)"
TURN = "head_id_key (id)"
TICKET = "ready_pkey (queue_id, rank, id)"
DELAYED = "scheduled_pkey (id)"

# What is not here reads no table of messages.
WALKS: dict[str, list[str]] = {
    "dedup_seen": ["dedup_pkey (queue_id, key)"],
    "dedups_seen": ["dedup_pkey (queue_id, key)"],
    "unique_free": ["dedup_unique (id)"],
    "name_taken": ["name_pkey (queue_id, name)"],
    "depth": ["ready_pkey (queue_id)", "scheduled_queue (queue_id)"],
    "head": ["head_pkey (queue_id, key)"],
    "is_head": ["head_id_key (id)"],
    "head_of": ["head_id_key (id)"],
    "free_head": ["head_id_key (id)"],
    "first_in_line": ["scheduled_line (queue_id, key)"],
    "get_in_line": ["scheduled_pkey (id)"],
    "any_ready": ["ready_pkey (queue_id)"],
    "first_ready": ["ready_pkey (queue_id)"],
    "queues_with_keys": ["head_pkey (queue_id)"],
    "pick_one": ["ready_pkey (queue_id)", *CLAIMED],
    "pick_after": ["ready_pkey (queue_id, id)", *CLAIMED],
    "pick_line": ["ready_pkey (queue_id)", *CLAIMED],
    "claim_dead": ["dead_queue (queue_id)", "dead by place", *HANDED_OUT],
    "publish_keyed": ["head_pkey (queue_id, key)"],
    "publish_keyed_now": ["head_pkey (queue_id, key)"],
    "lock_lines": [HELD, TURN],
    # The key goes on: to the next in line, or its head is freed.
    "complete_keyed": [
        *TAKEN,
        TURN,
        TURN,
        TURN,
        "scheduled_line (queue_id, key)",
        "scheduled_pkey (id)",
        "scheduled by place",
        "dedup_unique (id)",
    ],
    "complete": [HELD],
    "complete_with_results": [HELD],
    "complete_awaited": [HELD],
    "free_leases": [HELD],
    "keep_result": [BODY],
    "extend_many": [HELD],
    "begin": [HELD, HELD],
    "progress": [HELD, HELD],
    "leases": [HELD, BODY, STORY, STORY, STORY, STORY],
    "leases_expired": ["lease_until (lease_until)"],
    "lease_expired": ["lease_until (lease_until)"],
    "settle_many": [*TAKEN, BODY],
    "settle": [*TAKEN, BODY],
    "take_lease": [*TAKEN, BODY],
    "request_cancel": [HELD, HELD],
    "story_of_fence": [STORY, ENDED],
    "lease_fence": [HELD, HELD],
    "promote_many": ["scheduled_due (due_at)", "head_id_key (id)", "scheduled by place"],
    "due": ["scheduled_due (due_at)"],
    "next_due": ["scheduled_due ()"],
    "due_when": ["scheduled_due ()"],
    "take_scheduled": ["scheduled_pkey (id)"],
    "take_ready": [TICKET],
    "scan_ready": ["ready_pkey (queue_id, id)"],
    "expire_ready": ["ready_expiry (expires_at)", "ready by place"],
    "expire_scheduled": ["scheduled_expiry (expires_at)", "scheduled by place"],
    "expired_ready": ["ready_expiry (expires_at)"],
    "expired_in_line": ["ready_expiry (expires_at)"],
    "expired_scheduled": ["scheduled_expiry (expires_at)"],
    "next_rank": ["ready_pkey (queue_id, rank)"],
    "waited": ["ready_pkey (queue_id, rank)", BODY],
    "ready_since": [BODY, STORY, ENDED],
    "age": [TICKET, "ready by place"],
    "old_dedup": ["dedup_expiry (expires_at)"],
    "drop_dedup": ["dedup_pkey (queue_id, key)"],
    "old_results": ["result_expiry (expires_at)", ENDED],
    "drop_result": ["result_pkey (id)"],
    "prunable": ["history_tx (tx)", BODY],
    "prune_history": [ENDED, STORY, "history by place"],
    "prune_message": [BODY],
    "prune_name": ["name_id_key (id)"],
    "prune_result": ["result_pkey (id)", ENDED],
    "message": [BODY],
    "where_scheduled": ["scheduled_pkey (id)"],
    "where_dead": ["dead_pkey (id)"],
    "messages": [BODY],
    "leases_of": [HELD],
    "scheduled_of": ["head_pkey (queue_id, key)", "scheduled_pkey (id)"],
    "dead_of": ["dead_pkey (id)"],
    "timelines": [STORY, ENDED],
    "headings": [BODY],
    "search_messages": [BODY],
    "search_ids": [BODY],
    "search_correlated": ["message_story (text, id)"],
    "search_unsuccessful": ["history_unsuccessful (id)", BODY],
    "search_claimed": [HELD, BODY],
    "search_ready": ["ready_pkey (queue_id, rank)", BODY],
    "search_dead": ["dead_queue (queue_id, dead_at)", BODY],
    "ended": [ENDED],
    "result": ["result_pkey (id)"],
    "lock_dead": ["dead_pkey (id)"],
    "take_dead": ["dead_pkey (id)"],
    "lock_dead_set": ["dead_pkey (id)"],
    "record_dead_set": ["dead_pkey (id)"],
    "redrive_dead_set": ["dead_pkey (id)", BODY],
    "drop_dead_set": ["dead_pkey (id)"],
    "changed_since": [STORY],
    "take_some_ready": ["ready_pkey (queue_id)", "ready by place"],
    "take_some_scheduled": ["scheduled_queue (queue_id)", "scheduled by place"],
    "take_some_dead": ["dead_queue (queue_id)", "dead by place"],
    "take_old_dead": ["dead_queue (queue_id, dead_at)", "dead by place"],
    "front_of_line": ["ready_pkey (queue_id)"],
    "find_correlated": ["message_story (text)"],
    "feed_messages": ["message_tx (tx)"],
    "heads_messages": ["message_tx (tx)"],
    "heads_of": [BODY],
    "rests_of": [STORY],
    "feed_history": ["history_tx (tx)"],
    "digest_messages": ["message_tx (tx)"],
    "digest_history": ["history_tx (tx)", BODY, STORY],
    "history_of": ["history_tx (tx)"],
    "messages_between": ["message_tx (tx)"],
    "history_between": ["history_tx (tx)"],
    "message_columns": ["message_tx (tx)"],
    "history_columns": ["history_tx (tx)"],
    "recent": ["history_tx (tx, position)"],
    "past": ["history_tx (position)"],
    "copy_keys": ["dedup_pkey (key)"],
    "copy_sizes": [BODY],
    "copy_messages": [BODY],
    "copy_stored": [BODY],
    "copy_heads": [TURN],
    "copy_ready": [BODY, TICKET],
    # Only if the ranks of some have changed, and then once for a page.
    "copy_ready_scan": ["ready_pkey (id)"],
    "copy_scheduled": ["scheduled_pkey (id)"],
    "copy_lease": [HELD],
    "copy_dead": ["dead_pkey (id)"],
    "copy_history": [STORY, ENDED],
    "copy_results": ["result_pkey (id)"],
    "copy_results_stored": ["result_pkey (id)"],
    "copy_awaited_results": [BODY, "result_pkey (id)"],
    "find_oldest": [BODY],
    "highest": ["message_pkey ()"],
    "last_position": [STORY],
    # Of bulk actions.
    "last_redrive": [STORY],
    "lock_ready": [TICKET],
    "lock_ready_anywhere": ["ready_pkey (queue_id, id)"],
    "lock_scheduled": [DELAYED],
    "pass_head": [TURN],
    "pass_name": ["name_pkey (queue_id, name)"],
    "rank_of": [BODY],
    "rerank_scheduled": [DELAYED],
    # Of waits.
    "awaited_results": ["result_pkey (id)"],
    "edges_ended": ["dead_pkey (id)", ENDED, BODY],
    "edges_ended_by": ["dead_pkey (id)", ENDED],
    "flag_awaited_dead": ["dead_pkey (id)", "dead_pkey (id)"],
    "flag_awaited_lease": [HELD, HELD],
    "keep_nothing": [ENDED],
    "flag_awaited_ready": [BODY, TICKET, "ready by place"],
    "flag_awaited_scheduled": [DELAYED, "scheduled by place"],
    "flag_steps": [HELD, HELD],
    "heads_among": [TURN],
    "held_among": [DELAYED],
    "held_tickets": [DELAYED],
    "lease_shared": [HELD],
    "leave_held": [DELAYED, "scheduled by place"],
    "recent_waits": [STORY],
    "reschedule_held": [DELAYED],
    "resume_held": [DELAYED],
    "step_save_leased": [HELD],
    "signal_held": [DELAYED, "scheduled by place"],
    "take_held": [DELAYED],
    "wait_counts": [STORY],
}
# Looks of an operator, from the last id down until the page is full: by one index or the other.
PAGES = {
    "find_all", "find_ready", "find_scheduled", "find_claimed", "find_dead", "find_ended",
    "search_scheduled",
}  # fmt: skip
# Statements that read a whole table of messages, and why they may.
WHOLE = {
    "census": "it counts everything, for operators",
    "copy_waits": "crash tests count them, and read everything",
    "depths": "it counts what is not ended, for operators",
    "queue_holds": "a queue is deleted by hand, and what is claimed is never much",
    "held": "it watches claims while somebody listens, and what is claimed is never much",
    "claimed_count": "it explains one message, for operators, and what is claimed is never much",
}
# By an index from end to end.
COUNTS = {
    "dead_counts": "it counts the dead, once a minute",
    "torn_waits": "it checks every hold, for operators",
}
ELSEWHERE = {"pick_types", "peek_type"} | PAGES | WHOLE.keys() | COUNTS.keys()


@pytest.fixture(scope="module", params=SHAPES)
def filled(
    request: pytest.FixtureRequest, postgres_server: Postgres, template: str
) -> Iterator[Connection]:
    rows, queues, analysed = SHAPES[request.param]
    with postgres_server.database(template) as url:
        fill(url, rows, queues)
        with closing(connect(url)) as connection:
            if analysed:
                connection.execute("ANALYZE")
            if request.param == "emptied":
                empty(connection)
            yield connection


@pytest.fixture(params=["as it is", "asked for types"])
def connection(request: pytest.FixtureRequest, filled: Connection) -> Iterator[Connection]:
    if request.param == "asked for types":
        filled.execute(INDEX_TYPES.encode())
    yield filled
    filled.execute("DROP INDEX IF EXISTS penstock.ready_type")


def test_every_statement_walks_its_indexes(connection: Connection) -> None:
    names = STATEMENTS.keys() - ELSEWHERE
    assert {name: walk(connection, name) for name in names} == {
        name: sorted(WALKS.get(name, [])) for name in names
    }


def test_a_claim_by_type_walks_its_own_index_where_there_is_one(connection: Connection) -> None:
    (found,) = connection.execute("SELECT to_regclass('penstock.ready_type')").fetchall()
    first = "ready_pkey (queue_id)" if found[0] is None else "ready_type (queue_id, type)"
    assert walk(connection, "pick_types") == sorted([first, *CLAIMED])
    assert walk(connection, "peek_type") == [first]


def test_no_statement_reads_a_whole_table_of_messages(connection: Connection) -> None:
    scanned = {
        name for name in STATEMENTS if any("end to end" in step for step in walk(connection, name))
    }
    assert scanned == WHOLE.keys()


FEW, MANY = 2_000, 40_000
FENCED = list(range(FEW + 2, FEW + 52, 5))
LOCKS: dict[str, Any] = {"ids": FENCED, "fences": FENCED}
CLAIM: dict[str, Any] = {
    "queues": [2], "types": ["type5"], "limit": 10, "length": 1, "consumer": "c", "begins": False,
}  # fmt: skip
MOVES = LOCKS | {
    "flags": [0] * 10,
    "expired_bys": [2**62] * 10,
    "verbs": ["nack"] * 10,
    "states": ["ready"] * 10,
    "attempts": [1] * 10,
    "deliveries": [1] * 10,
    "reasons": [None] * 10,
    "errors": [None] * 10,
    "delays": [0] * 10,
    "ranked": [False] * 10,
    "tracebacks": [None] * 10,
}
KEYED: dict[str, Any] = {
    "queue_ids": [2] * 10,
    "types": ["test"] * 10,
    "priorities": [0] * 10,
    "ranks": [0] * 10,
    "bases": ["zero"] * 10,
    "delays": [0] * 10,
    "run_ats": [None] * 10,
    "ttls": [None] * 10,
    "expires_ats": [None] * 10,
    "bodies": [b""] * 10,
    "metas": [None] * 10,
    "flags": [1] * 10,
    "keys": [f"key{id}" for id in FENCED],
}
ASKED: dict[str, dict[str, Any]] = {
    "publish_keyed": KEYED,
    "publish_keyed_now": {**KEYED, "firsts": [True] * 10},
    "lock_lines": LOCKS,
    "complete_keyed": LOCKS | {"results": [None] * 10},
    "pick_one": CLAIM,
    "pick_line": CLAIM,
    "pick_types": CLAIM,
    "claim_dead": CLAIM | {"types": []},
    "complete": LOCKS,
    "extend_many": LOCKS | {"lengths": [1] * 10},
    "settle_many": MOVES,
    "leases": LOCKS,
    "leases_expired": {"limit": 10},
    "promote_many": {"limit": 10},
    "expire_scheduled": {"limit": 10, "queues": None},
    "take_some_ready": {"queue_id": 2, "limit": 10},
    "take_some_scheduled": {"queue_id": 2, "limit": 10},
    "take_some_dead": {"queue_id": 2, "limit": 10},
    "take_old_dead": {"queue_id": 2, "before": 2**62, "limit": 10},
    "front_of_line": {"queue_id": 2, "limit": 10},
    "any_ready": {"queues": [2]},
    "waited": {"queue_id": 2, "rank": 0, "before": 2**62, "limit": 10},
}


@pytest.fixture(scope="module")
def touched(postgres_server: Postgres, template: str) -> dict[str, list[int]]:
    """By each statement, on few rows and on many, planned while there were none."""
    found: dict[str, list[int]] = {name: [] for name in ASKED}
    for rows in (FEW, MANY):
        with postgres_server.database(template) as url, closing(connect(url)) as connection:
            connection.execute(INDEX_TYPES.encode())
            fill(url, FEW, queues=1)
            empty(connection)
            for name, values in ASKED.items():
                prepare(connection, name)
                # The plan is made with the first execution, and kept.
                buffers(connection, name, values)
            fill(url, rows, queues=1, start=FEW)
            for name, values in ASKED.items():
                # What else it reads now and then, of the catalog, is not counted.
                counts = [buffers(connection, name, values) for _ in range(3)]
                found[name].append(min(counts))
    return found


@pytest.mark.parametrize("name", ASKED)
def test_a_plan_made_while_the_store_was_empty_reads_no_more_when_it_is_full(
    touched: dict[str, list[int]], name: str
) -> None:
    few, many = touched[name]
    assert many < 1.3 * few + 5
