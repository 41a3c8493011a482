"""Messages of the lake go back into a queue: the right ones, once, in order, or none at all."""

from itertools import groupby
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from penstock.broker.local import Broker
from penstock.errors import FieldNotHere, InvalidState, PenstockError, QueueDraining, QueueFull
from penstock.model.message import Draft, FeedMessage
from penstock.model.queue import QueueState
from penstock.model.store_types import Completion
from penstock.pipeline import ReplayRequest, ReplayResult, extract, replay
from penstock.pipeline.replay import HEADER, is_descendant, mark_replayed
from penstock.pipeline.spark.errors import translate_errors
from penstock.rules.fingerprints import make_fingerprint
from tests.cli.terminal import Terminal
from tests.extent import LONG
from tests.pipeline.scenes import AnyServer, consume, fed, on, publish

DONE = ReplayRequest("state = 'completed'")


class Scene:
    """A store, its lake, and what was published since."""

    def __init__(self, spark: SparkSession, url: str, lake: Path) -> None:
        self.spark, self.url, self.lake = spark, url, str(lake)
        extract(spark, url, self.lake)
        self.before = len(fed(url)[0])

    def replay(
        self, wish: ReplayRequest, rate: float | None = None, dry_run: bool = False
    ) -> ReplayResult:
        return replay(self.spark, self.url, self.lake, wish, rate=rate, dry_run=dry_run)

    def copies(self) -> list[FeedMessage]:
        return sorted(fed(self.url)[0], key=lambda each: each.id)[self.before :]


@pytest.fixture
def scene(spark: SparkSession, url: str, lake: Path) -> Scene:
    return Scene(spark, url, lake)


@pytest.fixture(scope="module")
def still(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """For those that publish nothing."""
    folder = tmp_path_factory.mktemp("still")
    url = f"sqlite:///{folder / 'store.db'}"
    publish(url, 30)
    consume(url, 20)
    on(url, strangers)
    return Scene(spark, url, folder / "lake")


async def strangers(broker: Broker) -> None:
    """Another tenant has a queue of the same name."""
    theirs = Broker(broker.store, tenant="other")
    await theirs.admin.create_scope("default")
    await theirs.admin.create_queue("mail")
    await theirs.publish(Draft(queue="mail"))
    await theirs.complete((await theirs.claim("mail", consumer="c")).messages[0])


def finish(url: str, queue: str = "mail") -> None:
    async def work(broker: Broker) -> None:
        while taken := (await broker.claim(queue, consumer="c", limit=100)).messages:
            await broker.complete_many([Completion(each.id, each.fence) for each in taken])

    on(url, work)


def test_a_copy_is_like_the_original_and_says_so(scene: Scene) -> None:
    wish = ReplayRequest("state = 'failed' and error = 'broken' and queue = 'mail'")
    done = scene.replay(wish)
    assert done == ReplayResult(wish.title, {"mail": 1}, published=1)
    (copy,) = scene.copies()
    (original,) = [each for each in fed(scene.url)[0] if each.id == copy.meta.parent_id]
    assert (copy.body, copy.type, copy.priority) == (original.body, original.type, 0)
    headers = {"n": "0", "penstock-replay": wish.title}
    assert copy.meta == replace(
        original.meta, headers=headers, parent_id=original.id, dedup=f"{wish.title}:{original.id}"
    )


def test_only_what_ended_and_is_ours_is_replayed(still: Scene) -> None:
    assert still.replay(ReplayRequest("true"), dry_run=True).queues == {"mail": 19}


@pytest.mark.parametrize(
    ("filter", "count"),
    [
        ("state:completed", 18),
        ("state:failed error:BROKEN queue:mail", 1),
        (f"fingerprint:{make_fingerprint('broken')} failed>2020-01-01", 1),
        ("queue:ma* -state:completed", 1),
        ("id>3 id<=9 created>2020-01-01 type:message", 6),
        ("header.n:2 size>=0", 1),
    ],
)
def test_a_filter_selects_what_it_says(still: Scene, filter: str, count: int) -> None:
    assert still.replay(ReplayRequest(filter=filter), dry_run=True).queues == {"mail": count}


def test_a_field_that_the_lake_lacks_is_refused(still: Scene) -> None:
    with pytest.raises(FieldNotHere, match="'due'"):
        still.replay(ReplayRequest(filter="due<2030-01-01"), dry_run=True)


def test_the_same_again_publishes_nothing_even_when_the_copies_have_ended(scene: Scene) -> None:
    assert scene.replay(DONE).published == 18
    assert (again := scene.replay(DONE)).published == 0
    assert again.repeated == 18
    finish(scene.url)
    extract(scene.spark, scene.url, scene.lake)
    # The ten that waited have ended meanwhile, and the copies too.
    assert scene.replay(DONE).published == 10
    assert scene.replay(ReplayRequest("state = 'completed'", name="b")).published == 46


def test_a_copy_of_a_copy_is_known_as_well(spark: SparkSession) -> None:
    given = [None, {"h": "1"}, {HEADER: "a"}, {HEADER: "b,a", "h": "1"}, {HEADER: "ab"}]
    rows = spark.createDataFrame([(each,) for each in given], "headers map<string,string>")
    found = rows.select(
        is_descendant("a").alias("made"), mark_replayed("a").alias("headers")
    ).collect()
    assert [row.made for row in found] == [False, False, True, True, False]
    assert [row.headers[HEADER] for row in found] == ["a", "a", "a,a", "b,a,a", "ab,a"]
    assert [row.headers.get("h") for row in found] == [None, "1", None, "1", None]


@LONG
def test_what_a_full_queue_broke_off_goes_on(scene: Scene) -> None:
    depth = 11 + 12
    on(scene.url, lambda broker: broker.admin.set_queue("mail", max_depth=depth))
    with pytest.raises(QueueFull, match="queue 'mail' is full"), translate_errors():
        scene.replay(DONE, rate=60.0)
    published = len(scene.copies())
    assert 0 < published < 18
    on(scene.url, lambda broker: broker.admin.set_queue("mail", max_depth=1_000))
    assert scene.replay(DONE).published == 18 - published
    parents = [each.meta.parent_id for each in scene.copies()]
    assert len(set(parents)) == 18


def test_order_is_kept_by_key_over_several_tasks(
    spark: SparkSession, tmp_path: Path, lake: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'keyed.db'}"
    publish(url, 0)
    drafts = [Draft(queue="mail", ordering_key=f"k{n % 5}", body=b"%d" % n) for n in range(60)]
    on(url, lambda broker: broker.publish_many(drafts))
    finish(url)
    scene = Scene(spark, url, lake)
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        assert scene.replay(DONE).published == 60
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "1")
    copies = sorted(scene.copies(), key=lambda each: (each.meta.ordering_key or "", each.id))
    lines = groupby(copies, lambda each: each.meta.ordering_key)
    found = {key: [int(each.body) for each in line] for key, line in lines}
    assert found == {f"k{n}": list(range(n, 60, 5)) for n in range(5)}


def test_a_patch_is_the_new_body_and_to_the_new_queue(scene: Scene) -> None:
    on(scene.url, lambda broker: broker.admin.create_queue("repaired"))
    wish = ReplayRequest(
        "text = '{\"n\":1}' and state = 'completed'", "replace(text, '1', '2')", "repaired"
    )
    done = scene.replay(wish)
    assert done.queues == {"repaired": done.published}
    assert {each.body for each in scene.copies()} == {b'{"n":2}'}
    (queue,) = {each.queue_id for each in scene.copies()}
    assert queue == on(scene.url, lambda broker: broker.admin.queue("repaired")).id


def test_a_queue_that_was_renamed_is_found(scene: Scene) -> None:
    on(scene.url, lambda broker: broker.admin.rename_queue("mail", "post"))
    assert scene.replay(DONE, dry_run=True).queues == {"post": 18}
    assert scene.copies() == []


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (ReplayRequest("staet = 'failed'"), r"--where \"staet = 'failed'\": A column.*`staet`"),
        (ReplayRequest("state = "), r"--where 'state = ': Syntax error"),
        (ReplayRequest("text"), r"--where 'text': .*boolean"),
        (ReplayRequest("count(*) > 1"), r"--where 'count"),
        (ReplayRequest("cast(correlation_id as int) > 1"), r"failed for a message: .*'c\d+'"),
        (ReplayRequest("true", "nonsense(text)"), r"--patch 'nonsense\(text\)': .*nonsense"),
        (
            ReplayRequest("true", "priority"),
            r"--patch 'priority' has type bigint; a body must be string or binary",
        ),
        (ReplayRequest("true", "nullif(text, '')"), r"returns no body for \d+ messages"),
        (
            ReplayRequest("true", "explode(array('a', 'b'))"),
            r"returns several bodies for a message",
        ),
        (ReplayRequest("true", to="emials"), r"no queue named 'emials'"),
        (ReplayRequest("true", "repeat('x', 2000000)"), r"body has 2000000 bytes"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_published(
    still: Scene, wish: ReplayRequest, reason: str
) -> None:
    with pytest.raises(PenstockError, match=reason), translate_errors():
        still.replay(wish)
    assert still.copies() == []


def test_a_queue_that_takes_nothing_is_known_before(scene: Scene) -> None:
    on(scene.url, lambda broker: broker.admin.set_state("mail", QueueState.DRAINING))
    with pytest.raises(QueueDraining, match="queue 'mail' is draining"):
        scene.replay(DONE)
    assert scene.copies() == []


def test_a_lake_of_another_store_is_refused(still: Scene, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path / 'other.db'}"
    publish(other, 1)
    with pytest.raises(InvalidState, match="belongs to another store"):
        replay(still.spark, other, still.lake, DONE)


def test_the_command_says_what_it_did(scene: Scene, terminal: Terminal) -> None:
    words = ("replay", "--url", scene.url, "--lake", scene.lake, "--where", "state = 'completed'")
    assert terminal.call(*words, "--dry-run").out == "18 messages matched: mail 18\n"
    assert scene.copies() == []
    said = terminal.call(*words, "--rate", "500/s").out
    assert said == "18 messages matched: mail 18\n18 published, 0 already replayed\n"
    told = terminal.call(*words, "--json").json
    assert (told["matched"], told["published"], told["repeated"]) == (18, 0, 18)
    assert list(Path(scene.lake).glob("_replay*")) == []
    wrong = terminal.call(*words[:-1], "state =", code=1).err
    assert wrong.startswith("penstock: --where 'state =': ")
    assert wrong.count("\n") == 1


@LONG
@pytest.mark.parametrize("engine", ["postgres"])
def test_a_store_on_a_server_is_replayed_alike(
    spark: SparkSession, lake: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    server: AnyServer = request.getfixturevalue(f"{engine}_server")
    with server.database() as url:
        publish(url, 30)
        consume(url, 20)
        scene = Scene(spark, url, lake)
        assert [scene.replay(DONE).published for _ in range(2)] == [18, 0]
        assert len(scene.copies()) == 18
