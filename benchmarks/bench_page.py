"""A fleet of simulated nodes with instances, the real ``aliquot dashboard`` over it, and its clients."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, RemoteDisconnected
from tempfile import TemporaryDirectory
from urllib.parse import quote, urlsplit

import msgspec

from aliquot.foundation.paths import simulated_nodes
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

TEMPLATE = "dgx-h100"
GPUS = 8
FULL = ("1g.10gb",) * 7
LAYOUTS: tuple[tuple[str, ...], ...] = (FULL, ("3g.40gb", "3g.40gb"), ("3g.40gb", "2g.20gb", "1g.10gb"), ())
"""The layouts of the GPUs, in turn; the first node has seven instances on each."""
PATIENCE_S = 180.0


class Event(msgspec.Struct, frozen=True):
    """A server-sent event: when its last byte came (seconds of wall time), and its bytes."""

    at: float
    name: str
    size: int


class Client:
    """A client that is logged in, over one connection that stays open."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self._address = parts.netloc
        self._connection = HTTPConnection(self._address, timeout=PATIENCE_S)
        self._connection.request("GET", f"{parts.path}?{parts.query}")
        answer = self._connection.getresponse()
        answer.read()
        self.cookie = (answer.getheader("set-cookie") or "").partition(";")[0]

    def get(self, path: str) -> tuple[int, bytes]:
        """Request a page. Opens the connection again if the server closed it after half a minute without requests."""
        for last in (False, True):
            try:
                self._connection.request("GET", path, headers={"cookie": self.cookie, "accept": "text/html"})
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                if last:
                    raise
                self._connection.close()
        raise AssertionError("unreachable")

    @contextmanager
    def watching(self, page: str, body: bytes) -> Iterator[Watcher]:
        """Open the event stream of a page. ``body`` is the page as it was drawn."""
        at = body.partition(b'data-at="')[2].partition(b'"')[0].decode()
        connection = HTTPConnection(self._address, timeout=PATIENCE_S)
        path = f"/live?page={quote(page, safe='')}&at={at}"
        connection.request("GET", path, headers={"cookie": self.cookie, "accept": "text/event-stream"})
        watcher = Watcher(connection)
        try:
            yield watcher
        finally:
            watcher.close()

    def close(self) -> None:
        self._connection.close()


class Watcher:
    """A reader of a page's event stream."""

    def __init__(self, connection: HTTPConnection) -> None:
        self._answer = connection.getresponse()
        assert self._answer.status == 200, self._answer.status
        self._socket: socket.socket = connection.sock
        self.events: list[Event] = []
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self) -> None:
        name, size = "", 0
        try:
            while line := self._answer.readline():
                size += len(line)
                if line.startswith(b"event: "):
                    name = line[7:].strip().decode()
                elif line == b"\n":
                    with self._news:
                        self.events.append(Event(time.time(), name, size))
                        self._news.notify_all()
                    size = 0
        except (OSError, ValueError, AttributeError):
            return  # closed from our side

    def next(self, since: int) -> Event:
        """Return the first push after ``since`` events. Raises TimeoutError."""
        deadline = time.monotonic() + PATIENCE_S
        with self._news:
            while True:
                for event in self.events[since:]:
                    if event.name in ("parts", "page"):
                        return event
                if not self._news.wait(deadline - time.monotonic()):
                    raise TimeoutError("nothing was pushed")

    def settle(self, quiet_s: float = 1.5) -> None:
        """Wait for the first event, and then until nothing was pushed for ``quiet_s``."""
        while not self.events or time.time() - self.events[-1].at < quiet_s:
            time.sleep(0.05)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)


class Dashboard:
    """The page's process over a state directory; ``close`` ends it."""

    def __init__(self, state_dir: str) -> None:
        command = [sys.executable, "-m", "aliquot", "dashboard", "--fleet", "--listen", "127.0.0.1:0"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ALIQUOT_") or k == "ALIQUOT_CACHE_DIR"}
        environment = {**kept, "ALIQUOT_STATE_DIR": state_dir, "PYTHONUNBUFFERED": "1"}
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.link = self._process.stdout.readline().strip()
        self.url = "/".join(self.link.split("/")[:3])
        self.pid = self._process.pid

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Environment(msgspec.Struct, frozen=True):
    """The processes to measure. ``server`` is the pid of the simulator's process."""

    state: str
    page: Dashboard
    client: Client
    server: int

    @property
    def names(self) -> list[str]:
        return control.names(self.state)


@contextmanager
def fleet(count: int) -> Iterator[tuple[str, float]]:
    """Yield a state directory with ``count`` partitioned nodes, half of them held, and the time of ``sim start``."""
    with TemporaryDirectory(prefix="aliquot-bench-") as state:
        try:
            began = time.perf_counter()
            words = ["sim", "start", TEMPLATE, "--count", str(count), "--name", "gpu"]
            environment = {**os.environ, "ALIQUOT_STATE_DIR": state}
            subprocess.run([sys.executable, "-m", "aliquot", *words], env=environment, check=True, capture_output=True)
            took = time.perf_counter() - began
            for n, name in enumerate(control.names(state)):
                _cut(SimClient(state, name), n)
            yield state, took
        finally:
            control.stop(state)


def _cut(node: SimClient, n: int) -> None:
    for gpu in range(GPUS):
        node.set_mode(gpu, True)
        layout = FULL if n == 0 else LAYOUTS[(n + gpu) % len(LAYOUTS)]
        made = [node.create(gpu, profile) for profile in layout]
        for each in made[::2]:
            node.hold(gpu, each)
    node.close()


def simulator(state_dir: str) -> int:
    """Return the pid of the process that runs all simulated nodes of a state directory."""
    folder = os.open(simulated_nodes(state_dir), os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.connect(f"/proc/self/fd/{folder}/control.sock")
            reported = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid: int = struct.unpack("3i", reported)[0]
            return pid
    finally:
        os.close(folder)
