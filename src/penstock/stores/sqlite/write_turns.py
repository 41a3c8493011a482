"""Gives processes fair turns to write; a stopped process cannot keep its turn forever."""

import fcntl
import os
import threading


class WriteTurns:
    """An advisory lock on a file beside the database.

    Without it one process can starve another. It only orders writers: SQLite's own lock keeps
    writes apart, so writing without a turn is slow, never wrong.
    """

    def __init__(self, path: str, patience: float = 0.25) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.patience = patience
        self.mutex = threading.Lock()
        self.granted = threading.Event()
        self.waiter: threading.Thread | None = None
        self.abandoned = False

    def enter(self) -> bool:
        """Returns True with the lock; False after `patience`, or at once while it is stuck."""
        with self.mutex:
            if self.waiter is not None:
                return False
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait()
        return True

    def leave(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        # A thread still blocked in flock keeps the file open until the holder releases it.
        with self.mutex:
            if self.waiter is None:
                os.close(self.file)

    def _wait(self) -> bool:
        """Waits in a thread, because flock has no timeout."""
        self.granted.clear()
        self.abandoned = False
        self.waiter = threading.Thread(target=self._block, name="penstock-gate", daemon=True)
        self.waiter.start()
        self.granted.wait(self.patience)
        with self.mutex:
            if self.granted.is_set():
                self.waiter = None
                return True
            self.abandoned = True
            return False

    def _block(self) -> None:
        fcntl.flock(self.file, fcntl.LOCK_EX)
        with self.mutex:
            if self.abandoned:
                fcntl.flock(self.file, fcntl.LOCK_UN)
                self.waiter = None
            else:
                self.granted.set()
