"""The demo shows every step, and leaves nothing behind."""

import os
import tempfile

from tests.cli.terminal import Terminal


def test_every_step_of_the_demo_succeeds(terminal: Terminal) -> None:
    # Not below the test's own directory: a socket's path must be short.
    with tempfile.TemporaryDirectory() as folder:
        said = terminal.run("demo", "--json", TMPDIR=folder)
        assert [step["step"] for step in said.lines] == list(range(1, 18))
        assert said.err == ""
        assert os.listdir(folder) == []
