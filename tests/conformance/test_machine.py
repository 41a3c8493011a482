"""Whatever is done to a store, in whatever order, it does what the model does."""

from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conformance.engines import ENGINES, Engine
from tests.conformance.machine.rules import Machine
from tests.extent import ALL

STEPS = 40
EXAMPLES = {"sqlite-memory": 25, "sqlite-file": 6, "postgres": 6, "mariadb": 6, "redis": 10}
MORE = 14 if ALL else 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_store_and_the_model_never_disagree(
    engine: str, request: pytest.FixtureRequest, directory: Path
) -> None:
    class Prepared(Machine):
        def prepare(self) -> Engine:
            return ENGINES[engine](request, Path(mkdtemp(dir=directory)))

    run_state_machine_as_test(
        Prepared,
        settings=settings(
            max_examples=EXAMPLES[engine] * MORE,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
