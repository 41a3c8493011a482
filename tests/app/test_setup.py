"""What an app declares is made, changed and removed by `setup` and by its workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from penstock import Penstock
from penstock.errors import InvalidInput
from penstock.model.queue import Schedule
from penstock.model.settings import QueueSettings


def open_app(path: Path) -> Penstock:
    return Penstock(f"sqlite:///{path / 'queue.db'}")


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Penstock]:
    app = open_app(tmp_path)
    yield app
    app.close()


def settings_of(app: Penstock, name: str) -> QueueSettings:
    async def read() -> QueueSettings:
        return (await (await app.broker()).admin.queue(name)).settings

    return app.run(read())


def schedules_of(app: Penstock) -> list[Schedule]:
    async def read() -> list[Schedule]:
        return await (await app.broker()).admin.schedules()

    return app.run(read())


def test_setup_makes_the_declared_queues_and_schedules_once(app: Penstock) -> None:
    app.queue("mail", max_attempts=3)

    @app.task(queue="reports", name="nightly", cron="0 3 * * *")
    def nightly() -> None: ...

    assert app.setup() == [
        "queue mail created",
        "queue reports created",
        "schedule nightly: 0 3 * * *",
    ]
    assert settings_of(app, "mail").max_attempts == 3
    assert app.setup() == []


def test_setup_applies_settings_that_changed_and_leaves_the_others_alone(
    app: Penstock, tmp_path: Path
) -> None:
    app.queue("mail", max_attempts=3)
    app.setup()

    async def operate() -> None:
        await (await app.broker()).admin.set_queue("mail", retention=60.0)

    app.run(operate())
    later = open_app(tmp_path)
    later.queue("mail", max_attempts=7)
    assert later.setup() == ["queue mail: max_attempts 3 -> 7"]
    settings = settings_of(later, "mail")
    assert (settings.max_attempts, settings.retention) == (7, 60)
    later.close()


def test_a_worker_warns_of_settings_that_changed_and_changes_nothing(
    app: Penstock, tmp_path: Path
) -> None:
    app.queue("mail", max_attempts=3)
    app.setup()
    later = open_app(tmp_path)
    later.queue("mail", max_attempts=7)

    @later.task(queue="mail")
    def send() -> None: ...

    with capture_logs() as logs:
        later.run(later.worker())
    assert logs == [
        {
            "event": "queue_settings_differ",
            "log_level": "warning",
            "queue": "mail",
            "setting": "max_attempts",
            "code": "7",
            "store": "3",
            "advice": "run penstock migrate MODULE:APP to apply those of the code",
        }
    ]
    assert settings_of(later, "mail").max_attempts == 3
    later.close()


def test_a_worker_removes_a_cron_that_the_code_no_longer_declares(
    app: Penstock, tmp_path: Path
) -> None:
    @app.task(name="nightly", cron="0 3 * * *")
    def nightly() -> None: ...

    app.run(app.worker())
    assert [each.declared_in for each in schedules_of(app)] == [__name__]
    later = open_app(tmp_path)

    @later.task
    def other() -> None: ...

    with capture_logs() as logs:
        later.run(later.worker())
    assert schedules_of(later) == []
    assert [each["event"] for each in logs] == ["schedule_changed"]
    later.close()


def test_a_cron_that_moves_to_another_queue_leaves_none_behind(
    app: Penstock, tmp_path: Path
) -> None:
    @app.task(name="nightly", cron="0 3 * * *")
    def nightly() -> None: ...

    app.setup()
    later = open_app(tmp_path)
    later.task(name="nightly", queue="reports", cron="0 3 * * *")(nightly.function)
    later.setup()
    assert [each.draft.queue for each in schedules_of(later)] == ["reports"]
    later.close()


def test_schedules_of_operators_and_of_other_modules_stay(app: Penstock) -> None:
    @app.task(name="nightly")
    def nightly() -> None: ...

    async def add(name: str, module: str) -> None:
        schedule = Schedule(name, "0 3 * * *", nightly.call().draft, declared_in=module)
        await (await app.broker()).admin.schedule(schedule)

    app.run(add("by hand", ""))
    app.run(add("of another program", "no.such.module"))
    app.run(app.worker())
    assert [each.name for each in schedules_of(app)] == ["by hand", "of another program"]


def test_a_declaration_that_no_queue_can_have_is_refused_at_once(app: Penstock) -> None:
    with pytest.raises(InvalidInput, match="max_attempts"):
        app.queue("mail", max_attempts="many")
