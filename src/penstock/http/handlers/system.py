"""Routes for health, metrics, agents, workers, stats and autoscaling."""

from collections.abc import Collection
from importlib.metadata import version
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from penstock.broker.liveness import is_gone
from penstock.errors import NotFound, Refused
from penstock.http.auth.principal import OWNER, Requirement, RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.handlers.queues import QUEUE_NAME
from penstock.http.metrics.autoscale import QueueRate, compute_workers_needed
from penstock.http.metrics.queue_stats import ENDED, QueueSnapshot
from penstock.http.operations import OperationTable
from penstock.model.message import Moment
from penstock.model.queue import Queue, QueueState
from penstock.model.store_types import AgentRun, WorkerInfo
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.wire.fields import Cursor, PageLimit, to_datetime, to_optional_datetime
from penstock.wire.queues import (
    Agents,
    AgentView,
    AutoscaleList,
    AutoscaleView,
    Health,
    QueueCountsView,
    Stats,
    Version,
    WorkerHeartbeat,
    Workers,
    WorkerView,
    make_worker_view,
)

system = OperationTable("system", scoped=False)
NEVER = AgentRun("", 0, "", None)
WorkerId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]
MAX_WORKERS = 1_000
ENDS = ("completed", "failed", "expired", "cancelled")


@system.add(
    "GET", "/health", "Liveness probe", Health, name="get_health_alias", right=None, public=True
)
@system.add("GET", "/healthz", "Liveness probe", Health, right=None, public=True)
async def get_health(call: RequestContext) -> Health:
    return Health("ok")


@system.add("GET", "/readyz", "Readiness probe", Health, right=None, public=True)
async def get_readiness(call: RequestContext) -> Health:
    await call.service.store.directory_version()
    return Health("ok")


@system.add("GET", "/version", "Get the version", Version, right=None)
async def get_version(call: RequestContext) -> Version:
    able = call.broker.capabilities
    return Version(version("penstock"), "v1", able.engine, able.durability)


@system.add("GET", "/metrics", "Prometheus metrics", "text/plain", extent=RightScope.STORE)
async def get_metrics(call: RequestContext) -> Response:
    return Response(call.service.metrics.render(), media_type=CONTENT_TYPE_LATEST)


@system.add("GET", "/v1/system-agents", "List maintenance agents", Agents, extent=RightScope.STORE)
async def list_agents(call: RequestContext) -> Agents:
    runs = {run.name: run for run in await call.service.store.agent_runs()}
    return Agents(
        [
            AgentView(
                name=status.name,
                every=status.every,
                runs=status.runs,
                ran_ago=status.ran_ago,
                runs_in=status.runs_in,
                last_work_at=to_optional_datetime(runs.get(status.name, NEVER).at or None),
                last_work_by=runs.get(status.name, NEVER).by or None,
                last_result=runs.get(status.name, NEVER).result,
                error=status.error,
            )
            for status in call.service.runner.statuses()
        ]
    )


@system.add("GET", "/v1/workers", "List workers", Workers, right=None)
async def list_workers(call: RequestContext) -> Workers:
    """Lists the workers of the caller's tenant. Workers poll it for stop requests."""
    if Right.CONSUME not in call.caller.access.rights:
        call.caller.check_requirement(Requirement(Right.READ, RightScope.TENANT))
    now = await call.broker.now()
    rows = await list_own_workers(call)
    return Workers(
        [make_worker_view(row, describe_worker_state(row, now)) for row in rows], to_datetime(now)
    )


def row_id(call: RequestContext, id: str) -> str:
    """Prefixes the id with the tenant. Workers connected to the store belong to the owner."""
    tenant = call.caller.tenant
    return id if tenant == OWNER else f"{tenant}/{id}"


async def list_own_workers(call: RequestContext) -> list[WorkerInfo]:
    """Returns the workers of the tenant, with ids as the tenant knows them."""
    found: list[WorkerInfo] = []
    for row in await call.broker.workers():
        tenant, _, id = row.id.rpartition("/")
        if (tenant or OWNER) == call.caller.tenant:
            found.append(replace(row, id=id))
    return found


def get_counted(call: RequestContext) -> set[str]:
    return call.service.counted_workers.setdefault(call.caller.tenant, set())


async def delete_row(call: RequestContext, id: str) -> None:
    """Also forgets it, so that a worker that comes back counts as a new one."""
    get_counted(call).discard(id)
    await call.broker.delete_worker(row_id(call, id))


async def make_room(call: RequestContext) -> None:
    """Enforces MAX_WORKERS, after deleting the rows of workers that are gone.

    Remembers only the workers it counted, so that a server lets no more than MAX_WORKERS pass.
    """
    now = await call.broker.now()
    rows = await list_own_workers(call)
    lost = [row for row in rows if is_gone(row, now)] if len(rows) >= MAX_WORKERS else []
    for row in lost:
        await delete_row(call, row.id)
    if len(rows) - len(lost) >= MAX_WORKERS:
        raise Refused(
            f"tenant {call.caller.tenant!r} has reached the limit of {MAX_WORKERS} workers"
        )
    left = {row.id for row in rows} - {row.id for row in lost}
    call.service.counted_workers[call.caller.tenant] = left


@system.add(
    "PUT",
    "/v1/workers/{id}",
    "Register a worker or send its heartbeat",
    None,
    takes=WorkerHeartbeat,
    status=204,
    right=Right.CONSUME,
    example={"host": "box", "pid": 4711, "queues": ["mail"]},
)
async def save_worker(call: RequestContext, id: WorkerId, present: WorkerHeartbeat) -> None:
    row = copy_fields(
        WorkerInfo,
        present,
        id=row_id(call, id),
        queues=tuple(present.queues),
        types={queue: tuple(types) for queue, types in present.types.items()},
        tenant=call.caller.tenant,
    )
    if id in get_counted(call):
        return await call.broker.save_worker(row)
    async with call.service.registration:
        await make_room(call)
        await call.broker.save_worker(row)
        get_counted(call).add(id)


@system.add(
    "DELETE", "/v1/workers/{id}", "Deregister a worker", None, status=204, right=Right.CONSUME
)
async def delete_worker(call: RequestContext, id: WorkerId) -> None:
    await delete_row(call, id)


@system.add(
    "POST",
    "/v1/workers/{id}/stop",
    "Stop a worker",
    WorkerView,
    status=202,
    extent=RightScope.TENANT,
)
async def stop_worker(call: RequestContext, id: WorkerId) -> WorkerView:
    """Asks the worker to stop gracefully."""
    for row in await list_own_workers(call):
        if row.id == id:
            await call.broker.stop_worker(row_id(call, id))
            return make_worker_view(row, "stopping")
    raise NotFound(f"no worker with id {id[:100]!r}")


def describe_worker_state(row: WorkerInfo, now: Moment) -> Literal["running", "stopping", "gone"]:
    if is_gone(row, now):
        return "gone"
    return "stopping" if row.stopping else "running"


@system.add("GET", "/v1/stats", "Get queue statistics", Stats, scoped=True)
async def get_stats(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Stats:
    snapshot = await call.service.counts.get_snapshot()
    now = await call.broker.now()
    living = [row for row in await list_own_workers(call) if not is_gone(row, now)]
    queues = await list_own_queues(call)
    page, next_cursor = cut_page(call, queues, QUEUE_NAME, limit, cursor, "stats")
    return Stats(
        queues=[make_counts_view(queue, snapshot) for queue in page],
        workers=len(living),
        durability=call.broker.capabilities.durability,
        counted_at=to_datetime(snapshot.at),
        cursor=next_cursor,
        ended_counted=ENDED,
        truncated=sum(count for (_, place), count in snapshot.depths.items() if place in ENDS)
        >= ENDED,
        totals=count_by_state(queues, snapshot),
    )


def count_by_state(queues: Collection[Queue], snapshot: QueueSnapshot) -> dict[str, int]:
    ids = {queue.id for queue in queues}
    totals = dict.fromkeys(("ready", "scheduled", "claimed", "dead", *ENDS), 0)
    for (id, place), count in snapshot.depths.items():
        state = "claimed" if place == "lease" else place
        if id in ids and state in totals:
            totals[state] += count
    return totals


async def list_own_queues(call: RequestContext) -> list[Queue]:
    """Returns the queues of the scope that the caller may read, from the cache: there may be many,
    and pages ask for them every few seconds."""
    scope = call.scope
    return [
        queue
        for queue in await call.broker.list_queues()
        if queue.scope.name == scope
        and not queue.system
        and queue.state is not QueueState.DELETED
        and call.allows(queue.scope.name, queue.name)
    ]


def make_counts_view(queue: Queue, snapshot: QueueSnapshot) -> QueueCountsView:
    places = ("ready", "scheduled", "lease", "dead", *ENDS)
    numbers = [snapshot.depths.get((queue.id, place), 0) for place in places]
    return QueueCountsView(queue.name, queue.scope.name, queue.state, *numbers)


@system.add("GET", "/v1/autoscale", "Get autoscaling hints", AutoscaleList, scoped=True)
async def get_autoscale(
    call: RequestContext,
    concurrency: Annotated[
        int, Meta(ge=1, le=100_000, description="Concurrency of one worker.")
    ] = 10,
    catch_up: Annotated[
        float, Meta(ge=1, le=86_400, description="Seconds to clear the backlog.")
    ] = 60.0,
    limit: PageLimit = 1_000,
    cursor: Cursor | None = None,
) -> AutoscaleList:
    """Estimates how many workers each queue needs."""
    snapshot = await call.service.counts.get_snapshot()
    found: list[AutoscaleView] = []
    queues = await list_own_queues(call)
    page, next_cursor = cut_page(call, queues, QUEUE_NAME, limit, cursor, "autoscale")
    for queue in page:
        pace = call.service.queue_rates.of_queue.get(queue.id, QueueRate())
        ready = snapshot.depths.get((queue.id, "ready"), 0) if queue.serves else 0
        claimed = snapshot.depths.get((queue.id, "lease"), 0)
        needed = compute_workers_needed(pace, ready, concurrency, catch_up)
        found.append(
            AutoscaleView(
                queue=queue.name,
                scope=queue.scope.name,
                workers=needed,
                ready=ready,
                claimed=claimed,
                ended_per_second=pace.rate,
                run_seconds=pace.run,
            )
        )
    return AutoscaleList(found, next_cursor)
