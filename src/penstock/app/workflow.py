"""Builds workflows of tasks: `app.workflow`, `chain` and `group`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.app.job import Job
from penstock.errors import InvalidInput, InvalidState
from penstock.model.workflow import (
    NodeDraft,
)

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.app.enqueue import Enqueuer
    from penstock.app.task import Call
    from penstock.model.workflow import (
        AfterPolicy,
        OnDead,
        WorkflowStart,
        WorkflowState,
        WorkflowView,
    )

R = TypeVar("R")
POLL_INTERVAL_S = 0.2


class FlowNode(Generic[R]):
    """A task of a workflow. It has a job once the workflow has started."""

    def __init__(self, flow: Flow, place: int, call: Call[R]) -> None:
        self.flow = flow
        self.place = place
        self.call = call

    @property
    def job(self) -> Job[R]:
        if not self.flow.ids:
            raise InvalidState("the workflow has not started")
        return Job(self.flow.app, self.flow.ids[self.place], self.call.task.results)


class Flow:
    """Collects tasks and starts them together. As a context manager it starts at the end.

    The start is one durable step: all tasks are enqueued or none. With a connection, it is part of
    the caller's transaction.
    """

    def __init__(
        self, app: Enqueuer, name: str, key: str | None = None, connection: object = None
    ) -> None:
        self.app = app
        self.name = name
        self.key = key
        # The caller's connection, whose transaction the workflow starts in.
        self.connection = connection
        self.nodes: list[NodeDraft] = []
        self.id = ""
        self.ids: tuple[int, ...] = ()
        # True if an earlier workflow has the same key and the same tasks.
        self.duplicate = False

    def add(
        self,
        call: Call[R],
        *,
        after: FlowNode[Any] | Iterable[FlowNode[Any]] = (),
        policy: AfterPolicy = "all",
        need: int = 1,
        on_dead: OnDead = "wait",
        label: str = "",
    ) -> FlowNode[R]:
        """Adds a task that waits for others.

        `policy` is "all" (they completed), "any" (`need` of them completed) or "settled" (they
        ended in any way). A dead letter stays open until it is redriven, unless `on_dead` is
        "settle".
        """
        if self.id:
            raise InvalidState(f"workflow {self.name!r} has started already")
        if call.connection is not None:
            raise InvalidInput("give the connection to the workflow, not to its tasks")
        parents = [after] if isinstance(after, FlowNode) else list(after)
        for parent in parents:
            if parent.flow is not self:
                raise InvalidInput("a task can only wait for tasks of its own workflow")
        self.nodes.append(
            NodeDraft(
                draft=call.draft,
                after=tuple(parent.place for parent in parents),
                policy=policy,
                need=need,
                on_dead=on_dead,
                label=label,
            )
        )
        return FlowNode(self, len(self.nodes) - 1, call)

    async def astart(self) -> Self:
        """Enqueues all tasks in one durable step."""
        self._refuse_repeated()
        if self._joins_transaction():
            broker, prepared = await self.app.prepare_workflow(self)
            started = await broker.workflows.astart_on(self.connection, prepared)
            self.app.note_transaction(broker, self.connection)
            return self._note_start(started)
        self.app.refuse_open_transaction()
        return await self._start_alone()

    def start(self) -> Self:
        """Does the same as `astart`, for sync code."""
        self._refuse_repeated()
        if self._joins_transaction():
            broker, prepared = self.app.run(self.app.prepare_workflow(self))
            started = broker.workflows.start_on(self.connection, prepared)
            self.app.note_transaction(broker, self.connection)
            return self._note_start(started)
        self.app.refuse_open_transaction()
        return self.app.run(self._start_alone())

    def _refuse_repeated(self) -> None:
        if self.id:
            raise InvalidState(f"workflow {self.name!r} has started already")

    def _joins_transaction(self) -> bool:
        """False in a simulation, which has a store of its own."""
        return self.connection is not None and self.app.connections.simulated is None

    async def _start_alone(self) -> Self:
        broker = await self.app.broker()
        await self.app.ensure_queues(broker, {node.draft.queue for node in self.nodes})
        started = await broker.workflows.start(
            self.name, self.nodes, key=self.key, scope=self.app.scope
        )
        return self._note_start(started)

    def _note_start(self, started: WorkflowStart) -> Self:
        self.id, self.ids, self.duplicate = started.id, started.ids, started.duplicate
        return self

    async def aview(self) -> WorkflowView:
        return await (await self.app.broker()).workflows.get(self.id, scope=self.app.scope)

    def view(self) -> WorkflowView:
        """Returns the workflow with the states of its tasks."""
        return self.app.run(self.aview())

    async def await_end(self, timeout: float | None = None) -> WorkflowState:
        """Waits until the workflow has ended or is blocked by dead letters."""
        import asyncio

        try:
            async with asyncio.timeout(timeout):
                while True:
                    state = (await self.aview()).workflow.state
                    if not state.active:
                        return state
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            raise TimeoutError(
                f"workflow {self.name!r} did not finish within {timeout} s"
            ) from None

    def wait(self, timeout: float | None = None) -> WorkflowState:
        """Does the same as `await_end`, for sync code."""
        return self.app.run(self.await_end(timeout))

    async def acancel(self) -> int:
        return await (await self.app.broker()).workflows.cancel(self.id, scope=self.app.scope)

    def cancel(self) -> int:
        """Cancels what has not finished. Returns how many tasks that were."""
        return self.app.run(self.acancel())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.astart()


class CallChain:
    """Tasks that run one after the other."""

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        if not calls:
            raise InvalidInput("a chain needs at least one task")
        self.calls = calls

    def build(self, name: str = "chain", key: str | None = None, connection: object = None) -> Flow:
        flow = Flow(find_app(self.calls), name, key, connection)
        last: FlowNode[Any] | None = None
        for call in self.calls:
            last = flow.add(call, after=() if last is None else last)
        return flow

    def enqueue(self, *, key: str | None = None, connection: object = None) -> Flow:
        return self.build(key=key, connection=connection).start()

    async def aenqueue(self, *, key: str | None = None, connection: object = None) -> Flow:
        return await self.build(key=key, connection=connection).astart()


class CallGroup:
    """Tasks that run side by side. `then` adds one that runs when all have completed."""

    def __init__(
        self, calls: Sequence[Call[Any]], last: Call[Any] | None = None, policy: AfterPolicy = "all"
    ) -> None:
        self.calls = calls
        self.last = last
        self.policy = policy

    def then(self, call: Call[Any], *, policy: AfterPolicy = "all") -> CallGroup:
        """An empty group is done at once."""
        return CallGroup(self.calls, call, policy)

    def build(self, name: str = "group", key: str | None = None, connection: object = None) -> Flow:
        calls = [*self.calls, *([] if self.last is None else [self.last])]
        if not calls:
            raise InvalidInput("an empty group needs a task that follows it")
        flow = Flow(find_app(calls), name, key, connection)
        nodes = [flow.add(call) for call in self.calls]
        if self.last is not None:
            flow.add(self.last, after=nodes, policy=self.policy)
        return flow

    def enqueue(self, *, key: str | None = None, connection: object = None) -> Flow:
        return self.build(key=key, connection=connection).start()

    async def aenqueue(self, *, key: str | None = None, connection: object = None) -> Flow:
        return await self.build(key=key, connection=connection).astart()


def chain(*calls: Call[Any]) -> CallChain:
    """Makes a workflow of tasks that run one after the other: `chain(a.call(), b.call())`."""
    return CallChain(calls)


def group(*calls: Call[Any]) -> CallGroup:
    """Makes a workflow of tasks that run side by side: `group(a.call(1), a.call(2))`."""
    return CallGroup(calls)


def find_app(calls: Sequence[Call[Any]]) -> Enqueuer:
    apps = {id(call.task.app): call.task.app for call in calls}
    if len(apps) > 1:
        raise InvalidInput("tasks of a workflow must belong to one app")
    app: Any = next(iter(apps.values()))
    found: Enqueuer = app
    return found
