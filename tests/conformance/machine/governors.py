"""Publishing through rules and to subscriptions, for the store and for the model."""

from typing import Any

from msgspec.structs import replace

from penstock.errors import PenstockError
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.model.store_types import Published, Query
from tests.conformance.machine.world import World

LIMITED: dict[str, Any] = {
    "max_attempts": 2,
    "max_depth": 3,
    "lease": 10.0,
    "backoff": {"kind": "none", "jitter": "none"},
}
GOVERNED: dict[str, dict[str, Any]] = {
    "gate": LIMITED | {"max_depth": None},
    "routed": LIMITED,
    "copied": LIMITED,
    "events": {"kind": "broadcast"},
}
RULES: tuple[dict[str, Any], ...] = (
    {"name": "route", "queue": "gate", "type": "report", "do": [{"route": "routed"}]},
    {"name": "copy", "queue": "gate", "type": "mail", "do": [{"copy": "copied"}]},
)
FILTERS = {"all": "", "mail": "type:mail"}
# The queues that hand out what went through rules or to subscriptions.
RECEIVERS = ("gate", "routed", "copied", "events/all", "events/mail")


class Governors(World):
    def open_gate(self) -> None:
        """Creates the governed queues, if this example has none."""
        if "gate" in self.model.queues:
            return
        for name, settings in GOVERNED.items():
            self.know(self.run(self.broker.admin.create_queue(name, **settings)))
        for name, filter in FILTERS.items():
            work = self.broker.broadcasts.subscribe("events", name, filter=filter, **LIMITED)
            self.run(work)
            self.know(self.run(self.broker.admin.queue(f"events/{name}")))
        for rule in RULES:
            self.run(self.broker.rules.save(rule))

    def know(self, queue: Queue) -> None:
        self.model.create_queue(queue.id, queue.name, queue.settings)

    def publish_governed(self, drafts: list[Draft]) -> None:
        if len(drafts) > 1:
            answers = self.run(self.broker.publish_many(drafts))
        else:
            answer = self.attempt(self.broker.publish(drafts[0]))
            if isinstance(answer, PenstockError):
                answer = Published(0, code=answer.code)
            answers = [answer]
        for draft, answer in zip(drafts, answers, strict=True):
            self.follow_governed(draft, answer)

    def follow_governed(self, draft: Draft, answer: Published) -> None:
        """A refused draft and a duplicate leave no copy; the comparison of places sees it."""
        first = replace(draft, queue="routed") if is_routed(draft) else draft
        verdict = self.model.judge(first)
        assert answer.code == verdict.code
        if verdict.code is not None or verdict.duplicate_of is not None:
            expected = (verdict.duplicate_of or 0, verdict.code is None)
            assert (answer.id, answer.duplicate) == expected
            return
        if draft.queue == "events":
            self.model.enter_ended(draft, answer.id, "broadcast")
        else:
            self.model.enter(first, answer.id)
        for name in list_copies(draft):
            copy = replace(draft, queue=name, dedup=None, parent_id=answer.id)
            self.model.enter(copy, self.find_copy(name, answer.id))

    def find_copy(self, queue: str, parent: int) -> int:
        """The message of the queue that names its parent: exactly one."""
        found = self.run(self.store.find(Query((self.model.queues[queue].id,), limit=1_000)))
        known = self.model.items
        (id,) = [
            record.message.id
            for record in found
            if record.message.meta.parent_id == parent and record.message.id not in known
        ]
        return id


def is_routed(draft: Draft) -> bool:
    return (draft.queue, draft.type) == ("gate", "report")


def list_copies(draft: Draft) -> tuple[str, ...]:
    if draft.queue == "events":
        return ("events/all", "events/mail") if draft.type == "mail" else ("events/all",)
    return ("copied",) if draft.type == "mail" else ()
