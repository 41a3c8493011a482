"""Commands that enqueue work: shell jobs (`enqueue`) and tasks of an app (`send`)."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec
from msgspec import Struct

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.local import Broker
from penstock.broker.waiting.dependencies import DependentDraft
from penstock.cli.completion import complete_queue, complete_task
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import SHELL_QUEUE, is_name
from penstock.cli.output import print_json
from penstock.cli.times import FORMATS, parse_time, to_moment
from penstock.errors import InvalidInput, JobFailed, NotFound, SlugConflict
from penstock.model.fields import MAX_DELAY_S, MAX_RUNS, MIN_DURATION_S
from penstock.model.message import Draft
from penstock.model.settings import SHELL_TYPE, check_range
from penstock.model.store_types import Published
from penstock.rules.durations import parse_seconds
from penstock.worker.executors.shell_job import ShellJob

if TYPE_CHECKING:
    from penstock.app.app import Penstock
    from penstock.app.job import Job
    from penstock.app.task import BaseTask, Choices

# Workers renew leases of shell jobs, so this only bounds how long a crash goes unnoticed.
SHELL_LEASE_S = 30.0
JOB_FORMAT = """for example {"command": "echo hi"} or --command 'echo hi'"""


class JobText(Struct, frozen=True, forbid_unknown_fields=True):
    """A shell job as users write it. A lower priority number runs sooner."""

    command: str | list[str]
    id: str | None = None
    max_retries: int | None = None
    priority: int = 0
    timeout_seconds: float | None = None
    run_at: str | None = None
    delay: str | float | None = None
    env: dict[str, str] = {}
    cwd: str | None = None
    callback: str | None = None
    queue: str = SHELL_QUEUE
    # Names of jobs in the same queue that must complete first.
    after: list[str] = []
    # QueueCTL's name of run_at.
    next_run_at: str | None = None

    def __post_init__(self) -> None:
        ShellJob(self.command, self.env, self.cwd)
        check_range("max_retries", self.max_retries, 1, MAX_RUNS)
        check_range("timeout_seconds", self.timeout_seconds, MIN_DURATION_S, MAX_DELAY_S)
        if self.run_at is not None and self.next_run_at is not None:
            raise InvalidInput("run_at and next_run_at are the same; give one of them")
        if self.starts_at is not None:
            to_moment(parse_time(self.starts_at))
        if self.delay is not None:
            parse_seconds(self.delay)

    @property
    def starts_at(self) -> str | None:
        return self.next_run_at if self.run_at is None else self.run_at

    @property
    def reference(self) -> str | None:
        """The name by which commands find the job, or None if only its id does."""
        if self.id is None or (self.queue == SHELL_QUEUE and is_name(self.id)):
            return self.id
        return f"{self.queue}/{self.id}"

    def make_draft(self) -> Draft:
        job = ShellJob(self.command, self.env, self.cwd)
        return Draft(
            queue=self.queue,
            type=SHELL_TYPE,
            body=msgspec.json.encode(job),
            name=self.id,
            priority=-self.priority,
            max_attempts=self.max_retries,
            timeout=self.timeout_seconds,
            run_at=None if self.starts_at is None else to_moment(parse_time(self.starts_at)),
            delay=0.0 if self.delay is None else parse_seconds(self.delay),
            callback=self.callback,
        )


def read_job(text: str | bytes, where: str = "job") -> JobText:
    try:
        return msgspec.json.decode(text, type=JobText)
    except (msgspec.ValidationError, InvalidInput) as error:
        fields = ", ".join(JobText.__struct_fields__)
        hint = f"; valid fields are {fields}" if "unknown field" in str(error) else ""
        raise InvalidInput(f"{where}: {error}{hint}") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidInput(f"{where}: {error}; {JOB_FORMAT}") from None


async def ensure_shell_queue(broker: BrokerInterface, name: str, scope: str) -> None:
    """Create the queue on first use, with the queuectl preset."""
    try:
        queue = await broker.admin.queue(name, scope=scope)
    except NotFound:
        try:
            await broker.admin.create_queue(
                name, preset_name="queuectl", scope=scope, lease=SHELL_LEASE_S
            )
        except SlugConflict:
            broker.forget_queues()
        return
    if not queue.settings.shell:
        raise InvalidInput(f"queue {name!r} does not accept shell jobs; its setting 'shell' is off")


MAX_INPUT_BYTES = 64 * 1_048_576
group = click.Group()
run_at_option = click.option(
    "--run-at", help=f"Earliest start, local without Z or +01:00: {FORMATS}."
)
delay_option = click.option("--delay", help="Earliest start after a duration: 90s, 5m, 1h30m, 2d.")


@command(group, "enqueue")
@click.argument("jobs", nargs=-1, metavar="[JSON]...")
@click.option("--command", "command_", help="Command line to run with /bin/sh.")
@click.option("--id", help="Name of the job, unique in its queue.")
@click.option("--max-retries", type=int, help="Maximum number of attempts. Default: the queue's.")
@click.option("--priority", type=int, help="Priority. Lower numbers run sooner.")
@click.option("--timeout", "timeout_seconds", type=float, help="Time limit per attempt in seconds.")
@run_at_option
@delay_option
@click.option(
    "--env", multiple=True, metavar="NAME=VALUE", help="Environment variable. Repeatable."
)
@click.option("--cwd", help="Working directory. Default: the worker's.")
@click.option("--callback", metavar="URL", help="URL to notify when the job ends.")
@click.option("--after", multiple=True, metavar="ID", help="Job that must complete first.")
@click.option("--queue", help="Shell queue, created if it does not exist.  [default: shell]")
def enqueue(session: CommandContext, jobs: tuple[str, ...], **options: Any) -> None:
    """Enqueue shell jobs, given as JSON or with options.

    With -, jobs are read from standard input, one JSON object per line. Several jobs are enqueued
    atomically: if one is invalid, none is enqueued. As in QueueCTL, lower priorities run sooner;
    in `penstock send`, higher ones do.

    \b
    penstock enqueue '{"id": "j1", "command": "echo hi"}'
    penstock enqueue '{"command": ["rsync", "-a", "x", "y"], "max_retries": 5, "priority": 1}'
    penstock enqueue '{"command": "make", "run_at": "2030-01-01T03:00", "timeout_seconds": 60}'
    penstock enqueue '{"id": "j2", "command": "make report", "after": ["j1"]}'
    penstock enqueue --command 'echo hi' --id j3
    penstock enqueue --command 'make backup' --run-at 'tomorrow 03:00'
    penstock enqueue --command 'make report' --delay 5m
    penstock enqueue - < jobs.jsonl
    """
    texts = read_jobs(jobs, options)

    async def work(broker: Broker) -> list[Published]:
        for queue in dict.fromkeys(text.queue for text in texts):
            await ensure_shell_queue(broker, queue, session.scope)
        drafts = [text.make_draft() for text in texts]
        if any(text.after for text in texts):
            given = [
                DependentDraft(draft, tuple(text.after))
                for draft, text in zip(drafts, texts, strict=True)
            ]
            return await broker.publish_dependents(given, scope=session.scope)
        if len(drafts) == 1:
            return [await broker.publish(drafts[0], scope=session.scope)]
        return await broker.publish_many(drafts, atomic=True, scope=session.scope)

    for text, published in zip(texts, session.run(work, create=True), strict=True):
        if session.as_json:
            print_json({"id": str(published.id), "name": text.id, "queue": text.queue})
        else:
            print(f"enqueued {text.reference or published.id} ({text.queue}, id {published.id})")


def read_jobs(jobs: Sequence[str], options: dict[str, Any]) -> list[JobText]:
    given = {name.rstrip("_"): value for name, value in options.items() if value}
    if bool(jobs) == bool(given):
        raise click.UsageError(f"Give jobs as JSON, or one job with options, {JOB_FORMAT}.")
    if given:
        given["env"] = dict(parse_env(word) for word in given.get("env", ()))
        return [read_job(msgspec.json.encode(given))]
    if list(jobs) == ["-"]:
        lines = [line for line in read_input().splitlines() if line.strip()]
        return [read_job(line, f"line {number}") for number, line in enumerate(lines, 1)]
    return [read_job(job) for job in jobs]


def read_input() -> bytes:
    """Read all jobs at once, because they are enqueued atomically."""
    text = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(text) > MAX_INPUT_BYTES:
        raise InvalidInput(
            f"standard input exceeds {MAX_INPUT_BYTES >> 20} MB; enqueue it in parts"
        )
    return text


def parse_env(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals:
        raise InvalidInput(f"env {word!r} must have the form NAME=VALUE")
    return name, value


@command(group, "send", context_settings={"ignore_unknown_options": True})
@click.argument("task", shell_complete=complete_task)
@click.argument("arguments", nargs=-1)
@click.option("--app", "reference", metavar="MODULE:APP", help="App to use. Env: PENSTOCK_APP.")
@click.option("--queue", shell_complete=complete_queue, help="Queue. Default: the task's.")
@click.option("--priority", type=int, help="Priority. Higher numbers run sooner.")
@delay_option
@run_at_option
@click.option("--key", help="Ordering key: jobs with the same key run one at a time, in order.")
@click.option("--unique", metavar="KEY", help="Do not enqueue while a job with this key exists.")
@click.option("--max-attempts", type=int, help="Maximum number of attempts.")
@click.option("--callback", metavar="URL", help="URL to notify when the job ends.")
@click.option("--wait", is_flag=True, help="Wait for the result and print it.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait with --wait.")
def send(
    session: CommandContext,
    task: str,
    arguments: tuple[str, ...],
    reference: str | None,
    wait: bool,
    timeout: float,
    **options: Any,
) -> None:
    """Enqueue a task of an app.

    ARGUMENTS are values, or NAME=VALUE for keyword arguments. A value that is valid JSON is
    decoded, any other is passed as a string. Quote strings that look like JSON: '"42"'. Higher
    priorities run sooner; for shell jobs (`penstock enqueue`), lower ones do.

    \b
    penstock send shop.tasks.send_mail someone@example.org subject=hello
    penstock send shop.tasks.add 2 3 --wait
    penstock send shop.tasks.add 2 3 --app shop.tasks:app
    penstock send shop.tasks.report --delay 5m --priority 9 --unique report
    penstock send shop.tasks.call '"0612345678"'
    """
    from penstock.app.discovery import find_app

    args, kwargs = parse_arguments(arguments)
    app = find_app(reference, session.url_option)
    if app is None:
        raise InvalidInput(
            "no app given; use --app module:app, PENSTOCK_APP or app in [tool.penstock]"
        )
    try:
        job = get_task(app, task).options(**make_choices(options)).enqueue(*args, **kwargs)
        if wait:
            print_result(session, job, timeout)
        elif session.as_json:
            print_json({"id": str(job.id), "task": task})
        else:
            print(f"enqueued {task} (id {job.id})")
    finally:
        app.close()


def make_choices(options: dict[str, Any]) -> "Choices":
    """Convert options of the command line to those of a task."""
    given: dict[str, Any] = {name: each for name, each in options.items() if each is not None}
    if "delay" in given:
        given["delay"] = parse_seconds(given["delay"])
    if "run_at" in given:
        given["run_at"] = parse_time(given["run_at"]).astimezone()
    return cast("Choices", given)


def get_task(app: "Penstock", name: str) -> "BaseTask[..., Any]":
    if name not in app.tasks:
        known = ", ".join(sorted(app.tasks))
        hint = f"its tasks are {known}" if known else "it has no tasks"
        raise NotFound(f"the app has no task named {name!r}; {hint}")
    return app.tasks[name]


def print_result(session: CommandContext, job: "Job[Any]", timeout: float) -> None:
    from penstock.worker.codec import encode

    try:
        result = job.result(timeout)
    except TimeoutError:
        raise JobFailed(
            f"job {job.id} did not end within {timeout:g} s; is a worker running?"
            f" Run `penstock show {job.id}` to see its state"
        ) from None
    session.print_result(
        {"id": str(job.id), "result": msgspec.Raw(encode(result))},
        result if isinstance(result, str) else encode(result).decode(),
    )


def parse_arguments(arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for text in arguments:
        name, equals, value = text.partition("=")
        if equals and name.isidentifier():
            kwargs[name] = parse_value(value)
        elif text.startswith("-") and isinstance(parse_value(text), str):
            raise click.NoSuchOption(text)
        else:
            args.append(parse_value(text))
    return args, kwargs


def parse_value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


COMMANDS = {"enqueue": enqueue, "send": send}
