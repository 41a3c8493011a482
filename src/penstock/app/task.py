"""Tasks: functions that can be enqueued, and their options."""

import copy
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
)

import msgspec

from penstock.app.job import Job, JobOwner
from penstock.errors import InvalidInput
from penstock.model.fields import JobFields, copy_job_fields
from penstock.model.message import Dedup, Draft, Moment
from penstock.worker.ack_policy import AckRules
from penstock.worker.codec import Arguments, Values, read_hints
from penstock.worker.context import Context
from penstock.worker.handler import App, ExecutorKind, TaskHandler
from penstock.worker.local_context import make_local_context

# The names of options in Celery, RQ, Dramatiq and Huey.
OTHER_NAMES = {
    "max_retries": "max_attempts",
    "retries": "max_attempts",
    "countdown": "delay",
    "retry_delay": "retry",
    "eta": "run_at",
    "at": "run_at",
    "expires": "ttl",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "visibility_timeout": "lease",
    "queue_name": "queue",
    "task_id": "name",
    "job_id": "name",
}
# The methods that enqueue in Celery, Dramatiq and Huey.
OTHER_METHODS = {
    "delay": "enqueue(...)",
    "apply_async": "options(...).enqueue(...)",
    "send": "enqueue(...)",
    "send_with_options": "options(...).enqueue(...)",
    "schedule": "options(delay=...).enqueue(...)",
}
P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(JobFields, frozen=True, kw_only=True):
    """The options of an enqueue, besides the arguments."""

    queue: str = "default"
    priority: int = 0
    delay: float = 0.0
    run_at: datetime | None = None
    ttl: float | None = None
    deadline: datetime | None = None
    key: str | None = None
    unique: str | None = None
    dedup: Dedup | None = None
    callback: str | None = None
    connection: Any = None
    # For a PostgreSQL `connection`: the commit notifies waiting workers.
    wake: bool = True

    def draft(self, type_: str, body: bytes) -> Draft:
        if self.unique is not None and self.dedup is not None:
            raise InvalidInput("give unique or dedup, not both")
        dedup = self.dedup if self.unique is None else Dedup(self.unique, window=None)
        return Draft(
            queue=self.queue,
            type=type_,
            body=body,
            priority=self.priority,
            delay=self.delay,
            run_at=to_moment(self.run_at),
            ttl=self.ttl,
            deadline=to_moment(self.deadline),
            ordering_key=self.key,
            dedup=dedup,
            callback=self.callback,
            **copy_job_fields(self),
        )


class TaskChoices(TypedDict, total=False):
    """The options of a task as keywords, for type checkers."""

    queue: str
    priority: int
    delay: float | timedelta
    run_at: datetime | None
    ttl: float | timedelta | None
    deadline: datetime | None
    key: str | None
    unique: str | None
    dedup: Dedup | None
    headers: dict[str, str] | None
    labels: dict[str, str] | None
    correlation_id: str | None
    max_attempts: int | None
    max_deliveries: int | None
    timeout: float | timedelta | None
    lease: float | timedelta | None
    callback: str | None
    connection: Any
    wake: bool


class Choices(TaskChoices, total=False):
    name: str | None


def apply_choices(base: TaskOptions, choices: Mapping[str, Any]) -> TaskOptions:
    for name in choices:
        if name not in TaskOptions.__struct_fields__:
            raise InvalidInput(f"no option named {name!r}; {suggest_option(name)}")
    return msgspec.structs.replace(base, **{n: to_seconds(v) for n, v in choices.items()})


def to_seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def suggest_option(name: str) -> str:
    names = TaskOptions.__struct_fields__
    from difflib import get_close_matches

    near = OTHER_NAMES.get(name) or next(iter(get_close_matches(name, names, 1)), None)
    return f"did you mean {near!r}?" if near else f"expected one of {', '.join(names)}"


def to_moment(time: datetime | None) -> Moment | None:
    if time is None:
        return None
    if not isinstance(time, datetime):
        raise InvalidInput(f"{time!r} is not a datetime")
    if time.tzinfo is None:
        raise InvalidInput(f"{time} has no time zone; pass one that has, such as datetime.now(UTC)")
    return int(time.timestamp() * 1_000_000)


class Call(Generic[R]):
    """A task with its arguments, not yet enqueued."""

    def __init__(
        self, task: "BaseTask[Any, R]", draft: Draft, connection: Any = None, wake: bool = True
    ) -> None:
        self.task = task
        self.draft = draft
        self.connection = connection
        self.wake = wake


class Publishes(JobOwner, App, Protocol):
    """The app a task belongs to."""

    def enqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]: ...

    async def aenqueue_many(self, calls: Sequence[Call[R]]) -> list[Job[R]]: ...


class BaseTask(Generic[P, R]):
    """A task. Calling it runs the function directly; `enqueue` publishes a job."""

    def __init__(
        self,
        app: Publishes,
        function: Callable[..., Any],
        name: str,
        options: TaskOptions,
        *,
        executor: ExecutorKind | None = None,
        rules: AckRules | None = None,
    ) -> None:
        self.app = app
        self.function = function
        self.name = name
        self.base = options
        self.executor = executor
        self.rules = rules or AckRules()
        context = find_context_parameter(function, name)
        self.with_context = context is not None
        self.arguments = Arguments(function, name, () if context is None else (context,))
        returned = read_hints(function, name).get("return", Any)
        returned = Any if returned is object else returned
        self.results = Values(returned, f"result of task {name!r}")
        self.must_return = not self.results.is_optional
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, "__name__", name)
        self.__wrapped__ = function
        # Raises if the executor cannot run the function.
        self.handler()

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    # Hidden from type checkers, which would accept any name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            hint = f"; use {OTHER_METHODS[name]}" if name in OTHER_METHODS else ""
            raise AttributeError(f"a task has no attribute {name!r}{hint}", name=name, obj=self)

    def options(self, **choices: Unpack[Choices]) -> Self:
        """Returns the task with other options."""
        task = copy.copy(self)
        task.base = apply_choices(self.base, choices)
        return task

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Binds arguments, for `enqueue_many`."""
        draft = self.base.draft(self.name, self.arguments.encode(args, kwargs))
        return Call(self, draft, self.base.connection, self.base.wake)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Enqueues a job. It is durable on return, or with a `connection` when that commits."""
        (job,) = await self.app.aenqueue_many([self.call(*args, **kwargs)])
        return job

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Does the same as `aenqueue`, for sync code."""
        (job,) = self.app.enqueue_many([self.call(*args, **kwargs)])
        return job

    def job(self, id: int) -> Job[R]:
        """Returns the handle of an existing job."""
        return Job(self.app, id, self.results)

    def call_in_place(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.with_context:
            args = (make_local_context(self.name, self.base.queue), *args)
        return self.function(*args, **kwargs)

    def handler(self) -> TaskHandler:
        handler = TaskHandler(
            self.function,
            queue=self.base.queue,
            type=self.name,
            executor=self.executor,
            rules=self.rules,
            timeout=self.base.timeout,
        )
        handler.arguments = self.arguments
        handler.results = self.results
        handler.must_return = self.must_return
        handler.with_context = self.with_context
        handler.app = self.app
        return handler


class Task(BaseTask[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = self.call_in_place(args, kwargs)
        return result


class AsyncTask(BaseTask[P, R]):
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        result: Coroutine[Any, Any, R] = self.call_in_place(args, kwargs)
        return result


def find_context_parameter(function: Callable[..., Any], name: str) -> str | None:
    """Returns the name of the first parameter if it is annotated as Context."""
    hints = read_hints(function, name)
    wanting = [
        each for each in inspect.signature(function).parameters if hints.get(each) is Context
    ]
    if not wanting:
        return None
    first = next(iter(inspect.signature(function).parameters))
    if wanting != [first]:
        raise InvalidInput(
            f"task {name!r}: its Context must be the first parameter, and the only one"
        )
    return first
