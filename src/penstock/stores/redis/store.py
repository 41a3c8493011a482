"""The Redis store, and how it is opened, created and migrated by its URL."""

import secrets
from collections.abc import Collection
from typing import Any, Self

from redis.exceptions import MovedError

from penstock.errors import NotYet, StoreTooNew, StoreUnusable
from penstock.retry_policies import MOVED, Retries
from penstock.store import Clock
from penstock.stores.notifier import wait_for_work
from penstock.stores.redis.connection import SCHEMA, RedisConnector, RedisDsn, parse, read_reply
from penstock.stores.redis.consume import RedisConsume
from penstock.stores.redis.copying import RedisCopying
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.documents import RedisDocuments
from penstock.stores.redis.errors import ERRORS, translate_error
from penstock.stores.redis.export import RedisExport
from penstock.stores.redis.health import RedisHealth, read_durability, refuse_unsafe
from penstock.stores.redis.queues import RedisQueues
from penstock.stores.redis.records import RedisActivity, RedisRecords
from penstock.stores.redis.topology import RedisTopology
from penstock.stores.redis.upkeep import RedisUpkeep
from penstock.stores.redis.waiting import RedisWaiting

MIN_VERSION = (6, 2)
NEW, INDEX = f"schema {SCHEMA}", "index of types"


class RedisStore:
    """Implements `penstock.store.Store`. Each verb is one script."""

    def __init__(self, database: RedisDatabase) -> None:
        self.database = database
        self.notifier = database.notifier
        self.capabilities = database.capabilities
        self.now = database.now
        self.close = database.close
        self.catalog = RedisQueues(database)
        export = RedisExport(database)
        upkeep = RedisUpkeep(database, export)
        self.health = RedisHealth(database, self.catalog, export, upkeep)
        self.examine = self.health.examine
        copying = RedisCopying(database)
        self.count_waits = copying.count_waits
        self.dump, self.restore = copying.dump, copying.restore
        activity = RedisActivity(database)
        self.held, self.headings = activity.held, activity.headings
        self.queues_with_keys = activity.queues_with_keys
        # The parts' own methods, bound here so that a call has no frame more.
        self.bind_consume(RedisConsume(database))
        self.bind_upkeep(upkeep)
        self.bind_waiting(RedisWaiting(database))
        self.bind_catalog(self.catalog)
        self.bind_records(RedisRecords(database), RedisDocuments(database), export)

    def bind_consume(self, consume: RedisConsume) -> None:
        self.enqueue = consume.enqueue
        self.enqueue_on = consume.enqueue_on
        self.aenqueue_on = consume.aenqueue_on
        self.complete_on = consume.complete_on
        self.acomplete_on = consume.acomplete_on
        self.save_step_on = consume.save_step_on
        self.asave_step_on = consume.asave_step_on
        self.advance_on = consume.advance_on
        self.aadvance_on = consume.aadvance_on
        self.in_transaction = consume.in_transaction
        self.claim = consume.claim
        self.claim_dead = consume.claim_dead
        self.complete = consume.complete
        self.extend = consume.extend
        self.mark = consume.mark
        self.leases = consume.leases
        self.expired_leases = consume.expired_leases
        self.explain = consume.explain
        self.settle = consume.settle
        self.has_ready = consume.has_ready
        self.any_ready = consume.any_ready

    def bind_upkeep(self, upkeep: RedisUpkeep) -> None:
        self.promote = upkeep.promote
        self.expire = upkeep.expire
        self.age = upkeep.age
        self.sweep_keys = upkeep.sweep_keys
        self.fire = upkeep.fire
        self.dead_counts = upkeep.dead_counts
        self.claim_tick = upkeep.claim_tick
        self.end_tick = upkeep.end_tick
        self.agent_runs = upkeep.agent_runs
        self.prune = upkeep.prune

    def bind_waiting(self, waiting: RedisWaiting) -> None:
        self.wait = waiting.wait
        self.wait_facts = waiting.wait_facts
        self.save_steps = waiting.save_steps
        self.steps = waiting.steps
        self.child_records = waiting.child_records
        self.forget_steps = waiting.forget_steps
        self.signal = waiting.signal
        self.signals = waiting.signals
        self.resume_held = waiting.resume_held
        self.nudge_missed = waiting.nudge_missed
        self.end_held = waiting.end_held
        self.holds = waiting.holds
        self.edges = waiting.edges
        self.awaited_results = waiting.awaited_results

    def bind_catalog(self, catalog: RedisQueues) -> None:
        self.secret = catalog.secret
        self.directory_version = catalog.directory_version
        self.create_scope = catalog.create_scope
        self.scope = catalog.scope
        self.pause_scope = catalog.pause_scope
        self.create_queue = catalog.create_queue
        self.queues = catalog.queues
        self.queue = catalog.queue
        self.change_queue = catalog.change_queue
        self.delete_queue = catalog.delete_queue
        self.save_schedule = catalog.save_schedule
        self.schedules = catalog.schedules
        self.delete_schedule = catalog.delete_schedule
        self.save_worker = catalog.save_worker
        self.workers = catalog.workers
        self.stop_worker = catalog.stop_worker
        self.delete_worker = catalog.delete_worker
        self.apply = RedisTopology(catalog.database, catalog).apply

    def bind_records(
        self, records: RedisRecords, documents: RedisDocuments, export: RedisExport
    ) -> None:
        self.get = records.get
        self.named = records.named
        self.seen = records.seen
        self.result = records.result
        self.find = records.find
        self.scan = records.scan
        self.get_many = records.get_many
        self.diagnose = records.diagnose
        self.cancel = records.cancel
        self.redrive = records.redrive
        self.horizon = records.horizon
        self.purge = records.purge
        self.purge_dead = records.purge_dead
        self.expire_dead = records.expire_dead
        self.save_documents = documents.save_documents
        self.document = documents.document
        self.documents = documents.documents
        self.delete_documents = documents.delete_documents
        self.advance = documents.advance
        self.record = documents.record
        self.acts = documents.acts
        self.acts_after = documents.acts_after
        self.feed = export.feed
        self.frontier = export.frontier
        self.heads = export.heads
        self.digest = export.digest
        self.recent = export.recent
        self.past = export.past
        self.census = export.census
        self.depths = export.depths
        self.waiting_since = export.waiting_since
        self.save_cursor = export.save_cursor
        self.cursors = export.cursors

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.database.close()

    @property
    def wakes(self) -> int:
        return self.notifier.wakes

    async def wait_ready(
        self, queue_ids: Collection[int], timeout: float, since: int | None = None
    ) -> None:
        self.database.refuse_closed()
        await wait_for_work(self.notifier, self.any_ready, queue_ids, timeout, since)

    async def backup(self, path: str) -> None:
        where = self.database.where
        raise NotYet(f"{where}: back it up with redis-cli --rdb, which needs no downtime")


async def open_store(url: str, *, clock: Clock | None = None) -> RedisStore:
    address = parse(url)
    await refuse_unfit(address)
    store = RedisStore(RedisDatabase(address, clock))
    try:
        schema, _ = await store.database.run("found", SCHEMA, secrets.token_hex(32))
        refuse_newer(int(schema), address.where)
        await store.catalog.create_defaults()
    except BaseException:
        await store.close()
        raise
    return store


async def exists(url: str) -> bool:
    address = parse(url)
    connector = RedisConnector(address)
    retries: Retries | None = None
    while True:
        session = await connector.plain_session()
        try:
            return bool(await session.ask("HEXISTS", address.key("fact"), "secret"))
        except ERRORS as error:
            if isinstance(error, MovedError):
                connector.move(error)
                retries = retries or MOVED.begin()
                if await retries.again():
                    continue
            raise translate_error(error, address.where) from error
        finally:
            session.terminate()


def refuse_newer(schema: int, where: str) -> None:
    if schema > SCHEMA:
        raise StoreTooNew(f"{where}: schema {schema} is newer than {SCHEMA}; upgrade Penstock")


async def refuse_unfit(address: RedisDsn) -> None:
    session = await RedisConnector(address).plain_session()
    try:
        info = read_reply(await session.ask("INFO"))
        refuse_server(info)
        if address.durability == "safe":
            refuse_unsafe(await read_durability(session))
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        session.terminate()


def refuse_server(info: dict[str, str]) -> None:
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_VERSION:
        raise StoreUnusable(f"Redis {version} is too old; 6.2 or newer is needed")
    if info.get("role") == "slave":
        raise StoreUnusable("it is a read-only replica; use the primary")


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    new = not await exists(url)
    if new and plan:
        return [NEW]
    async with await open_store(url) as store:
        steps = [NEW] if new else []
        if not await store.health.lacks_type_index():
            return steps
        if not plan:
            await store.catalog.index_types()
        return [*steps, INDEX]
