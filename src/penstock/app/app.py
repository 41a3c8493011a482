"""The Penstock app: tasks, subscribers, schedules, hooks and workers."""

import os
from collections.abc import Callable, Coroutine, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from penstock.app.enqueue import Enqueuer
from penstock.app.hooks import Hooks
from penstock.app.schemas import export_schema
from penstock.app.setup import (
    apply_settings,
    derive_task_name,
    find_changed_settings,
    find_removed,
    list_schedules,
    log_event,
    make_schedule,
    make_type,
    remove_schedules,
    report_changed_settings,
    save_schedules,
)
from penstock.app.subscribers import (
    Router,
    SubscriberChoices,
    make_ack_rules,
    make_subscribers,
    read_options,
    read_queues,
    wrap_publisher,
)
from penstock.app.task import (
    AsyncTask,
    BaseTask,
    Choices,
    Task,
    TaskChoices,
    TaskOptions,
    apply_choices,
)
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import InvalidInput
from penstock.model.anomalies import Severity
from penstock.model.detectors import Detector, DetectorFunction
from penstock.model.queue import Missed, Schedule
from penstock.stores.urls import redact_url
from penstock.worker.ack_policy import AckPolicy
from penstock.worker.context import Context
from penstock.worker.handler import ExecutorKind, Handler, SubscriberHandler
from penstock.worker.retry_strategies import Strategy, TimedStrategy

if TYPE_CHECKING:
    from penstock.artifacts.service import ArtifactService
    from penstock.broker.queue_cache import QueueCache
    from penstock.runner import Agent, Runner
    from penstock.store import Store
    from penstock.worker.options import WorkerOptions
    from penstock.worker.worker import Hook, Worker

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_URL = "sqlite:///penstock.db"


class TaskDecorator(Protocol):
    """The decorator of `@app.task(...)`. The worker passes a Context as first parameter."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...


class Penstock(Enqueuer):
    """An application: its tasks and subscribers, its store, and its workers."""

    def __init__(
        self,
        url: str | None = None,
        *,
        scope: str = "default",
        tenant: str = "default",
        artifacts: str | os.PathLike[str] | None = None,
        key: str | None = None,
    ) -> None:
        """`key` is the API key of a Penstock server; the default is PENSTOCK_KEY."""
        place = os.fspath(artifacts) if artifacts else os.environ.get("PENSTOCK_ARTIFACTS")
        url = url or os.environ.get("PENSTOCK_URL") or DEFAULT_URL
        super().__init__(url, scope, tenant, place or None, key)
        self.tasks: dict[str, BaseTask[Any, Any]] = {}
        self.subscriptions: list[Handler] = []
        self.schedules: list[Schedule] = []
        self.hooks = Hooks()
        self.detectors: list[Detector] = []

    def __repr__(self) -> str:
        return f"<Penstock {redact_url(self.url)} with {len(self.tasks)} tasks>"

    @overload
    def task(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        executor: ExecutorKind | None = None,
        policy: AckPolicy | str = AckPolicy.NACK_ON_ERROR,
        retry: Strategy | TimedStrategy | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        no_retry_on: Sequence[type[BaseException]] = (),
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed | str = Missed.ONE,
        **options: Unpack[TaskChoices],
    ) -> TaskDecorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        executor: ExecutorKind | None = None,
        policy: AckPolicy | str = AckPolicy.NACK_ON_ERROR,
        retry: Strategy | TimedStrategy | None = None,
        retry_on: Sequence[type[BaseException]] = (),
        no_retry_on: Sequence[type[BaseException]] = (),
        cron: str | None = None,
        timezone: str = "UTC",
        missed: Missed | str = Missed.ONE,
        **options: Any,
    ) -> Any:
        """Makes a function a task. `options` are those of `TaskOptions`: queue, max_attempts...

        From version 2 on, the version is part of the type of its messages: `refund@2`.
        """
        rules = make_ack_rules(policy, retry, retry_on, no_retry_on)
        base = apply_choices(TaskOptions(), options)

        def decorate(function: Callable[..., Any]) -> Any:
            kind: type[BaseTask[Any, Any]] = AsyncTask if iscoroutinefunction(function) else Task
            type_ = make_type(name or derive_task_name(function), version)
            task = kind(self, function, type_, base, executor=executor, rules=rules)
            self.add(task)
            if cron is not None:
                self.schedules.append(make_schedule(task, cron, timezone, missed))
            return task

        return decorate if function is None else decorate(function)

    def detector(
        self, name: str, *, severity: Severity = "warning"
    ) -> Callable[[DetectorFunction], DetectorFunction]:
        """Makes a function look for anomalies of this kind. Workers call it with new history."""
        if callable(name):
            # Used without parentheses, it would look for nothing.
            raise InvalidInput("name the anomaly: @app.detector('slow_checkout')")
        if any(each.name == name for each in self.detectors):
            raise InvalidInput(f"two detectors are named {name!r}")

        def decorate(function: DetectorFunction) -> DetectorFunction:
            self.detectors.append(Detector(name, severity, function))
            return function

        return decorate

    def add(self, task: BaseTask[Any, Any]) -> None:
        if task.name in self.tasks:
            raise InvalidInput(f"two tasks are named {task.name!r}; pass name= to one of them")
        self.tasks[task.name] = task

    def subscriber(
        self, *queues: str | Sequence[str], **choices: Unpack[SubscriberChoices]
    ) -> Callable[[F], F]:
        """Makes a function the handler of messages in these queues.

        `choices` are the fields of `SubscriberOptions`, or FastStream's words for two of them.
        """
        options, names = read_options(dict(choices)), read_queues(queues)

        def decorate(function: F) -> F:
            self.add_subscribers(make_subscribers(function, names, options))
            return function

        return decorate

    def add_subscribers(self, made: Sequence[SubscriberHandler]) -> None:
        for handler in made:
            handler.app = self
            self.filters[handler.queue] = handler.filter
        self.subscriptions += made

    def include_router(self, router: Router, prefix: str = "") -> None:
        """Adds the subscribers of a router, with `prefix` before the names of its queues."""
        for function, queues, options in router.subscribers:
            names = read_queues([f"{prefix}{name}" for name in queues])
            self.add_subscribers(make_subscribers(function, names, options))

    def publisher(self, queue: str, /, **choices: Unpack[Choices]) -> Callable[[F], F]:
        """Makes a function publish what it returns, unless that is None. Put it below `subscriber`.

        A crash before the handler's own message is acked publishes it again.
        """
        choices["queue"] = queue
        apply_choices(TaskOptions(), choices)

        def decorate(function: F) -> F:
            return wrap_publisher(self, function, choices)

        return decorate

    def on(self, event: str, hook: "Hook") -> None:
        """Calls `hook(event, context, error)` in the worker after each run.

        Events are completed, scheduled and ready (retries), dead, cancelled and lease_lost, or `*`
        for all. An error in a hook is only logged.
        """
        self.hooks.add(event, hook)

    def handlers(self, queues: Sequence[str] = ()) -> list[Handler]:
        found = [task.handler() for task in self.tasks.values()] + self.subscriptions
        return [each for each in found if not queues or each.queue in queues]

    async def worker(
        self, queues: Sequence[str] = (), options: "WorkerOptions | None" = None
    ) -> "Worker":
        """Makes a worker for these queues, or for all queues with handlers. Start it yourself."""
        # Programs that only enqueue do not load it.
        from penstock.worker.worker import Worker

        broker = await self.broker()
        handlers = self.handlers(queues)
        if not handlers:
            raise InvalidInput(f"the app has no handler for {', '.join(queues) or 'any queue'}")
        await self.ensure_queues(broker, {handler.queue for handler in handlers})
        await self.prepare(broker)
        return Worker(
            broker,
            handlers,
            options,
            scope=self.scope,
            hook=self.hooks.find_caller(),
            connect=None if self.connections.in_memory else self.connections.open,
            address=self.connections.address(),
        )

    async def prepare(self, broker: BrokerInterface) -> None:
        """Saves the cron schedules that tasks declare, and removes those they no longer do.

        Warns of settings of queues that differ from the code.
        """
        for step in await self.reconcile_schedules(broker):
            log_event("info", "schedule_changed", step=step)
        await report_changed_settings(broker, self.declared, self.scope)

    async def reconcile_schedules(self, broker: BrokerInterface) -> list[str]:
        await self.ensure_queues(broker, {each.draft.queue for each in self.schedules})
        found = await list_schedules(broker, self.schedules, self.scope)
        return [
            *await save_schedules(broker, self.schedules, found, self.scope),
            *await remove_schedules(broker, find_removed(self.schedules, found), self.scope),
        ]

    async def asetup(self) -> list[str]:
        """Brings the store in line with the code: queues, their settings, and schedules.

        Run it when you deploy. Returns what it did.
        """
        broker = await self.broker()
        known = {queue.name for queue in await broker.admin.queues(scope=self.scope)}
        wanted = {*self.declared, *(handler.queue for handler in self.handlers())}
        await self.ensure_queues(broker, sorted(wanted))
        changed = await find_changed_settings(broker, self.declared, self.scope)
        return [
            *(f"queue {name} created" for name in sorted(wanted - known)),
            *await apply_settings(broker, changed, self.scope),
            *await self.reconcile_schedules(broker),
        ]

    def setup(self) -> list[str]:
        return self.run(self.asetup())

    def schemas(self) -> dict[str, dict[str, Any]]:
        """Returns the JSON Schema of each task's body, by type."""
        return {name: export_schema(task) for name, task in self.tasks.items()}

    def agents(self, broker: BrokerInterface) -> "Runner":
        """Makes the agents that run beside a worker. A Penstock server runs its own."""
        from penstock.runner import Runner

        return Runner(broker.make_agents(self.make_agents), outages=broker.outages)

    def make_agents(
        self, store: "Store", directory: "QueueCache", artifact_service: "ArtifactService | None"
    ) -> "list[Agent]":
        from penstock.agents import make_agents
        from penstock.runner import make_identity

        made = make_agents(
            store, make_identity(), directory=directory, artifact_service=artifact_service
        )
        return made + self.make_detector_agents(store, directory)

    def make_detector_agents(self, store: "Store", directory: "QueueCache") -> "list[Agent]":
        from penstock.agents.custom_detectors import CustomDetectors

        made = CustomDetectors(store, directory, self.detectors, self.tenant)
        return [made] if self.detectors else []
