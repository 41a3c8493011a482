"""Bounds of the retries of a Delta log that other processes keep writing."""

import pytest

from penstock.errors import Busy
from penstock.pipeline.lake.delta_log import retry_conflicts
from penstock.retry_policies import DELTA_COMMIT


def test_a_log_that_others_keep_writing_is_tried_so_often() -> None:
    tries: list[None] = []

    def lose() -> bool:
        tries.append(None)
        return False

    with pytest.raises(Busy, match="Delta logs"):
        retry_conflicts(lose)
    assert len(tries) == DELTA_COMMIT.attempts


def test_a_log_is_written_after_another_process_took_a_version() -> None:
    answers = [True, False, False]
    retry_conflicts(answers.pop)
    assert answers == []
