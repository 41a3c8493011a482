"""Bad settings of a queue are refused, and change nothing."""

from math import inf, nan
from typing import Any

import pytest

from tests.conformance.stage import Stage, refusal

pytestmark = pytest.mark.anyio

BAD_SETTINGS: list[dict[str, Any]] = [
    {"max_attempts": 0},
    {"max_attempts": "5"},
    {"max_attempts": 1.5},
    {"max_deliveries": 0},
    {"max_waits": 0},
    {"max_waits": 10_001},
    {"max_depth": 0},
    {"lease": 0},
    {"lease": nan},
    {"lease": inf},
    {"lease": 50_000},
    {"lease": "30"},
    {"retention": -1},
    {"retention": nan},
    {"keep_results": -1},
    {"keep_results": inf},
    {"max_body": 0},
    {"max_body": 2**40},
    {"ordering": "random"},
    {"overflow": "drop"},
    {"merge": "bogus"},
    {"priority_min": 5, "priority_max": 1},
    {"priority_max": 2**40},
    {"seconds_per_level": -1},
    {"seconds_per_level": nan},
    {"seconds_per_level": 5, "ordering": "fifo"},
    {"seconds_per_level": 5, "aging": True},
    {"retry": {"count": "bogus"}},
    {"retry": {"on_expiry": "bogus"}},
    {"retry": 5},
    {"backoff": {"kind": "bogus"}},
    {"backoff": {"initial": -1}},
    {"backoff": {"initial": nan}},
    {"backoff": {"initial": inf}},
    {"backoff": {"factor": 0.5}},
    {"backoff": {"factor": nan}},
    {"backoff": {"max": -1}},
    {"backoff": {"max": nan}},
    {"backoff": {"jitter": "wild"}},
    {"backoff": {"jitter": "add:2"}},
    {"backoff": {"jitter": "add:nan"}},
    {"backoff": {"bogus": 1}},
    {"backoff": None},
    {"bogus": 1},
]


async def test_bad_settings_are_refused(stage: Stage) -> None:
    await stage.queue("work")
    before = await stage.admin.queues()
    for settings in BAD_SETTINGS:
        created = await refusal(stage.admin.create_queue("new", **settings))
        changed = await refusal(stage.admin.set_queue("work", **settings))
        assert (created, changed) == ("INVALID_INPUT", "INVALID_INPUT"), settings
    assert await stage.admin.queues() == before
