"""A gate for a session that several threads use and that one of them sometimes needs closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition


class SessionGate:
    """The guard of a shared session. ``close`` and ``reopen`` are called while no thread uses it."""

    def __init__(self, close: Callable[[], None], reopen: Callable[[], None]) -> None:
        self._close = close
        self._reopen = reopen
        self._changed = Condition()
        self._users = 0
        self._suspensions = 0
        self._open = True

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keep the session open in this context; waits while another thread has it suspended."""
        with self._changed:
            while self._suspensions:
                self._changed.wait()
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Close the session in this context, once no other thread is inside ``use``. Suspensions may overlap."""
        with self._changed:
            self._suspensions += 1
            while self._users:
                self._changed.wait()
            if self._open:
                self._open = False
                self._close()
        try:
            yield
        finally:
            with self._changed:
                self._suspensions -= 1
                try:
                    if not self._suspensions:
                        self._open = True
                        self._reopen()
                finally:
                    self._changed.notify_all()
