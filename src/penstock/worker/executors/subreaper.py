"""Runs one command and kills its whole process tree on request, or when the worker dies.

Started as `python -I -S subreaper.py STATUS_FD COMMAND...` for every run, so it must import
nothing of penstock, and as little as it can. Its standard input is a pipe from the worker; when
that closes, it kills the command.
"""

import ctypes
import os
import select
import sys
from time import monotonic

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TERM, KILL, PIPE, XFSZ = 15, 9, 13, 25
# Seconds between SIGTERM and SIGKILL.
TERMINATE_GRACE_S = 1.0
POLL_INTERVAL_S = 1.0


def main() -> None:
    status, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(status, False)
    libc = ctypes.CDLL(None)
    # Orphans of the command become children of this process.
    set_process_option(libc, PR_SET_CHILD_SUBREAPER, 1)
    pid = os.fork()
    if pid == 0:
        exec_command(command, status, libc)
    code = wait(pid)
    end_tree(pid)
    if code is not None:
        os.write(status, f"exit {code}".encode() if code >= 0 else f"signal {-code}".encode())


def set_process_option(libc: ctypes.CDLL, what: int, value: int) -> None:
    if hasattr(libc, "prctl"):
        libc.prctl(what, value, 0, 0, 0)


def exec_command(command: "list[str]", status: int, libc: ctypes.CDLL) -> None:
    """Executes the command in its own session, without input. It dies with this process."""
    try:
        os.setsid()
        set_process_option(libc, PR_SET_PDEATHSIG, KILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Python ignores these signals, and the command would inherit that.
        for number in (PIPE, XFSZ):
            libc.signal(number, None)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(status, f"cannot {error.strerror}: {command[0]}\n".encode())
    finally:
        os._exit(127)


def wait(pid: int) -> "int | None":
    """Returns the exit code, or None if the worker closed the pipe first."""
    bells = watch(pid)
    while (code := reap(pid)) is None:
        ready, _, _ = select.select(
            [0, *bells], [], [], POLL_INTERVAL_S if bells else POLL_INTERVAL_S / 50
        )
        if 0 in ready and not os.read(0, 1024):
            end_politely(pid, bells)
            return None
    return code


def watch(pid: int) -> "list[int]":
    """Returns a pidfd that becomes readable when the command ends, if supported."""
    try:
        return [os.pidfd_open(pid)]
    except (AttributeError, OSError):
        return []


def reap(pid: int) -> "int | None":
    """Returns the exit code if the command has ended. Reaps its orphans as well."""
    while True:
        ended, status = os.waitpid(-1, os.WNOHANG)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)
        if not ended:
            return None


def end_politely(pid: int, bells: "list[int]") -> None:
    send(pid, TERM, group=True)
    until = monotonic() + TERMINATE_GRACE_S
    while reap(pid) is None and (left := until - monotonic()) > 0:
        select.select(bells, [], [], left if bells else POLL_INTERVAL_S / 50)


def end_tree(pid: int) -> None:
    """Kills until no process is left: a child may fork while its siblings are killed."""
    if not os.path.exists(children_file()):
        send(pid, KILL, group=True)
    while pids := list_children():
        for each in pids:
            send(each, KILL, group=False)
            send(each, KILL, group=True)
        for each in pids:
            try:
                os.waitpid(each, 0)
            except ChildProcessError:
                continue


def children_file() -> str:
    return f"/proc/{os.getpid()}/task/{os.getpid()}/children"


def list_children() -> "list[int]":
    try:
        with open(children_file(), encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def send(pid: int, number: int, *, group: bool) -> None:
    try:
        (os.killpg if group else os.kill)(pid, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main()
