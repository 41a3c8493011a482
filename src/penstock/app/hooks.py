"""Hooks of an app (`app.on`): functions that a worker calls after each run."""

from inspect import iscoroutinefunction
from typing import TYPE_CHECKING

from penstock.app.setup import log_event
from penstock.errors import InvalidInput
from penstock.worker.ack_policy import format_error
from penstock.worker.context import Context
from penstock.worker.tracebacks import format_traceback

if TYPE_CHECKING:
    from penstock.worker.worker import Hook

EVENTS = ("completed", "scheduled", "ready", "dead", "cancelled", "lease_lost", "*")


class Hooks:
    def __init__(self) -> None:
        self.registered: list[tuple[str, Hook]] = []

    def add(self, event: str, hook: "Hook") -> None:
        if event not in EVENTS:
            raise InvalidInput(f"no event {event!r}; expected one of {', '.join(EVENTS)}")
        if iscoroutinefunction(hook):
            raise InvalidInput("a hook must be a plain function, not a coroutine function")
        self.registered.append((event, hook))

    def find_caller(self) -> "Hook | None":
        """Returns what a worker calls. Without hooks it is None, so that runs cost nothing."""
        return self.call if self.registered else None

    def call(self, event: str, context: Context, error: BaseException | None) -> None:
        for wanted, hook in self.registered:
            if wanted not in ("*", event):
                continue
            try:
                hook(event, context, error)
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - a hook must not affect the run
                log_event(
                    "error",
                    "hook_failed",
                    hook=event, id=context.id, error=format_error(raised),
                    exception=format_traceback(raised),
                )  # fmt: skip
