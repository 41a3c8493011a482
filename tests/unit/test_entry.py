"""What a draft becomes in its queue."""

import json
from hashlib import blake2b
from typing import Any

import msgspec
import pytest

from penstock.errors import NotFound, PenstockError
from penstock.model.message import Dedup, Draft, Flag, Meta
from penstock.model.queue import Queue, Scope
from penstock.model.settings import change, get_preset
from penstock.model.store_types import Dedupe, Entry
from penstock.rules.drafts import (
    make_common_entries,
    make_dedupe,
    make_entry,
    make_uniform_batch,
)
from tests.unit.leases import NOW


def queue(preset_name: str = "default", **settings: Any) -> Queue:
    scope = Scope(1, "default", "default")
    return Queue(9, scope, "jobs", settings=change(get_preset(preset_name), settings))


def test_a_plain_draft_becomes_an_entry_without_meta() -> None:
    assert make_entry(Draft(body=b"x", type="mail"), queue()) == Entry(9, "mail", b"x")


def test_common_drafts_of_a_mixed_batch_become_the_entries_they_become_alone() -> None:
    queues: dict[str, Queue | PenstockError] = {
        "jobs": queue(priority_max=9, max_body=4),
        "gone": NotFound("gone"),
    }
    fraction: Any = 1.0
    listed: Any = ["jobs"]
    drafts = [
        Draft(queue="jobs", type="mail", body=b"1", priority=1),
        Draft(queue="jobs", type="mail", body=b"2", priority=1),
        Draft(queue="jobs", type="fax", body=b"3"),
        Draft(queue="jobs", type="mail", body=b"4", priority=True),
        Draft(queue="jobs", type="mail", body=b"5", priority=fraction),
        Draft(queue="jobs", type="mail", body=b"longer", priority=1),
        Draft(queue="jobs", type="mail", body=b"6", priority=99),
        Draft(queue="jobs", type="mail", body=b"7", delay=9.0),
        Draft(queue="gone", type="mail", body=b"8"),
        Draft(queue="none", type="mail", body=b"9"),
        Draft(queue=listed, type="mail"),
    ]
    entries = make_common_entries(drafts, queues)
    assert entries[:3] == [make_entry(draft, queue(priority_max=9)) for draft in drafts[:3]]
    assert entries[3:] == [None] * 8


def test_drafts_of_one_publisher_are_one_batch() -> None:
    drafts = [Draft(queue="jobs", body=b"%d" % each, publisher="ann") for each in range(3)]
    batch = make_uniform_batch(drafts, queue())
    assert batch is not None
    assert list(batch) == [make_entry(draft, queue()) for draft in drafts]
    assert json.loads(batch.heading.meta or "") == {"publisher": "ann"}


@pytest.mark.parametrize(
    "other", [{"priority": 3}, {"type": "fax"}, {"delay": 9.0}, {"publisher": "bob"}], ids=str
)
def test_drafts_that_differ_in_more_than_bodies_are_no_uniform_batch(other: dict[str, Any]) -> None:
    drafts = [Draft(queue="jobs", body=b"1"), Draft(queue="jobs", body=b"2", **other)]
    assert make_uniform_batch(drafts, queue()) is None


def test_a_mixed_batch_keeps_its_publishers() -> None:
    drafts = [
        Draft(queue="jobs", body=b"1", publisher="ann"),
        Draft(queue="jobs", body=b"2", publisher="bob"),
        Draft(queue="jobs", body=b"3"),
        Draft(queue="jobs", body=b"4", publisher="ann", ordering_key="k"),
    ]
    assert make_common_entries(drafts, {"jobs": queue()}) == [
        make_entry(draft, queue()) for draft in drafts
    ]
    listed: Any = ["ann"]
    invalid = [Draft(queue="jobs", publisher=listed), Draft(queue="jobs", publisher="")]
    assert make_common_entries(invalid, {"jobs": queue()}) == [None, None]


def test_a_full_draft_becomes_an_entry_with_all_it_says() -> None:
    draft = Draft(
        body=b"x",
        type="mail",
        priority=3,
        delay=4.0,
        ttl=5.0,
        expires_at=NOW + 2,
        deadline=NOW + 1,
        dedup=Dedup("d", None),
        name="n",
        headers={"h": "1"},
        labels={"l": "2"},
        lease=6.0,
        ordering_key="k",
        max_attempts=7,
        hops=8,
    )
    stored = make_entry(draft, queue(max_depth=10, overflow="dead"))
    assert json.loads(stored.meta or "") == {
        "name": "n",
        "headers": {"h": "1"},
        "labels": {"l": "2"},
        "deadline": NOW + 1,
        "lease": 6.0,
        "max_attempts": 7,
        "ordering_key": "k",
        "dedup": "d",
        "hops": 8,
    }
    assert msgspec.structs.replace(stored, meta=None) == Entry(
        queue_id=9,
        type="mail",
        body=b"x",
        priority=3,
        rank=-3,
        delay=4.0,
        ttl=5.0,
        expires_at=NOW + 1,
        flags=Flag.KEYED | Flag.UNIQUE | Flag.OWN_LEASE | Flag.AWAITED,
        name="n",
        ordering_key="k",
        dedup=make_dedupe(Dedup("d", None), b"x"),
        max_depth=10,
        overflow="dead",
    )


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        ({}, 0),
        ({"ordering_key": "k"}, Flag.KEYED),
        ({"dedup": Dedup("k")}, 0),
        ({"dedup": Dedup("k", None)}, Flag.UNIQUE),
        ({"lease": 60}, Flag.OWN_LEASE),
        ({"timeout": 60}, 0),
    ],
)
def test_a_draft_flags_only_what_it_uses(fields: dict[str, Any], flags: int) -> None:
    assert make_entry(Draft(**fields), queue()).flags == flags


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"timeout": 10}, 300),
        ({"timeout": 600}, 660),
        ({"timeout": 600, "lease": 5}, 5),
    ],
)
def test_the_lease_of_a_shell_job_covers_its_whole_run(
    fields: dict[str, Any], expected: float | None
) -> None:
    stored = make_entry(Draft(**fields), queue("queuectl"))
    assert msgspec.json.decode(stored.meta or "{}", type=Meta).lease == expected
    assert bool(stored.flags & Flag.OWN_LEASE) == (expected is not None)


def test_a_window_and_uniqueness_are_two_namespaces_of_keys() -> None:
    digest = blake2b(b"x", digest_size=16).digest()
    assert make_dedupe(Dedup("k", 60), b"x") == Dedupe("window:k", digest, 60)
    any_body = blake2b(b"", digest_size=16).digest()
    assert make_dedupe(Dedup("k", None), b"x") == Dedupe("unique:k", any_body, None)
    assert make_dedupe(Dedup("k"), b"y").digest != digest
