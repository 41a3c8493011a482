"""The checker accuses no correct queue, and finds every seeded bug wherever it can be seen."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.checker import (
    Answer,
    Claim,
    Claimed,
    End,
    Kind,
    Plan,
    Publish,
    Recorder,
    Report,
    Settle,
    Stored,
    assemble,
    check,
    read,
)
from tests.checker.__main__ import main
from tests.checker.events import ALREADY_SETTLED, AnyLine, Fault, Invoke, Result
from tests.faults.bugs import BUGS, Bug
from tests.faults.simulator import Simulation

SEEDS = 300
STRIKES = 5
OK = Answer("ok")
ENCODER = msgspec.json.Encoder()
# Found by tests of their own below, and in test_recorded_waits.py.
WITHOUT_BUG = {
    Kind.UNKNOWN_FENCE_ACCEPTED, Kind.VACUOUS, Kind.UNREADABLE, Kind.RESUMED_EARLY,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs() -> dict[int, list[AnyLine]]:
    return {seed: Simulation(seed).run() for seed in range(SEEDS)}


def judge(lines: list[AnyLine]) -> Report:
    return check(assemble(lines))


def test_a_correct_queue_is_never_accused(runs: dict[int, list[AnyLine]]) -> None:
    accused = {seed: judge(lines).violations for seed, lines in runs.items()}
    assert {seed: found for seed, found in accused.items() if found} == {}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found_wherever_it_strikes(bug: type[Bug]) -> None:
    missed, strikes = [], 0
    for seed in range(100):
        simulation = Simulation(seed, bug)
        lines = simulation.run()
        assert isinstance(simulation.queue, bug)
        if simulation.queue.struck:
            strikes += 1
            missed += [] if bug.breaks in judge(lines).counts else [seed]
        if strikes == STRIKES:
            break
    assert (strikes, missed) == (STRIKES, [])


def test_every_class_of_violation_has_a_bug_that_shows_it() -> None:
    assert {bug.breaks for bug in BUGS} | WITHOUT_BUG == set(Kind)


def test_the_correct_queue_shows_the_hard_cases(runs: dict[int, list[AnyLine]]) -> None:
    seen: dict[str, int] = defaultdict(int)
    for lines in runs.values():
        history = assemble(lines)
        claims = {c.fence: c for claim in history.claims for c in claim.answer.claims}
        rows = {(s.id, r.verb, r.fence) for s in history.stored for r in s.rows}
        for claim in history.claims:
            seen["claim answered after its lease"] += claim.end - claim.start > 1_000_000_000
        for settle in history.settles:
            key = settle.call.id, settle.call.verb, settle.call.fence
            late = settle.end // 1000 - 5_000_000_000 + 1_700_000_000_000_000
            handed = claims.get(settle.call.fence)
            seen["already settled"] += settle.answer.code == ALREADY_SETTLED
            seen["unknown but done"] += settle.answer.outcome == "unknown" and key in rows
            seen["late but accepted"] += bool(
                settle.accepted and handed and late > handed.lease_until + 20_000
            )
        seen["cancel of a claimed one"] += sum(c.answer.state == "claimed" for c in history.cancels)
        seen["redrive as a copy"] += sum(s.parent is not None for s in history.stored)
        seen["duplicate"] += sum(p.answer.duplicate for p in history.publishes)
    assert min(seen.values()) > 20, dict(seen)


def test_a_settle_with_a_fence_nobody_was_given_is_found(runs: dict[int, list[AnyLine]]) -> None:
    lines = list(runs[0])
    accepted = {(r.process, r.number) for r in lines if isinstance(r, Result) and r.answer == OK}
    place, invoke = next(
        (place, line)
        for place, line in enumerate(lines)
        if isinstance(line, Invoke) and isinstance(line.call, Settle)
        if (line.process, line.number) in accepted
    )
    assert isinstance(invoke.call, Settle)
    call = msgspec.structs.replace(invoke.call, fence=9999)
    lines[place] = msgspec.structs.replace(invoke, call=call)
    assert Kind.UNKNOWN_FENCE_ACCEPTED in judge(lines).counts


@pytest.mark.parametrize("kind", ["kill", "stop"])
def test_a_run_without_the_faults_it_asked_for_is_vacuous(
    runs: dict[int, list[AnyLine]], kind: str
) -> None:
    calm = [line for line in runs[0] if not (isinstance(line, Fault) and line.kind == kind)]
    assert judge(calm).counts == {Kind.VACUOUS: 1}


def test_an_empty_history_proves_nothing(tmp_path: Path) -> None:
    assert set(check(read(tmp_path)).counts) == {Kind.VACUOUS, Kind.UNREADABLE}


def write_files(directory: Path, lines: list[AnyLine]) -> list[Path]:
    """One file per process; the storm's own lines and the dump have theirs."""
    files: dict[str, list[AnyLine]] = defaultdict(list)
    for line in lines:
        name = line.process if isinstance(line, Invoke | Result) else "storm"
        files["final" if isinstance(line, Stored | End) else name].append(line)
    for name, part in files.items():
        (directory / f"{name}.jsonl").write_bytes(ENCODER.encode_lines(part))
    return sorted(directory.glob("*.jsonl"))


def test_files_tell_the_same_as_lines(tmp_path: Path, runs: dict[int, list[AnyLine]]) -> None:
    write_files(tmp_path, runs[1])
    assert check(read(tmp_path)) == judge(runs[1])


@pytest.mark.parametrize("seed", range(30))
def test_a_cut_file_is_accepted_or_reported(
    tmp_path: Path, runs: dict[int, list[AnyLine]], seed: int
) -> None:
    random = Random(seed)
    paths = write_files(tmp_path, runs[seed])
    for path in random.sample(paths, random.randint(1, len(paths))):
        text = path.read_bytes()
        path.write_bytes(text[: random.randrange(len(text))])
    report = check(read(tmp_path))
    dumped = read(tmp_path).end is not None
    assert dumped or Kind.UNREADABLE in report.counts


def test_a_torn_last_line_of_a_killed_worker_is_no_flaw(
    tmp_path: Path, runs: dict[int, list[AnyLine]]
) -> None:
    write_files(tmp_path, runs[2])
    with (tmp_path / "worker-0.jsonl").open("ab") as file:
        file.write(b'{"line":"invoke","process":"wor')
    assert check(read(tmp_path)).valid


def test_a_broken_line_inside_a_file_is_reported(
    tmp_path: Path, runs: dict[int, list[AnyLine]]
) -> None:
    path = write_files(tmp_path, runs[2])[0]
    path.write_bytes(b"\xff{nonsense\n" + path.read_bytes())
    assert check(read(tmp_path)).counts == {Kind.UNREADABLE: 1}


def test_what_is_recorded_is_what_is_read(tmp_path: Path) -> None:
    worker = Recorder(tmp_path, "worker", clock=count(1).__next__)
    worker.write([Plan()])
    published, claimed = worker.invoke(Publish("a", "work")), worker.invoke(Claim("work"))
    worker.result(published, Answer("ok", id=1))
    handed = Claimed(1, "a", 1, 0, 1, 10, 20)
    worker.result(claimed, Answer("ok", claims=(handed,)))
    worker.close()
    history = read(tmp_path)
    (publish,), (claim,) = history.publishes, history.claims
    assert (publish.call, publish.start, publish.end) == (Publish("a", "work"), 1, 3)
    assert (claim.answer.claims, claim.start, claim.end) == ((handed,), 2, 4)


def test_a_process_name_is_used_once(tmp_path: Path) -> None:
    Recorder(tmp_path, "worker").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path, "worker")


def test_a_killed_process_leaves_the_call_it_made(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib\n"
        "from tests.checker import Publish, Recorder\n"
        "Recorder(pathlib.Path(sys.argv[1]), 'producer').invoke(Publish('a', 'work'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    killed = subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": "src"})
    (publish,) = read(tmp_path).publishes
    assert (killed.returncode, publish.call.label) == (-signal.SIGKILL, "a")
    assert publish.answer.outcome == "unknown"


def test_the_command_says_what_is_wrong(
    tmp_path: Path, runs: dict[int, list[AnyLine]], capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(tmp_path, runs[3])
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("VALID\n")
    dump = tmp_path / "final.jsonl"
    dump.write_bytes(dump.read_bytes().replace(b'"completed"', b'"ready"'))
    assert main([str(tmp_path)]) == 1
    assert "stuck" in capsys.readouterr().out
    assert main([str(tmp_path), "--json"]) == 1
    report = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert Kind.STUCK in report.counts
