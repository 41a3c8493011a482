"""The verbs that run inside the transaction of a caller's connection to a server."""

from collections.abc import Sequence
from typing import Any

from penstock.model.changes import Change, Changed
from penstock.model.store_types import Completion, Entry, Published
from penstock.model.waiting import StepSave, StepSaved
from penstock.stores.sql import caller_transaction
from penstock.stores.sql.caller_transaction import Notify
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.dialect import ServerDialect
from penstock.stores.sql.transaction import finish


class CallerVerbs:
    def __init__(self, database: ServerDatabase[Any, Any], dialect: ServerDialect) -> None:
        self.database = database
        self.dialect = dialect

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        inside = self.dialect.inside(connection)
        return finish(caller_transaction.publish_on(inside, entries, self.choose_notify(wake)))

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        inside = await self.dialect.ainside(connection)
        return await caller_transaction.publish_on(inside, entries, self.choose_notify(wake))

    def complete_on(self, connection: object, item: Completion) -> None:
        finish(caller_transaction.complete_on(self.dialect.inside(connection), item))

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await caller_transaction.complete_on(await self.dialect.ainside(connection), item)

    def save_step_on(self, connection: object, item: StepSave) -> StepSaved:
        return finish(caller_transaction.save_step_on(self.dialect.inside(connection), item))

    async def asave_step_on(self, connection: object, item: StepSave) -> StepSaved:
        inside = await self.dialect.ainside(connection)
        return await caller_transaction.save_step_on(inside, item)

    def advance_on(self, connection: object, change: Change) -> Changed | None:
        inside = self.dialect.inside(connection)
        return finish(caller_transaction.advance_on(inside, change, self.notify_later))

    async def aadvance_on(self, connection: object, change: Change) -> Changed | None:
        inside = await self.dialect.ainside(connection)
        return await caller_transaction.advance_on(inside, change, self.notify_later)

    def choose_notify(self, wake: bool) -> Notify | None:
        return self.notify_later if wake else None

    def notify_later(self, queue_ids: set[int]) -> None:
        """Notifies waiters; safe from any thread."""
        self.database.loop.call_soon_threadsafe(self.database.notifier.notify, queue_ids)
