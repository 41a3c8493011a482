"""The example of an agent whose turns are steps."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio
EXAMPLE = Path(__file__).parents[2] / "examples/agent_loop.py"


async def test_an_agent_calls_its_model_once_a_turn_and_waits_for_a_person() -> None:
    example = runpy.run_path(str(EXAMPLE))
    assert await example["main"]() == {"goal": "order fasteners", "total": 42, "approved": True}
    assert example["model_calls"] == [0, 1, 2]
