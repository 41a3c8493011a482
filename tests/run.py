"""Runs the tests, and each failing test again, alone. One that then passes is flaky."""

import subprocess
import sys

import pytest

from tests.extent import ALL

# More failures than this are a broken build, not flakiness.
MAX_RERUNS = 20
# The profile for builds draws the same examples every time: a run fails for a change, not by luck.
PROFILE = [] if ALL else ["--hypothesis-profile", "ci"]


class Failures:
    """Collects failed tests, including those of xdist workers."""

    def __init__(self) -> None:
        self.tests: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.tests[report.nodeid] = None


def main(arguments: list[str]) -> int:
    failures = Failures()
    code = int(pytest.main([*PROFILE, *arguments], plugins=[failures]))
    failed = list(failures.tests)
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failed) <= MAX_RERUNS:
        return code
    print(f"\n{len(failed)} failed: running each once more, alone", flush=True)
    broken = [test for test in failed if not passes_alone(test)]
    for test in failed:
        print(f"{'FAILED' if test in broken else 'FLAKY'} {test}")
    flaky = len(failed) - len(broken)
    print(f"{flaky} flaky, {len(broken)} failed twice", flush=True)
    return int(bool(broken))


def passes_alone(test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", test]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
