"""A private server that is one process: started by us, it says when it is ready."""

import signal
import subprocess
from abc import abstractmethod

from tests.servers.processes import at_work_in, end
from tests.servers.server import Server, Unavailable

# How often a server that starts is asked whether it has.
POLL_INTERVAL_S, WAIT_LIMIT_S = 0.02, 150.0


class Spawned(Server):
    process: "subprocess.Popen[bytes]"
    # What its log says then.
    ready: str

    @abstractmethod
    def command(self) -> list[str]: ...

    def start(self) -> None:
        before, command = self.log.count(self.ready), self.command()
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=self.data, stdout=log, stderr=log, start_new_session=True,
                user=self.user, group=self.user,
                extra_groups=None if self.user is None else [],
            )  # fmt: skip
        for _ in range(int(WAIT_LIMIT_S / POLL_INTERVAL_S)):
            if self.log.count(self.ready) > before:
                return
            try:
                self.process.wait(POLL_INTERVAL_S)
            except subprocess.TimeoutExpired:
                continue
            break
        raise Unavailable(f"{command[0]} did not start: {self.log[-2_000:]}")

    def ensure_running(self) -> None:
        """Starts a server that crashed once more: its crash fails one test, not all that follow."""
        if self.process.poll() is not None:
            self.start()

    def stop(self) -> None:
        assert end(signal.SIGTERM, at_work_in(self.data)), "the server does not stop"
        self.process.wait()

    def kill(self) -> None:
        super().kill()
        self.process.wait()
