"""The pipeline and a backtest that people start on a page."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Busy
from penstock.http.lake_jobs import PIPELINE, LakeJobs
from penstock.pipeline import extract
from tests.cli.terminal import until
from tests.extent import LONG
from tests.http.served import Served, served
from tests.pipeline.scenes import in_process


def wait_for_end(server: Served, kind: str) -> Any:
    def find() -> Any:
        jobs = {job["kind"]: job for job in server.get("/v1/lake").json["jobs"]}
        return jobs[kind] if jobs[kind]["state"] != "running" else None

    return until(find)


@LONG
def test_the_server_runs_the_pipeline(tmp_path: Path) -> None:
    """On an empty store, where it takes the least time."""
    with served(f"sqlite:///{tmp_path}/queue.db", tmp_path, "--lake", tmp_path / "lake") as server:
        assert server.get("/v1/lake").json["available"] is True
        begun = server.post("/v1/lake/run")
        assert (begun.status, begun.json["state"]) == (202, "running")
        again = server.post("/v1/lake/run")
        assert (again.status, again.code) == (409, "BUSY")
        ended = wait_for_end(server, "pipeline")
        assert ended["state"] == "done", ended["output"]


def test_the_server_says_why_a_run_of_the_pipeline_failed(tmp_path: Path) -> None:
    store = tmp_path / "queue.db"
    with served(f"sqlite:///{store}", tmp_path, "--lake", tmp_path / "lake") as server:
        store.unlink()
        assert server.post("/v1/lake/run").status == 202
        ended = wait_for_end(server, "pipeline")
        assert (ended["state"], f"no store at '{store}'" in ended["output"]) == ("failed", True)


@pytest.mark.anyio
async def test_one_job_of_a_kind_runs_at_a_time(tmp_path: Path) -> None:
    jobs = LakeJobs(f"sqlite:///{tmp_path}/queue.db", str(tmp_path), {PIPELINE: 0.05})
    jobs.run_pipeline("ada")
    try:
        with pytest.raises(Busy, match="a pipeline is running already"):
            jobs.run_pipeline("ben")
    finally:
        await asyncio.gather(*jobs.tasks)


@pytest.mark.anyio
async def test_a_job_that_runs_for_too_long_makes_room_for_the_next(tmp_path: Path) -> None:
    jobs = LakeJobs(f"sqlite:///{tmp_path}/queue.db", str(tmp_path), {PIPELINE: 0.05})
    for _ in range(2):
        job = jobs.run_pipeline("ada")
        await asyncio.gather(*jobs.tasks)
        assert (job.state, job.output) == ("failed", "stopped: it ran for more than 0.05 s")


def test_the_server_backtests_a_rule(tmp_path: Path) -> None:
    url, lake = f"sqlite:///{tmp_path / 'queue.db'}", str(tmp_path / "lake")
    with served(url, tmp_path, "--lake", lake) as server:
        assert server.post("/v1/queues", {"name": "orders"}).status == 201
        for total in (5, 900):
            server.publish("orders", {"total": total})
        extract(in_process(), url, lake)
        rule = {"queue": "orders", "when": "message.body.total > 500.0",
                "do": [{"set": {"priority": 5}}]}  # fmt: skip
        assert server.put("/v1/rules/large", {**rule, "when": "true"}).status == 200
        given = {"rule": rule, "name": "large", "since": "1d"}
        wrong = server.post("/v1/lake/backtest", {**given, "since": "soon"})
        assert wrong.status == 422
        assert server.post("/v1/lake/backtest", given).status == 202
        ended = wait_for_end(server, "backtest")
        assert ended["state"] == "done", ended["output"]
        counts = {"tried": 2, "matched": 1, "missing_field": 0, "errors": 0}
        compared = {"gained": 0, "lost": 1}
        assert ended["result"] == {
            "rule": "large", **counts, "queues": {"orders": 1}, **compared
        }  # fmt: skip
