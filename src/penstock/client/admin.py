"""Admin operations over HTTP."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from msgspec import UNSET

from penstock.broker.search import SearchResult
from penstock.client.mapping import FenceLedger, make_queue, make_record, make_schedule
from penstock.client.transport import RemoteGroup, Transport, make_error
from penstock.errors import InvalidInput, PenstockError
from penstock.model.explain import Cause
from penstock.model.message import Moment, Record, State
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.store_types import DONE, Answer, AnswerKind, Pruned, Published
from penstock.model.waiting import CancelledTree
from penstock.wire.bulk import ReplacedMessage, ReprioritisedMessage
from penstock.wire.fields import encode_body, to_optional_datetime, to_optional_moment
from penstock.wire.publish import PublishResult, make_publish_request
from penstock.wire.queues import (
    PruneRequest,
    PruneResult,
    Purged,
    Queues,
    QueueView,
    Schedules,
    ScheduleView,
    ScopeState,
)
from penstock.wire.records import (
    CancelResponse,
    Explanation,
    MessagePage,
    MessageView,
    RedriveOutcomes,
    RedriveResponse,
)

MAX_CURSORS = 1_000
STATES = {
    QueueState.ACTIVE: "resume",
    QueueState.PAUSED: "pause",
    QueueState.DRAINING: "drain",
    QueueState.ARCHIVED: "archive",
}


class RemoteAdmin(RemoteGroup):
    def __init__(self, transport: Transport, ledger: FenceLedger) -> None:
        super().__init__(transport)
        self.ledger = ledger
        # Signed page cursors of the server, by filter and last id.
        self.cursors: dict[tuple[str | int | None, ...], str] = {}

    async def create_scope(self, name: str) -> Scope:
        made = await self.send("POST", "/v1/scopes", {"name": name}, gives=ScopeState)
        return Scope(0, "default", made.name, made.paused)

    async def pause_scope(self, name: str, *, paused: bool = True) -> None:
        verb = "pause" if paused else "resume"
        await self.transport.exchange("POST", f"/v1/scopes/{quote(name, safe='')}/{verb}")

    async def create_queue(
        self, /, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue:
        sent = {"name": name, "preset": preset_name, "settings": settings}
        return await self._queue("POST", "/v1/queues", sent, scope)

    async def ensure_queue(
        self, /, name: str, *, preset_name: str = "default", scope: str = "default", **settings: Any
    ) -> Queue:
        sent = {"preset": preset_name, "settings": settings}
        return await self._queue("PUT", queue_path(name), sent, scope)

    async def queue(self, name: str, *, scope: str = "default") -> Queue:
        return await self._queue("GET", queue_path(name), None, scope)

    async def queues(self, *, scope: str = "default") -> list[Queue]:
        pages = self.transport.read_pages("/v1/queues", Queues, {"scope": scope})
        return [self._number_queue(each) async for page in pages for each in page.queues]

    async def set_queue(self, /, name: str, *, scope: str = "default", **settings: Any) -> Queue:
        return await self._queue("PATCH", queue_path(name), {"settings": settings}, scope)

    async def set_state(self, name: str, state: QueueState, *, scope: str = "default") -> Queue:
        return await self._queue("POST", f"{queue_path(name)}/{STATES[state]}", None, scope)

    async def rename_queue(self, name: str, new_name: str, *, scope: str = "default") -> Queue:
        return await self._queue("POST", f"{queue_path(name)}/rename", {"name": new_name}, scope)

    async def delete_queue(self, name: str, *, force: bool = False, scope: str = "default") -> None:
        query = {"force": force, "scope": scope}
        await self.transport.exchange("DELETE", queue_path(name), query=query)

    async def _queue(self, method: str, path: str, sent: Any, scope: str) -> Queue:
        made = await self.send(method, path, sent, gives=QueueView, scope=scope)
        return self._number_queue(made)

    def _number_queue(self, view: QueueView) -> Queue:
        number = self.ledger.assign_number(view.scope, view.name)
        return make_queue(view, number)

    async def get(self, reference: int | str, *, scope: str = "default") -> Record:
        """Gets a message by id or `queue/name`."""
        found = await self.send("GET", message_path(reference), gives=MessageView, scope=scope)
        return self._record(found, scope)

    def _record(self, stored: MessageView, scope: str) -> Record:
        return make_record(stored, self.ledger.assign_number(scope, stored.queue))

    async def result(
        self, reference: int | str, *, wait: float = 0.0, scope: str = "default"
    ) -> bytes | None:
        """Returns None while there is no result. Raises JobFailed if the message failed."""
        query = {"scope": scope, "wait": wait}
        path = f"{message_path(reference)}/result"
        status, body = await self.transport.exchange("GET", path, query=query, wait=wait)
        return body if status == 200 else None

    async def explain(self, reference: int | str, *, scope: str = "default") -> list[Cause]:
        """Explains why a message does not run or has not finished, the main cause first."""
        path = f"{message_path(reference)}/explain"
        found = await self.send("GET", path, gives=Explanation, scope=scope)
        return [Cause(each.code, each.text, each.remedy, each.evidence) for each in found.causes]

    async def callbacks(self, reference: int | str, *, scope: str = "default") -> list[Record]:
        """Lists the callbacks of a message, newest first."""
        path = f"{message_path(reference)}/callbacks"
        page = await self.send("GET", path, gives=MessagePage, scope=scope)
        return [self._record(each, "default") for each in page.messages]

    async def find(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        type: str | None = None,
        correlation_id: str | None = None,
        before: int | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> list[Record]:
        """`before` is the last id of a page that this client read with the same filter."""
        filter = {
            "queue": queue,
            "state": state,
            "type": type,
            "correlation_id": correlation_id,
            "scope": scope,
        }
        query = {**filter, "limit": limit, "cursor": self._cursor(filter, before)}
        page = await self.send("GET", "/v1/messages", gives=MessagePage, query=query)
        records = [self._record(each, scope) for each in page.messages]
        if page.cursor is not None:
            self._keep(filter, records[-1].message.id, page.cursor)
        return records

    async def search(
        self, filter: str, *, cursor: str | None = None, limit: int = 50, scope: str = "default"
    ) -> SearchResult:
        """Finds messages that match a filter such as `state:dead error:timeout`."""
        query = {"filter": filter, "cursor": cursor, "limit": limit, "scope": scope}
        page = await self.send("GET", "/v1/messages", gives=MessagePage, query=query)
        records = [self._record(each, scope) for each in page.messages]
        return SearchResult(records, to_optional_moment(page.scanned_to), page.cursor)

    def _cursor(self, filter: dict[str, str | None], before: int | None) -> str | None:
        if before is None:
            return None
        cursor = self.cursors.get((*filter.values(), before))
        if cursor is None:
            raise InvalidInput(
                f"before={before} is not the last id of a page read with this client and filter"
            )
        return cursor

    def _keep(self, filter: dict[str, str | None], last: int, cursor: str) -> None:
        self.cursors[*filter.values(), last] = cursor
        while len(self.cursors) > MAX_CURSORS:
            del self.cursors[next(iter(self.cursors))]

    async def cancel(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> Answer:
        done = await self.send(
            "POST",
            f"{message_path(reference)}/cancel",
            {"force": force},
            gives=CancelResponse,
            scope=scope,
        )
        return Answer(AnswerKind.DONE, done.state, None, done.cancel_requested)

    async def cancel_tree(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> CancelledTree:
        done = await self.transport.send(
            "POST",
            f"{message_path(reference)}/cancel",
            {"force": force, "tree": True},
            gives=CancelResponse,
            query={"scope": scope},
        )
        return CancelledTree(done.state, done.cancel_requested, done.children or 0)

    async def redrive(
        self, reference: int | str, *, body: bytes | None = None, scope: str = "default"
    ) -> Published:
        json, base64 = encode_body(body or b"")
        sent = {} if body is None else {"body": json} if base64 is None else {"body_base64": base64}
        redriven = await self.send(
            "POST",
            f"{message_path(reference)}/redrive",
            sent,
            gives=RedriveResponse,
            scope=scope,
            again=False,
        )
        return Published(int(redriven.id))

    async def edit(self, reference: int | str, body: bytes, *, scope: str = "default") -> Published:
        json, base64 = encode_body(body)
        sent = {"body": json} if base64 is None else {"body_base64": base64}
        return await self._replace(reference, "edit", sent if body else {}, scope)

    async def move(
        self,
        reference: int | str,
        queue: str,
        *,
        to_scope: str | None = None,
        scope: str = "default",
    ) -> Published:
        sent = {"queue": queue} | ({} if to_scope is None else {"to_scope": to_scope})
        return await self._replace(reference, "move", sent, scope)

    async def _replace(
        self, reference: int | str, verb: str, sent: dict[str, Any], scope: str
    ) -> Published:
        path = f"{message_path(reference)}/{verb}"
        replaced = await self.send(
            "POST", path, sent, gives=ReplacedMessage, scope=scope, again=False
        )
        return Published(int(replaced.id))

    async def reprioritise(
        self, reference: int | str, priority: int, *, scope: str = "default"
    ) -> None:
        path, sent = f"{message_path(reference)}/reprioritise", {"priority": priority}
        await self.send("POST", path, sent, gives=ReprioritisedMessage, scope=scope)

    async def redrive_many(self, ids: Sequence[int]) -> list[Answer | PenstockError]:
        sent = {"ids": [str(id) for id in ids]}
        done = await self.send("POST", "/v1/redrive", sent, gives=RedriveOutcomes, again=False)
        return [
            DONE if item.error is None else make_error(item.error.code, item.error.message)
            for item in done.items
        ]

    async def purge(
        self, name: str, *places: str, limit: int = 1_000, scope: str = "default"
    ) -> int:
        sent = {"places": places, "limit": limit}
        path = f"{queue_path(name)}/purge"
        return (await self.send("POST", path, sent, gives=Purged, scope=scope)).purged

    async def prune(
        self, name: str, *, before: Moment | None = None, limit: int = 1_000, scope: str = "default"
    ) -> Pruned:
        sent = PruneRequest(to_optional_datetime(before), limit)
        path = f"{queue_path(name)}/prune"
        done = await self.send("POST", path, sent, gives=PruneResult, scope=scope)
        return Pruned(done.pruned, 0, done.more)

    async def purge_dead(self, reference: int | str, *, scope: str = "default") -> Answer:
        path = f"{message_path(reference)}/purge"
        done = await self.send("POST", path, gives=CancelResponse, scope=scope)
        return Answer(AnswerKind.DONE, done.state)

    async def schedule(self, schedule: Schedule, *, scope: str = "default") -> Schedule:
        sent = {
            "cron": schedule.cron,
            "timezone": schedule.timezone,
            "missed": schedule.missed,
            "paused": schedule.paused,
            "declared_in": schedule.declared_in,
            "message": make_publish_request(schedule.draft),
        }
        path = schedule_path(schedule.draft.queue, schedule.name)
        saved = await self.send("PUT", path, sent, gives=ScheduleView, scope=scope)
        return make_schedule(saved, self.ledger.assign_number(scope, saved.queue))

    async def schedules(self, *, scope: str = "default") -> list[Schedule]:
        pages = self.transport.read_pages("/v1/schedules", Schedules, {"scope": scope})
        number = self.ledger.assign_number
        return [
            make_schedule(each, number(scope, each.queue))
            async for page in pages
            for each in page.schedules
        ]

    async def pause_schedule(self, queue: str, name: str, *, scope: str = "default") -> Schedule:
        return await self._switch_schedule(queue, name, "pause", scope)

    async def resume_schedule(self, queue: str, name: str, *, scope: str = "default") -> Schedule:
        return await self._switch_schedule(queue, name, "resume", scope)

    async def _switch_schedule(self, queue: str, name: str, verb: str, scope: str) -> Schedule:
        path = f"{schedule_path(queue, name)}/{verb}"
        saved = await self.send("POST", path, gives=ScheduleView, scope=scope)
        return make_schedule(saved, self.ledger.assign_number(scope, saved.queue))

    async def run_schedule(self, queue: str, name: str, *, scope: str = "default") -> Published:
        """Publishes the message of a schedule now."""
        path = f"{schedule_path(queue, name)}/run"
        done = await self.send("POST", path, gives=PublishResult, scope=scope, again=False)
        routed = () if done.routed is UNSET else tuple(done.routed)
        return Published(int(done.id), done.duplicate, routed=routed)

    async def unschedule(self, queue: str, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", schedule_path(queue, name), scope=scope)


def queue_path(name: str) -> str:
    return f"/v1/queues/{quote(name, safe='')}"


def message_path(reference: int | str) -> str:
    return f"/v1/messages/{quote(str(reference))}"


def schedule_path(queue: str, name: str) -> str:
    return f"{queue_path(queue)}/schedules/{quote(name, safe='')}"
