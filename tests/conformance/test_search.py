"""Searching by a filter: pages hold what the matcher says, on every store."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from penstock.broker import match_count, search, search_sources
from penstock.broker.match_count import MatchCount, count_matches
from penstock.broker.search_sources import DeadLetterMerge
from penstock.errors import InvalidInput
from penstock.model.message import Draft, Fail, Record
from penstock.model.search import Position, Scan, ScanPage, Source
from penstock.rules.filter_match import make_candidate, matches
from penstock.rules.filter_parser import parse_filter
from penstock.rules.fingerprints import make_fingerprint
from tests.conformance.acts import SETTLING
from tests.conformance.stage import Stage
from tests.extent import ALL

pytestmark = pytest.mark.anyio

QUEUES = ("default", "mail", "mail-out")
TERMS = (
    "state:ready", "state:dead", "state:unfinished", "state:ended", "state:scheduled",
    "state:claimed", "state:failed,expired", "state:cancelled", "-state:completed",
    "queue:mail*", "queue:default", "queue:nowhere",
    "type:send", "type:s*", "error:BAD", "reason:*", "label.tier:gold,silver", "header.a:b",
    "body.country:BR", "body.n>3", "correlation:story-1", "correlation:story*", "priority>=1",
    "attempts>0", "created>-1h", "created<-30m", "age<20m", "key:k", "size>20", "id:3,5,8",
    "consumer:tester", "due>now", "wait<1h", "failed>-20m",
    f"fingerprint:{make_fingerprint('')}", f"fingerprint:{make_fingerprint('bad')}",
)  # fmt: skip


@pytest.fixture(autouse=True)
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a search enough time to fill its page on a loaded machine."""
    monkeypatch.setattr(search, "MAX_WORK_S", 60.0)


async def fill(stage: Stage, random: Random) -> list[Record]:
    """Publishes messages of all kinds and brings them into all states."""
    for name in QUEUES[1:]:
        await stage.queue(name)
    for _ in range(3):
        for number in range(15):
            await stage.broker.publish(make_draft(random, number))
        for queue in QUEUES:
            for leased in await stage.claim(queue, limit=random.randrange(1, 6)):
                act, _ = random.choice(list(SETTLING.values()))
                await act(stage.broker, leased)
        await stage.travel(25)
        await stage.store.expire(100)
    for queue in QUEUES:
        await stage.claim(queue, limit=2)
    return await stage.admin.find(limit=1_000)


def make_draft(random: Random, number: int) -> Draft:
    return Draft(
        body=random.choice([b"", b"not json", b'{"country":"BR","n":%d}' % number]),
        queue=random.choice(QUEUES),
        type=random.choice(["send", "sync", "build"]),
        priority=random.randrange(3),
        delay=random.choice([0.0, 0.0, 3_600.0]),
        ttl=random.choice([None, None, 20.0]),
        correlation_id=random.choice([None, "story-1", "story-2"]),
        ordering_key=random.choice([None, None, "k"]),
        labels=random.choice([None, {"tier": "gold"}, {"tier": "iron"}]),
        headers=random.choice([None, {"a": "b"}]),
    )


def make_filter(random: Random, depth: int = 0) -> str:
    terms = []
    for _ in range(random.randrange(1, 4)):
        term = random.choice(TERMS)
        if depth < 2 and random.random() < 0.3:
            term = f"({make_filter(random, depth + 1)} OR {make_filter(random, depth + 1)})"
        terms.append(("-" if random.random() < 0.3 else "") + term)
    return " ".join(terms)


async def search_all(stage: Stage, filter: str, limit: int) -> list[Record]:
    """Reads all pages of a search."""
    found: list[Record] = []
    cursor = None
    while True:
        page = await stage.admin.search(filter, cursor=cursor, limit=limit)
        assert len(page.records) <= limit
        found += page.records
        cursor = page.cursor
        if cursor is None:
            return found


async def find_expected(stage: Stage, records: list[Record], filter: str) -> set[int]:
    node = parse_filter(filter, await stage.store.now())
    queues = {queue.id: queue for queue in await stage.admin.queues()}
    return {
        record.message.id
        for record in records
        if matches(node, make_candidate(record, queues[record.message.queue_id]))
    }


@pytest.mark.parametrize("seed", range(3 if ALL else 1))
async def test_the_pages_of_a_search_hold_each_match_once(stage: Stage, seed: int) -> None:
    random = Random(seed)
    records = await fill(stage, random)
    for filter in (*TERMS, *(make_filter(random) for _ in range(40))):
        found = await search_all(stage, filter, limit=random.choice([1, 4, 50]))
        ids = [record.message.id for record in found]
        assert len(ids) == len(set(ids)), filter
        assert set(ids) == await find_expected(stage, records, filter), filter


async def test_what_a_search_finds_is_what_get_says(stage: Stage) -> None:
    await fill(stage, Random(7))
    found = await search_all(stage, "", limit=50)
    assert found
    for record in found:
        told = await stage.record(record.message.id)
        assert make_plain(told) == make_plain(record)


def make_plain(record: Record) -> tuple[object, ...]:
    timeline = [(row.position, row.verb, row.state, row.error) for row in record.timeline]
    return record.message, record.state, record.blocked_by, record.due_at, timeline


async def test_a_search_ends_at_its_bounds_and_goes_on_from_its_cursor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_SCANNED", 10)
    first = await stage.publish(type="rare")
    await stage.publish_each(25)
    page = await stage.admin.search("type:rare")
    assert (page.records, page.scanned, page.exact) == ([], 10, False)
    assert page.scanned_to is not None
    found = await search_all(stage, "type:rare", limit=50)
    assert [record.message.id for record in found] == [first]


async def test_a_search_ends_after_so_many_bytes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_BYTES", 1_000)
    monkeypatch.setattr(search_sources, "BATCH_BYTES", 1_000)
    for _ in range(5):
        await stage.publish(b"x" * 900)
    page = await stage.admin.search("label.tier:gold")
    assert (page.scanned, page.exact) == (2, False)
    assert len(await search_all(stage, "size:900", limit=50)) == 5


async def test_a_message_that_leaves_its_place_meanwhile_is_judged_as_it_is_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.publish()
    scan = stage.store.scan

    async def scan_and_claim(what: Scan) -> ScanPage:
        page = await scan(what)
        await stage.broker.claim("default", consumer="ann")
        return page

    monkeypatch.setattr(stage.store, "scan", scan_and_claim)
    assert (await stage.admin.search("state:ready")).records == []


@pytest.fixture
def reads(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects how many messages each read asks for."""
    get_many, sizes = stage.store.get_many, list[int]()

    async def get_some(ids: Sequence[int]) -> list[Record]:
        sizes.append(len(ids))
        return await get_many(ids)

    monkeypatch.setattr(stage.store, "get_many", get_some)
    return sizes


@pytest.mark.parametrize("filter", ["id:{}", "label.tier:iron"])
async def test_messages_are_read_by_their_size_and_number(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, reads: list[int], filter: str
) -> None:
    monkeypatch.setattr(search_sources, "BATCH_BYTES", 1_000)
    monkeypatch.setattr(search, "MIN_READ", 2)
    monkeypatch.setattr(search, "MAX_READ", 3)
    large = [await stage.publish(b"x" * 700, labels={"tier": "iron"}) for _ in range(3)]
    small = [await stage.publish(b"", labels={"tier": "iron"}) for _ in range(7)]
    found = await search_all(stage, filter.format(",".join(map(str, large + small))), limit=100)
    assert [each.message.id for each in found] == (large + small)[::-1]
    assert reads == [3, 3, 2, 1, 1]


async def test_a_search_by_ids_reads_those_that_can_match_up_to_its_bounds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    monkeypatch.setattr(search, "MAX_BYTES", 1_000)
    monkeypatch.setattr(search_sources, "BATCH_BYTES", 1_000)
    await stage.queue("mail")
    ids = [await stage.publish(b"x" * 900, queue="mail" if n % 2 else "default") for n in range(6)]
    page = await stage.admin.search(f"queue:mail id:{','.join(map(str, ids))}")
    assert ([each.message.id for each in page.records], page.exact) == ([ids[5], ids[3]], False)
    rest = await stage.admin.search(f"queue:mail id:{','.join(map(str, ids))}", cursor=page.cursor)
    assert ([each.message.id for each in rest.records], rest.exact) == ([ids[1]], True)
    assert reads == [1, 1, 1]


@pytest.mark.parametrize("most", [2, 100])
async def test_dead_letters_of_many_queues_are_found_the_last_dead_first(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """More queues than are merged are read one after the other."""
    monkeypatch.setattr(search_sources, "MAX_MERGED_QUEUES", most)
    monkeypatch.setattr(search_sources, "MIN_CHUNK", 1)
    await stage.queue("mail")
    await stage.queue("empty")
    died: list[int] = []
    for number in range(7):
        died.append(await stage.dead("mail" if number % 3 else "default"))
        await stage.travel(1)
    newest = died[::-1]
    for limit in (1, 2, 50):
        found = await search_all(stage, "state:dead", limit)
        ids = [record.message.id for record in found]
        assert sorted(ids) == died
        assert (ids == newest) is (most > 2), limit


async def test_a_search_goes_on_when_there_are_too_many_queues_to_merge(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins again: pages may repeat a message, and none is missing."""
    monkeypatch.setattr(search_sources, "MAX_MERGED_QUEUES", 2)
    await stage.queue("mail")
    died = {await stage.dead("mail" if number % 2 else "default") for number in range(6)}
    page = await stage.admin.search("state:dead", limit=2)
    found = {each.message.id for each in page.records}
    await stage.queue("third")
    while page.cursor is not None:
        page = await stage.admin.search("state:dead", limit=2, cursor=page.cursor)
        found |= {each.message.id for each in page.records}
    assert found == died


async def test_a_merge_reads_few_dead_letters_of_each_queue_and_ends_in_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await stage.queue(f"q{number}") for number in range(5)]
    died = [await stage.dead(f"q{number % 5}") for number in range(40)]
    scan, read = stage.store.scan, list[int]()

    async def count_heads(what: Scan) -> ScanPage:
        page = await scan(what)
        read.append(len(page.heads))
        return page

    monkeypatch.setattr(stage.store, "scan", count_heads)
    merge = DeadLetterMerge(stage.store, ids, Position())
    in_time = await merge.read(10, math.inf)
    assert len(in_time.heads) == 10
    assert sum(read) <= 30
    late = await merge.read(10, 0.0)
    assert len(late.heads) == 1
    assert late.next is not None
    rest = await DeadLetterMerge(stage.store, ids, late.next).read(100, math.inf)
    every = [*in_time.heads, *late.heads, *rest.heads]
    assert sorted(head.id for head in every) == died


async def test_matches_are_counted_by_counters_or_by_a_search(stage: Stage) -> None:
    records = await fill(stage, Random(3))
    queues = await stage.admin.queues()
    for filter in (
        *TERMS,
        "state:dead queue:mail*",
        "-state:ended -queue:mail",
        "(state:ready OR state:dead)",
    ):
        depths = await stage.store.depths(0)
        found = await count_matches(stage.store, filter, queues, depths, lambda *_: True)
        expected = len(await find_expected(stage, records, filter))
        assert found == MatchCount(expected, exact=True), filter


async def test_a_count_that_ends_at_its_bounds_is_not_exact(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match_count, "MAX_COUNTED", 4)
    await stage.publish_each(9)
    queues = await stage.admin.queues()
    found = await count_matches(stage.store, "size>=0", queues, {}, lambda *_: True)
    assert found == MatchCount(4, exact=False)


async def test_ready_messages_are_found_in_claim_order(stage: Stage) -> None:
    late = await stage.publish(priority=0)
    soon = await stage.publish(priority=5)
    found = await search_all(stage, "state:ready", limit=1)
    assert [record.message.id for record in found] == [soon, late]


async def test_messages_that_failed_are_found_without_reading_the_completed_ones(
    stage: Stage,
) -> None:
    await stage.completed()
    failed = await stage.publish()
    await stage.broker.settle(await stage.take(), Fail("no good"))
    for _ in range(20):
        await stage.completed()
    await stage.publish_each(20)
    page = await stage.admin.search("state:failed,expired,cancelled")
    assert ([record.message.id for record in page.records], page.exact) == ([failed], True)
    assert page.scanned <= 2


async def test_a_search_by_creation_time_begins_at_that_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "PAGE_SIZE", 2)
    old = await stage.publish_each(10)
    await stage.travel(7_200)
    await stage.publish_each(40)
    page = await stage.admin.search("created<-1h", limit=10)
    assert [record.message.id for record in page.records] == old[::-1]
    assert page.scanned <= 20


async def test_a_scan_of_places_goes_on_over_many_queues(stage: Stage) -> None:
    ids = [await stage.queue(f"q{number}") for number in range(105)]
    last = await stage.publish(queue="q104")
    first = await stage.store.scan(Scan(Source.READY, tuple(ids)))
    assert (first.heads, first.next) == ([], Position(ids[100]))
    rest = await stage.store.scan(Scan(Source.READY, tuple(ids), Position(ids[100])))
    assert ([head.id for head in rest.heads], rest.next) == ([last], None)


@pytest.mark.parametrize("cursor", ["", "x", "1.messages.0.0", "1.nowhere.0.0.0", "1.dead.0.0.x"])
async def test_a_wrong_cursor_is_named(stage: Stage, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="is not the cursor of a search"):
        await stage.admin.search("state:dead", cursor=cursor)


async def test_a_cursor_of_another_filter_is_refused(stage: Stage) -> None:
    await stage.publish_each(3)
    page = await stage.admin.search("state:ready", limit=1)
    with pytest.raises(InvalidInput, match="another filter"):
        await stage.admin.search("state:dead", cursor=page.cursor)
