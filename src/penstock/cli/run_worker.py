"""Runs one worker process for `penstock worker start`."""

from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.agents import make_agents
from penstock.agents.shell_output_pruner import ShellOutputPruner
from penstock.app.app import Penstock
from penstock.app.discovery import find_app
from penstock.artifacts.service import ArtifactService
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.queue_cache import QueueCache
from penstock.cli.commands.jobs import ensure_shell_queue
from penstock.cli.job_output import locate_output
from penstock.cli.logs import configure_standard_logging
from penstock.cli.lookup import SHELL_QUEUE
from penstock.cli.settings import LogLevel, load_settings
from penstock.client.brokers import BrokerPool
from penstock.errors import InvalidInput
from penstock.runner import Agent, Runner, make_identity
from penstock.store import Store
from penstock.worker.executors.shell import ShellHandler
from penstock.worker.handler import Handler
from penstock.worker.options import WorkerOptions
from penstock.worker.process import WorkerProcess
from penstock.worker.worker import Worker


class WorkerPlan(Struct, frozen=True):
    """Options of one worker process. `url_option` is the value of --url, if given."""

    url: str
    url_option: str | None
    scope: str
    reference: str | None
    queues: tuple[str, ...]
    count: int
    grace: float
    lease: float | None
    shell: bool | None
    stop_when_empty: bool
    log: Literal["text", "json"]
    log_level: LogLevel = "info"
    prefetch: int | None = None
    parent: int | None = None

    def to_command(self) -> list[str]:
        """Build the command line."""
        words = ["worker", "start", "--scope", self.scope, "--log", self.log]
        words += ["--log-level", self.log_level]
        words += ["--count", str(self.count), "--grace", str(self.grace)]
        words += [] if self.reference is None else [self.reference]
        words += [] if self.url_option is None else ["--url", self.url_option]
        words += [word for queue in self.queues for word in ("--queue", queue)]
        words += [] if self.lease is None else ["--lease", str(self.lease)]
        words += [] if self.prefetch is None else ["--prefetch", str(self.prefetch)]
        words += [] if self.shell is None else ["--shell" if self.shell else "--no-shell"]
        words += ["--stop-when-empty"] if self.stop_when_empty else []
        return words


async def run_one(plan: WorkerPlan) -> None:
    app = find_app(plan.reference, plan.url_option)
    configure_standard_logging(plan.log, plan.log_level)
    url, tenant = (plan.url, "default") if app is None else (app.url, app.tenant)
    plan = plan if app is None else replace(plan, scope=app.scope)
    output = Path(locate_output(url))
    artifacts = (app and app.artifacts) or load_settings().artifacts
    connections = BrokerPool(url, tenant, artifacts)
    broker = await connections.open()
    async with broker:
        handlers = await make_handlers(plan, app, broker, output)
        shell = any(isinstance(handler, ShellHandler) for handler in handlers)
        if shell and connections.remote:
            raise InvalidInput("shell jobs cannot run over HTTP; connect the worker to the store")
        agents = broker.make_agents(partial(make_worker_agents, output if shell else None, app))
        worker = Worker(
            broker,
            handlers,
            WorkerOptions(
                concurrency=plan.count, grace=plan.grace, lease=plan.lease, prefetch=plan.prefetch
            ),
            scope=plan.scope,
            hook=app.hooks.find_caller() if app is not None else None,
            connect=connections.open,
            address=connections.address(),
        )
        service = WorkerProcess(
            worker,
            Runner(agents, outages=broker.outages),
            stop_when_empty=plan.stop_when_empty,
            parent=plan.parent,
        )
        await service.run()


def make_worker_agents(
    output: Path | None,
    app: Penstock | None,
    store: Store,
    directory: QueueCache,
    artifact_service: ArtifactService | None,
) -> list[Agent]:
    agents = make_agents(
        store, make_identity(), directory=directory, artifact_service=artifact_service
    )
    agents += [] if app is None else app.make_detector_agents(store, directory)
    return agents if output is None else [*agents, ShellOutputPruner(store, output)]


async def make_handlers(
    plan: WorkerPlan, app: Penstock | None, broker: BrokerInterface, output: Path
) -> list[Handler]:
    """Make the handlers of the app, and of shell queues if requested or without an app."""
    handlers: list[Handler] = []
    if app is not None:
        handlers = app.handlers(plan.queues)
        await app.ensure_queues(broker, {handler.queue for handler in handlers})
        await app.prepare(broker)
    if plan.shell or (plan.shell is None and app is None):
        taken = {handler.queue for handler in handlers}
        for name in await list_shell_queues(plan, broker):
            if name not in taken:
                await ensure_shell_queue(broker, name, plan.scope)
                handlers.append(ShellHandler(name, output))
    if not handlers:
        wanted = ", ".join(plan.queues) or "any queue"
        raise InvalidInput(f"the app has no handler for {wanted}; use --shell to run shell jobs")
    return handlers


async def list_shell_queues(plan: WorkerPlan, broker: BrokerInterface) -> tuple[str, ...]:
    """List the queues of the plan, or all shell queues."""
    if plan.queues:
        return plan.queues
    found = await broker.admin.queues(scope=plan.scope)
    names = [queue.name for queue in found if queue.settings.shell]
    return tuple(dict.fromkeys((SHELL_QUEUE, *names)))
