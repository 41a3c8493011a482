"""The context of a task that is called directly, without a message."""

from typing import TYPE_CHECKING

from penstock.errors import InvalidState
from penstock.model.message import PLAIN, Leased
from penstock.model.store_types import Completion
from penstock.worker.context import Context

if TYPE_CHECKING:
    from penstock.artifacts.upload import Content, Upload
    from penstock.worker.steps import StepRun


def make_local_context(type: str, queue: str) -> Context:
    """Makes the context of a task that is called directly, without a message."""
    delivery = Leased(
        id=0,
        queue_id=0,
        type=type,
        priority=0,
        created_at=0,
        body=b"",
        meta=PLAIN,
        fence=0,
        attempts=0,
        deliveries=1,
        lease_until=0,
        flags=0,
    )
    return Context(delivery, queue, NullReporter())


class NullReporter:
    """Ignores reports: a task that is called directly has no message."""

    def note(self, context: Context) -> None: ...

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    async def find_seen(self, queue: str, key: str) -> bool:
        return False

    def spool(self, context: Context, name: str, content: "Content") -> "Upload | None":
        from penstock.artifacts.upload import check_content

        check_content(name, content)
        return None

    def open_steps(self, delivery: Leased) -> "StepRun":
        raise InvalidState(
            "durable steps need a worker: they cannot be used in a task that is called directly,"
            " or by the process executor"
        )
