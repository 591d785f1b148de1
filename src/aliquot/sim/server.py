"""The simulator's server: one daemon per state directory, which owns the state of all its nodes.

``$STATE/sim/NAME/`` holds a node: its state (``store``, saved after every step and before the answer), the call log
``calls.jsonl``, the socket ``nvml.sock`` and the library. If the server is killed, the next use starts it again and it
continues with the same state. It ends when its directory is gone or its last node is stopped, and at SIGTERM, SIGINT
and SIGHUP.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
import shutil
import signal
import socket
import struct
import sys
import threading
import time
from functools import partial
from io import FileIO

import msgspec

from aliquot.errors import AliquotError, UsageError
from aliquot.foundation import atomic_file, signals
from aliquot.foundation.lock import open_private
from aliquot.sim import template
from aliquot.sim.change_feed import ChangeFeed
from aliquot.sim.listener import Acceptor, bind, hung_up, last_sequence_number, open_for_append
from aliquot.sim.node import SimEnvironment, SimNode
from aliquot.sim.protocol import NodeLink
from aliquot.sim.session import CallerGoneError
from aliquot.sim.shim_build import DRIVER
from aliquot.sim.state import NodeState
from aliquot.sim.store import Store
from aliquot.sim.template import names_for
from aliquot.sim.tools import api as tools

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
POLL_S = 0.5
"""Seconds between checks whether the server's directory still exists."""
FINISH_S = 5.0
"""Seconds that the server waits at its end for answers in progress."""


class HostedNode:
    """A node with its files and its listening socket."""

    def __init__(self, directory: str, store: Store, state: NodeState, changes: ChangeFeed, acceptor: Acceptor) -> None:
        self.directory = directory
        self._changes = changes
        self._acceptor = acceptor
        log_path = os.path.join(directory, "calls.jsonl")
        seq = last_sequence_number(log_path)
        self._log = FileIO(open_for_append(log_path), "a")  # closed after the last call that may still write to it
        self._store = store
        self._sriov: bool | None = None
        self._branch: int | None = None
        environment = SimEnvironment(time.monotonic, time.sleep, self._kill, self._save, self._append)
        self.node = SimNode(state, environment, seq)
        self._connections: set[socket.socket] = set()
        self._save(state)
        self.listener = bind(directory, "nvml.sock")
        # Containers mount this directory and have their own users; on the host the parent directory keeps other users
        # out.
        os.chmod(directory, 0o755)
        os.chmod(os.path.join(directory, "nvml.sock"), 0o666)
        acceptor.register(self.listener, partial(self._serve, self.node))

    def _save(self, state: NodeState) -> None:
        """Save the state, and provide the driver's programs and library for its current kind."""
        self._store.save(state)
        self._changes.touch(state.name)
        sriov = any(gpu.host for gpu in state.gpus)
        if sriov != self._sriov:
            self._sriov = sriov
            tools.provide(self.directory, sriov=sriov)
        if state.driver_major != self._branch:
            self._branch = state.driver_major
            atomic_file.replace(os.path.join(self.directory, DRIVER), str(self._branch).encode(), durable=False)

    def _append(self, line: str) -> None:
        self._log.write(line.encode())

    def _kill(self, pid: int) -> None:
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)

    def _serve(self, node: SimNode, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        pid, uid, _gid = struct.unpack("3i", raw)
        link = NodeLink(node, pid, uid in (0, os.getuid()), lambda: hung_up(connection))
        self._connections.add(connection)
        try:
            converse(connection, link)
        finally:
            self._connections.discard(connection)
            link.close()
            connection.close()

    def stop(self) -> None:
        """Close the sockets. The files are closed with the last call, so nothing here may keep a reference to this
        object.
        """
        self.node.files = None
        del self.node
        self._acceptor.unregister(self.listener)
        for thing in (self.listener, *self._connections):
            try:
                thing.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # it ended by itself
        self.listener.close()


def converse(connection: socket.socket, link: NodeLink) -> None:
    """Answer lines until the other side disconnects."""
    rest = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except ConnectionError:
            return
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                answer = link.answer(line.decode("utf-8", "replace"))
                connection.sendall(answer.encode() + b"\n")
            except (CallerGoneError, ConnectionError):
                return


class SimServer:
    """All nodes of one state directory, and the socket that starts and stops them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.hosts: dict[str, HostedNode] = {}
        self.lock = threading.Lock()
        self.changes = ChangeFeed()
        self.acceptor = Acceptor()
        self.answering: set[socket.socket] = set()
        self.had_nodes = False
        self.ending = False
        self.stopping = threading.Event()
        for name in sorted(os.listdir(root)):
            directory = os.path.join(root, name)
            if not os.path.exists(os.path.join(directory, "calls.jsonl")):
                continue
            store = Store(directory)
            if store.state is not None:
                self.hosts[name] = HostedNode(directory, store, store.state, self.changes, self.acceptor)
                self.had_nodes = True
        self.listener = bind(root, "control.sock")

    def answer(self, line: bytes) -> dict[str, object]:
        """Answer one request of ``control``: start, stop, names, changes or ping."""
        request = msgspec.json.decode(line, type=dict[str, str | None])
        if request.get("do") == "changes":
            return self._changed(request)
        with self.lock:
            if self.ending:
                raise ConnectionAbortedError("this server is shutting down; try again")
            match request.get("do"):
                case "start":
                    return {"names": self._start(request)}
                case "stop":
                    return {"stopped": self._stop(request.get("name"))}
                case "names":
                    return {"names": sorted(self.hosts)}
                case _:
                    return {"pid": os.getpid()}

    def _changed(self, request: dict[str, str | None]) -> dict[str, object]:
        """Return the changes since an earlier answer, as soon as there are any. Other requests are
        answered meanwhile.
        """
        batch = self.changes.wait(request.get("since") or "", float(request.get("wait") or 0))
        with self.lock:
            if self.ending:
                raise ConnectionAbortedError("this server is shutting down; try again")
            names = sorted(self.hosts) if batch.resync or batch.membership else None
            changed = sorted(self.hosts) if batch.resync else [n for n in batch.nodes if n in self.hosts]
        return {"since": batch.since, "changed": changed, "names": names}

    def _start(self, request: dict[str, str | None]) -> list[str]:
        template_text = request.get("template") or ""
        plain = re.sub(r"[^a-z0-9]+", "-", template_text.partition("@")[0]).strip("-")[:48] or "node"
        names = names_for(request.get("name"), plain, request.get("count"), self.hosts)
        latency, driver = request.get("latency") or "none", request.get("driver")
        for name in names:
            if not NAME.fullmatch(name):
                raise UsageError(f"{name!r} is not a node name (lower case letters, digits, - and .)")
            if name in self.hosts:
                raise UsageError(f"a simulated node {name!r} exists already", next_step=f"aliquot sim stop {name}")
        # Build all states first: an invalid template must not leave some nodes.
        states = [template.build(name, template_text, self._boot(name), driver, latency) for name in names]
        for name, state in zip(names, states, strict=True):
            directory = os.path.join(self.root, name)
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self.hosts[name] = HostedNode(directory, Store(directory), state, self.changes, self.acceptor)
        self.had_nodes = True
        self.changes.touch_membership()
        return names

    def _boot(self, name: str) -> str:
        return template.name_uuid(f"{name}/{time.time_ns()}/{os.getpid()}")

    def _stop(self, name: str | None) -> list[str]:
        stopped = [n for n in self.hosts if name is None or n == name]
        for one in stopped:
            self.hosts.pop(one).stop()
            shutil.rmtree(os.path.join(self.root, one), ignore_errors=True)
        self.changes.touch_membership()
        return stopped

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rwb") as stream:
            for line in stream:
                self.answering.add(connection)
                try:
                    reply = self.answer(line)
                    stream.write(msgspec.json.encode(reply) + b"\n")
                except ConnectionAbortedError:
                    return
                except AliquotError as error:
                    failure = {"error": error.brief, "details": list(error.details), "next": error.next_step}
                    stream.write(msgspec.json.encode(failure) + b"\n")
                finally:
                    stream.flush()
                    self.answering.discard(connection)

    def finish(self) -> None:
        """Wait until the client that stopped the last node has its answer."""
        deadline = time.monotonic() + FINISH_S
        while self.answering and time.monotonic() < deadline:
            time.sleep(0.005)

    def watch(self) -> None:
        """Return when the server should end."""
        identity = os.stat(self.root).st_ino
        while not self.stopping.wait(POLL_S):
            try:
                if os.stat(self.root).st_ino != identity:
                    return
            except FileNotFoundError:
                return
            with self.lock:
                for name in [n for n in self.hosts if not os.path.isdir(os.path.join(self.root, n))]:
                    self.hosts.pop(name).stop()
                    self.changes.touch_membership()
                if self.had_nodes and not self.hosts:
                    self._refuse()
                    return
        with self.lock:
            self._refuse()

    def _refuse(self) -> None:
        """Stop answering requests, so that the next server does. Requests that wait for changes are woken."""
        self.ending = True
        self.listener.close()
        self.changes.touch_membership()


def main(root: str, ready: int) -> None:
    """Serve ``root`` until the server should end. Write to ``ready`` once requests are answered."""
    lock = open_private(os.path.join(root, "server.run"))
    if not _owns(lock):
        return  # another server has this directory
    os.chdir("/")
    sys.setswitchinterval(0.0005)
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))  # a node keeps four files open
    _leave_command(root)
    server = SimServer(root)
    threading.Thread(target=server.accept, daemon=True).start()
    if ready >= 0:
        os.write(ready, b"1")
        os.close(ready)
    with signals.stop_on_signal(server.stopping.set):
        server.watch()
        server.finish()
        os._exit(0)


def _owns(lock: int) -> bool:
    """Take the directory; a previous server that is ending gets time to finish."""
    for _ in range(250):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


def _leave_command(root: str) -> None:
    """Write the command that starts this server, for a client of the library that finds it killed."""
    path = os.environ.get("PYTHONPATH", "")
    words = (f"PYTHONPATH={path}", sys.executable, "-m", "aliquot.sim.server", root, "-1")
    atomic_file.replace(os.path.join(root, "server.argv"), ("\n".join(words) + "\n").encode(), durable=False)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)  # detached: no process has to wait for the server
    main(sys.argv[1], int(sys.argv[2]))
