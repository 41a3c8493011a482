"""Brings the store in line with what an app declares: its queues, their settings, its crons."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from penstock.app.task import BaseTask
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import Forbidden, InvalidInput
from penstock.model.queue import Missed, Schedule
from penstock.model.settings import QueueSettings, change, get_preset


def find_module(function: Callable[..., Any]) -> str:
    """Returns the module of a function. A script is named by the module it would be imported as."""
    module = function.__module__
    return name_script() if module == "__main__" else module


def name_script() -> str:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    file = os.path.basename(getattr(main, "__file__", "") or "main")
    return spec.name if spec is not None else file.removesuffix(".py")


def derive_task_name(function: Callable[..., Any]) -> str:
    """Returns module.function."""
    if not hasattr(function, "__qualname__"):
        raise InvalidInput(f"{function!r} is not a function; only functions can be tasks")
    return f"{find_module(function)}.{function.__qualname__}"


def make_type(name: str, version: int) -> str:
    """Returns the type of a task's messages. From version 2 on it names the version."""
    if type(version) is not int or version < 1:
        raise InvalidInput(f"task {name!r}: version {version!r} must be a whole number from 1 on")
    return name if version == 1 else f"{name}@{version}"


def make_schedule(
    task: BaseTask[Any, Any], cron: str, timezone: str, missed: Missed | str
) -> Schedule:
    """Refuses a cron expression that never fires, and a task with required arguments."""
    from penstock.rules.cron import find_next_tick

    find_next_tick(cron, timezone, 0)
    if missed not in list(Missed):
        raise InvalidInput(f"missed is {missed!r}; expected one of {', '.join(Missed)}")
    return Schedule(
        name=task.name,
        cron=cron,
        draft=task.call().draft,
        timezone=timezone,
        missed=Missed(missed),
        declared_in=find_module(task.function),
    )


def find_differences(
    declared: dict[str, Any], stored: QueueSettings
) -> dict[str, tuple[object, object]]:
    """Returns the declared settings that the queue does not have: name, in the code, in the store.

    Settings that the code leaves alone are the operator's.
    """
    given = {name: value for name, value in declared.items() if name != "preset_name"}
    preset = get_preset(declared["preset_name"])
    default, wanted = QueueSettings(), change(preset, given)
    names = [
        name
        for name in QueueSettings.__struct_fields__
        if name in given or getattr(preset, name) != getattr(default, name)
    ]
    found = {name: (getattr(wanted, name), getattr(stored, name)) for name in names}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


async def find_changed_settings(
    broker: BrokerInterface, declared: dict[str, dict[str, Any]], scope: str
) -> dict[str, dict[str, tuple[object, object]]]:
    """Returns the differences by queue, of queues that exist."""
    if not declared:
        return {}
    stored = {queue.name: queue.settings for queue in await broker.admin.queues(scope=scope)}
    found = {
        name: find_differences(settings, stored[name])
        for name, settings in declared.items()
        if name in stored
    }
    return {name: differences for name, differences in found.items() if differences}


async def report_changed_settings(
    broker: BrokerInterface, declared: dict[str, dict[str, Any]], scope: str
) -> None:
    """Warns of settings that were changed in the code or in the store since `setup`."""
    try:
        changed = await find_changed_settings(broker, declared, scope)
    except Forbidden:
        # The key of a worker need not allow to read queues.
        return
    for queue, differences in changed.items():
        for name, (wanted, stored) in differences.items():
            log_event(
                "warning",
                "queue_settings_differ",
                queue=queue, setting=name, code=show(wanted), store=show(stored),
                advice="run penstock migrate MODULE:APP to apply those of the code",
            )  # fmt: skip


async def apply_settings(
    broker: BrokerInterface, changed: dict[str, dict[str, tuple[object, object]]], scope: str
) -> list[str]:
    steps: list[str] = []
    for queue, differences in changed.items():
        wanted = {name: msgspec.to_builtins(new) for name, (new, _) in differences.items()}
        await broker.admin.set_queue(queue, scope=scope, **wanted)
        steps += [
            f"queue {queue}: {name} {show(old)} -> {show(new)}"
            for name, (new, old) in differences.items()
        ]
    return steps


async def save_schedules(
    broker: BrokerInterface, declared: Sequence[Schedule], found: Sequence[Schedule], scope: str
) -> list[str]:
    """Creates or updates the declared schedules. A paused one stays paused."""
    steps: list[str] = []
    for schedule in declared:
        same = [each for each in found if get_key(each) == get_key(schedule)]
        if not any(get_definition(each) == get_definition(schedule) for each in same):
            paused = any(each.paused for each in same)
            placed = msgspec.structs.replace(schedule, paused=paused)
            await broker.admin.schedule(placed, scope=scope)
            steps.append(f"schedule {schedule.name}: {schedule.cron}")
    return steps


async def list_schedules(
    broker: BrokerInterface, declared: Sequence[Schedule], scope: str
) -> list[Schedule]:
    """Lists the schedules of the store; none if the key may not, and the app declares none."""
    try:
        return await broker.admin.schedules(scope=scope)
    except Forbidden:
        if declared:
            raise
        return []


def find_removed(declared: Iterable[Schedule], found: Iterable[Schedule]) -> list[Schedule]:
    """Returns the schedules that modules of this process declared once and no longer do.

    What other modules declared belongs to other workers.
    """
    kept = {get_key(each) for each in declared}
    here = {*sys.modules, name_script()}
    return [each for each in found if each.declared_in in here and get_key(each) not in kept]


async def remove_schedules(
    broker: BrokerInterface, removed: Iterable[Schedule], scope: str
) -> list[str]:
    steps: list[str] = []
    for each in removed:
        await broker.admin.unschedule(each.draft.queue, each.name, scope=scope)
        steps.append(f"schedule {each.name} removed: {each.declared_in} no longer declares it")
    return steps


def get_key(schedule: Schedule) -> tuple[str, str]:
    return schedule.name, schedule.draft.queue


def get_definition(schedule: Schedule) -> tuple[object, ...]:
    return (schedule.cron, schedule.timezone, schedule.missed, schedule.draft, schedule.declared_in)


def show(setting: object) -> str:
    return msgspec.json.encode(setting).decode()


def log_event(level: str, event: str, **fields: object) -> None:
    # Loaded late: programs that only enqueue do not log.
    import structlog

    getattr(structlog.get_logger(), level)(event, **fields)
