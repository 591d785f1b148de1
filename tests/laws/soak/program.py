"""A program of Aliquot in a fresh interpreter, and a client that requests its pages over one connection."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from laws.soak.growth import environment
from support.processes import until
from support.standin.control import Control

PATIENCE_S = 60.0
PAUSE_S, OPENING_S = 0.02, 1.0


class Program:
    """A context in which ``python -m MODULE WORDS...`` runs. Its output is in ``log``."""

    def __init__(self, log: Path, *words: str, module: str = "aliquot", env: Mapping[str, str] | None = None) -> None:
        self._log = log
        with open(log, "wb") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *words],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {}), **environment(log.parent)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        self.pid = self._process.pid

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def until(self, true: Callable[[], object], what: str) -> None:
        """Wait until a condition holds. Raises AssertionError, with the last lines of the log, if it does not."""

        def holds() -> object:
            assert self._process.poll() is None, f"it ended while waiting for {what}\n{self.log[-3000:]}"
            return true()

        until(holds, lambda: f"{what}\n{self.log[-3000:]}", PATIENCE_S, pause_s=PAUSE_S)

    def messages(self, pattern: str) -> str:
        """Wait for a line that matches, and return its first group."""
        found: list[str] = []

        def there() -> bool:
            found.extend(re.findall(pattern, self.log))
            return bool(found)

        self.until(there, pattern)
        return found[0]


class Pages:
    """Pages of one server over one connection, which is opened again if the server has closed it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self.headers: dict[str, str] = {}

    def get(self, path: str) -> str:
        """Return the text of a page. Raises AssertionError if the server failed. A "not ready" answer is accepted."""
        for again in (True, False):
            try:
                self._connection.request("GET", path, headers=self.headers)
                answer = self._connection.getresponse()
                text = answer.read().decode()
                break
            except (http.client.HTTPException, ConnectionError):
                self._connection.close()
                if not again:
                    raise
        assert answer.status < 500 or (answer.status == 503 and path == "/readyz"), (
            f"{path}: {answer.status} {text[:500]}"
        )
        return text

    def stream(self, path: str) -> None:
        """Read the beginning of a page that does not end, over a separate connection."""
        connection = http.client.HTTPConnection(self._connection.host, self._connection.port, timeout=PATIENCE_S)
        with closing(connection):
            connection.request("GET", path, headers=self.headers)
            with connection.getresponse() as answer:
                assert answer.status == 200, answer.read()
                assert answer.readline()

    def close(self) -> None:
        self._connection.close()


class Watches:
    """The watches that a program has open on the stand-in. Waits until the program opens no further one."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._open = 0
        end = time.monotonic() + PATIENCE_S
        while not self._open or self._open != control.streams:
            assert time.monotonic() < end, "its watches are not all open"
            self._open = control.streams
            time.sleep(OPENING_S)

    def again(self) -> None:
        """End all watches, and wait until they are open again: after many breaks a program waits up to 30 s before it
        opens one. Raises AssertionError if one stays closed.
        """
        self._control.drop()
        end = time.monotonic() + PATIENCE_S
        while self._control.streams < self._open:
            assert time.monotonic() < end, f"{self._control.streams} of {self._open} watches are open"
            time.sleep(PAUSE_S)
