"""MariaDB's own statements: hot verbs are one packet each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

from penstock.errors import NotYet, StoreError
from penstock.model.copies import StoreDump
from penstock.model.heads import DigestBounds, FeedDigest, HeadFeed
from penstock.model.message import HistoryRow, Moment, State, Verb
from penstock.model.store_types import (
    Claim,
    Claimed,
    Completion,
    Cursor,
    Entry,
    Extension,
    Feed,
    Firing,
    Lock,
    Move,
    Pruned,
    Published,
    Retention,
)
from penstock.model.waiting import SignalAnswer, SignalDraft, StepRecord, StepSave
from penstock.rules.digests import make_digest
from penstock.store import Check
from penstock.stores.mariadb import caller_transaction, feed, health, publish, schema
from penstock.stores.mariadb import claim as claims
from penstock.stores.mariadb.caller_transaction import KINDS
from penstock.stores.mariadb.connection import (
    MariaConnection,
    MariaDsn,
    StatementOutcome,
    last_rows,
)
from penstock.stores.mariadb.errors import ERRORS, is_connection_gone, translate_error
from penstock.stores.mariadb.statement import (
    RawSql,
    fill_statement,
    locks_of,
    to_json_array,
    to_literal,
    to_tuples,
)
from penstock.stores.mariadb.transaction import (
    BEGIN_WRITING,
    COMMIT,
    ROLLBACK,
    MariaDriver,
    MariaTransaction,
)
from penstock.stores.notifier import NullNotifier
from penstock.stores.sql import export, upkeep
from penstock.stores.sql.caller_transaction import Inside
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.documents import with_audit
from penstock.stores.sql.firing import fire
from penstock.stores.sql.publish import list_queue_ids, publish_together
from penstock.stores.sql.settle import apply
from penstock.stores.sql.transaction import Ticket

Locked = TypeVar("Locked", Completion, Extension)


class MariaDialect:
    def __init__(
        self,
        database: ServerDatabase[MariaConnection, MariaTransaction],
        driver: MariaDriver,
        notifier: NullNotifier,
        address: MariaDsn,
        seal: str,
    ) -> None:
        self.database = database
        self.driver = driver
        self.notifier = notifier
        self.address = address
        # Identifies the store, to check that a caller's connection is to the same one.
        self.seal = seal
        # sysdate advances while a statement runs. It is UTC in our sessions.
        self.moment = RawSql(address.moment.replace("utc_timestamp", "sysdate"))

    async def act(self, *texts: str) -> list[StatementOutcome]:
        """Runs one packet as one transaction that writes messages. Retries conflicts."""
        begin = (*BEGIN_WRITING, self.driver.clock)
        outcomes = await self.database.retry_conflicts(
            lambda: self.send_packet(*begin, *texts, COMMIT)
        )
        return outcomes[len(begin) : -1]

    async def send_packet(self, *texts: str) -> list[StatementOutcome]:
        """Runs one packet. Errors are the driver's, unless the answer was lost."""
        self.database.refuse_closed()
        async with self.database.pool.use() as session:
            try:
                return await session.send(*texts)
            except ERRORS as error:
                if is_connection_gone(error):
                    raise self.driver.translate(error, sent=True) from error
                await session.send(ROLLBACK)
                raise

    async def enqueue_plain(self, entries: Sequence[Entry]) -> list[Published]:
        if sum(len(entry.body) for entry in entries) > publish.ONE_PACKET:
            return await self.database.write(publish_together, entries)
        queues = list_queue_ids(entries)
        outcomes = await self.act(*publish.make_statements(entries), *self.driver.notices(queues))
        self.notifier.notify(queues)
        return publish.make_published(outcomes[0].first, len(entries))

    async def enqueue_fanouts(self, entries: Sequence[Entry]) -> list[Published] | None:
        return None

    async def save_step(self, item: StepSave) -> StepRecord | None:
        return None

    async def signal_held(self, draft: SignalDraft) -> SignalAnswer | None:
        return None

    def inside(self, connection: object) -> Inside:
        return caller_transaction.enter_transaction(
            KINDS.adapt(connection), self.address, self.seal
        )

    async def ainside(self, connection: object) -> Inside:
        caller = await KINDS.adapt_async(connection)
        return caller_transaction.enter_transaction(caller, self.address, self.seal)

    async def claim(self, claim: Claim) -> Claimed:
        rows, expired = await self.run_claim(
            claims.make_claim_statement(claim, self.driver.clock, self.moment)
        )
        messages = claims.make_leased(rows, claims.lease_micros(claim))
        if not expired:
            return Claimed(messages)
        if messages:
            # These are claimed already, whatever happens to the rest.
            with suppress(StoreError):
                await self.clear(claim.queue_ids)
            return Claimed(messages)
        return Claimed([], again=await self.clear(claim.queue_ids))

    async def clear(self, queue_ids: Sequence[int]) -> bool:
        """Ends expired messages as a set; those with keys to free one by one."""
        most = self.database.capabilities.max_batch
        ended = await self.database.write(expire_in_line, queue_ids, most)
        return bool(ended or await self.database.write(claims.clear, queue_ids, most))

    async def claim_dead(self, claim: Claim) -> Claimed:
        rows, _ = await self.run_claim(
            claims.make_dead_claim_statement(claim, self.driver.clock, self.moment)
        )
        return Claimed(claims.make_leased(rows, claims.lease_micros(claim), claims.DEAD_AT))

    async def run_claim(self, text: str) -> tuple[list[Any], list[Any]]:
        """Returns the claimed rows and whether expired messages are in line."""
        *found, expired, _ = await self.database.retry_conflicts(lambda: self.send_packet(text))
        return last_rows(found), expired.row_list

    async def complete_set(self, items: Sequence[Completion]) -> list[Any]:
        return await self.run_set(BEGIN_WRITING, make_complete_statements, items)

    async def extend_set(self, items: Sequence[Extension]) -> list[Any]:
        return await self.run_set(BEGIN_WRITING[:1], make_extend_statements, items)

    async def run_set(
        self,
        begin: tuple[str, ...],
        texts: Callable[[Sequence[Locked]], list[str]],
        items: Sequence[Locked],
    ) -> list[Any]:
        """Runs a set once; its caller settles one by one what a conflict has left out."""
        once = list({(item.id, item.fence): item for item in reversed(items)}.values())
        try:
            outcomes = await self.send_packet(*begin, self.driver.clock, *texts(once), COMMIT)
        except ERRORS as error:
            raise self.driver.translate(error) from error
        return last_rows(outcomes)

    async def free_among(self, items: Sequence[Locked]) -> list[Locked]:
        rows = await self.database.fetch("free_leases", {"locks": locks_of(items)})
        free = {tuple(row) for row in rows}
        return [item for item in items if (item.id, item.fence) in free]

    async def fetch_leases(self, locks: Sequence[Lock]) -> list[Any]:
        return await self.database.fetch("leases", {"locks": locks_of(locks)})

    async def settle_set(self, moves: Sequence[Move]) -> list[Any]:
        return await self.database.write(settle_free, moves)

    # Agents.

    async def now(self) -> Moment:
        moment: Moment = (await self.database.fetch("moment"))[0][0]
        return moment

    async def promote_set(self, limit: int) -> list[int]:
        return await self.database.write(promote_due, limit)

    async def expire(self, limit: int) -> int:
        """Expires as sets; messages with keys to free one by one."""
        if not await self.database.look(upkeep.any_expired):
            return 0
        ended = await self.database.write(expire_sets, limit)
        if ended < limit:
            ended += await self.database.write(upkeep.expire, limit - ended)
        return ended

    async def fire(self, firings: Sequence[Firing]) -> list[bool]:
        return await self.database.write(fire, firings)

    async def prune(self, retention: Retention) -> Pruned:
        final = await feed.find_final(self.database)
        ids, pruned = await self.database.read(feed.find_prunable, retention, final)
        return (
            await self.database.write(with_audit(feed.prune), retention, final) if ids else pruned
        )

    # Operators and export.

    async def index_types(self) -> None:
        session = await self.address.connect()
        try:
            if not await schema.has_type_index(session):
                await schema.build_type_index(session)
        except ERRORS as error:
            raise translate_error(error, self.address.where) from error
        finally:
            session.terminate()

    async def examine(self) -> list[Check]:
        checks = await self.database.read(health.examine, self.address)
        return [*checks, await self.notifier.examine()]

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.address.where}: back it up with mariadb-dump --single-transaction")

    async def feed(self, cursor: Cursor, limit: int, known: Cursor | None = None) -> Feed:
        final = None if known is None else feed.Final(known.message, known.history)
        final = final or await feed.find_final(self.database)
        return await self.database.read(feed.feed, cursor, limit, final)

    async def heads(self, cursor: Cursor, limit: int) -> HeadFeed:
        final = await feed.find_final(self.database)
        return await self.database.read(feed.read_heads, cursor, limit, final)

    async def digest(self, cursor: Cursor, limit: int, bounds: DigestBounds) -> FeedDigest:
        return make_digest(await self.heads(cursor, limit), bounds)

    async def past(self, before: int, after: int, limit: int) -> list[HistoryRow]:
        return await self.database.read(export.past, before, after, limit)

    async def recent(
        self, after: int, limit: int, beyond: Cursor | None = None
    ) -> list[HistoryRow]:
        begin = max(after, beyond.history if beyond else 0)
        return await self.database.read(export.recent, begin, limit)

    async def restore(self, page: StoreDump, queue_ids: Mapping[int, int]) -> int:
        return await self.database.write(feed.restore, page, queue_ids)


def make_complete_statements(items: Sequence[Completion]) -> list[str]:
    """Returns the statements; the second yields the completed locks."""
    locks = locks_of(items)
    given = [item for item in items if item.result is not None]
    kept = [fill_statement("complete_results", given=make_results(given))] if given else []
    hold, leave = (
        fill_statement("hold_leases", locks=locks),
        fill_statement("complete_leave", locks=locks),
    )
    return [hold, fill_statement("complete", locks=locks), *kept, leave]


def make_results(items: Sequence[Completion]) -> RawSql:
    return RawSql(
        "\nUNION ALL\n".join(
            f"SELECT {item.id} AS id, {item.fence} AS fence, {to_literal(item.result)} AS body"
            for item in items
        )
    )


def make_extend_statements(items: Sequence[Extension]) -> list[str]:
    """Returns the statements; the last yields the new lease ends."""
    texts = [fill_statement("hold_leases", locks=locks_of(items))]
    for lease, run in groupby(sorted(items, key=extension_micros), extension_micros):
        texts.append(fill_statement("extend_many", length=lease, locks=locks_of(list(run))))
    return [*texts, fill_statement("extended", locks=locks_of(items))]


def extension_micros(item: Extension) -> int:
    return int(item.lease * 1_000_000)


async def settle_free(tx: MariaTransaction, moves: Sequence[Move]) -> list[Any]:
    """Makes the moves whose rows are not locked; returns those made."""
    rows = await tx.all("settle_look", ids=sorted(move.id for move in moves))
    held = {(row[2], row[9]): row for row in rows}
    made = [move for move in moves if is_unchanged(move, held.get((move.id, move.fence)))]
    if made:
        await tx.add(fill_statement("leave_leases", locks=locks_of(made)))
    for move in made:
        await apply(tx, move, held[move.id, move.fence][:13])
    return [(move.id,) for move in made]


def is_unchanged(move: Move, row: Any) -> bool:
    """True if the lease is as the rules saw it."""
    if row is None or row[7] != move.seen_flags:
        return False
    return move.expired_by is None or row[13] < move.expired_by


async def promote_due(tx: MariaTransaction, limit: int) -> list[int]:
    """Promotes due tickets that need not wait for their key; returns their queues."""
    rows = await tx.all("promote_many", limit=limit)
    if rows:
        await tx.add(fill_statement("leave_scheduled", array=to_json_array(id for id, _ in rows)))
    return [queue for _, queue in rows]


async def expire_sets(tx: MariaTransaction, limit: int) -> int:
    """Ends expired messages that free no key."""
    ended = await expire_in_line(tx, (), limit)
    if ended < limit:
        ended += await end_expired(tx, await tx.all("expire_scheduled", limit=limit - ended))
    return ended


async def expire_in_line(tx: MariaTransaction, queues: Sequence[int], limit: int) -> int:
    """Ends expired ready messages of these queues, or of all."""
    rows = await tx.all("expire_ready", everywhere=not queues, queues=list(queues), limit=limit)
    return await end_expired(tx, rows)


async def end_expired(tx: MariaTransaction, rows: Sequence[Any]) -> int:
    """Writes the ends of tickets that were already deleted."""
    if rows:
        ended = [make_expired_row(Ticket._make(row), tx.now) for row in rows]
        await tx.add(fill_statement("expired", rows=to_tuples(ended)))
    return len(rows)


def make_expired_row(ticket: Ticket, now: int) -> tuple[Any, ...]:
    how = (Verb.EXPIRE.value, State.EXPIRED.value, now, 1)
    return (ticket.id, ticket.queue_id, ticket.attempts, ticket.deliveries, *how)
