"""Starting and stopping simulated nodes, and connecting to their server. ``SimClient`` (see ``client``) acts on one."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

import msgspec

from aliquot.errors import AliquotError, BlockedError, StorageError, UsageError
from aliquot.foundation.driver_calls import DriverCall
from aliquot.foundation.paths import simulated_nodes, unsafe_reason

LATENCIES = ("none", "measured")
WRITE_CALLS = frozenset(
    {
        *("DeviceSetMigMode", "DeviceCreateGpuInstance", "DeviceCreateGpuInstanceWithPlacement", "GpuInstanceDestroy"),
        *("GpuInstanceCreateComputeInstance", "GpuInstanceCreateComputeInstanceWithPlacement"),
        *("ComputeInstanceDestroy", "DeviceSetPersistenceMode", "DeviceReset"),
        *("DeviceSetVgpuHeterogeneousMode", "DeviceSetVgpuSchedulerState", "GpuInstanceSetVgpuHeterogeneousMode"),
        "GpuInstanceSetVgpuSchedulerState",
        *("SysfsWrite", "SriovManage"),
    }
)
"""Names in the call log of calls that change something; their records also have ``"write": true``. ``SysfsWrite`` is a
write to a kernel file (with ``path`` and ``value``; ``rc`` is an errno). ``SriovManage`` is NVIDIA's program.
"""

_START_S = 20.0


def folder(state_dir: str, name: str) -> str:
    """Return the directory with a node's state, call log, socket and library."""
    return os.path.join(simulated_nodes(state_dir), name)


def start(
    state_dir: str, template: str, name: str | None = None, latency: str = "none", driver: str | None = None
) -> str:
    """Start a simulated node and return its name. Raises UsageError for a wrong template or a name that is taken."""
    return start_many(state_dir, template, None, name, latency, driver)[0]


def start_many(
    state_dir: str,
    template: str,
    count: int | None,
    name: str | None = None,
    latency: str = "none",
    driver: str | None = None,
) -> list[str]:
    """Start ``count`` identical nodes in one request, named ``NAME-0001`` and so on; without a ``count`` one node with
    exactly that name. Raises as ``start``, and for an invalid count; then none is started.
    """
    if latency not in LATENCIES:
        raise UsageError(f"no latency model {latency!r}", details=(f"there are: {', '.join(LATENCIES)}",))
    many = None if count is None else str(count)
    request = {"do": "start", "template": template, "name": name, "latency": latency, "driver": driver, "count": many}
    return list(_field(_request(state_dir, request), "names"))


def stop(state_dir: str, name: str | None = None) -> list[str]:
    """Stop one node, or all, and delete its state. Raises UsageError if no node has that name."""
    known = names(state_dir)
    if name is not None and name not in known:
        raise unknown_node(state_dir, name)
    if not known:
        return []
    return list(_request(state_dir, {"do": "stop", "name": name})["stopped"])


def names(state_dir: str) -> list[str]:
    """Return the nodes of a state directory, read from disk without a server. Raises StorageError."""
    base = simulated_nodes(state_dir)
    if not os.path.isdir(base):
        return []
    try:
        found = os.listdir(base)
    except OSError as error:
        raise StorageError(f"cannot read {base}: {error.strerror or error}", next_step=f"ls -ld {base}") from error
    return sorted(n for n in found if os.path.exists(os.path.join(base, n, "calls.jsonl")))


def node_exists(state_dir: str, name: str) -> bool:
    """Return whether a state directory has that node, read from disk."""
    return name not in ("", ".", "..") and os.path.exists(os.path.join(folder(state_dir, name), "calls.jsonl"))


def library(state_dir: str, name: str) -> str:
    """Return the path of that node's libnvidia-ml.so.1, which is compiled on demand. Starts the node's server if none
    runs. Raises AliquotError without a C compiler, StorageError for a directory in which another user could replace the
    library.
    """
    from aliquot.sim.shim_build import provide
    from aliquot.sim.state_directory import require_own

    if name not in names(state_dir):
        raise unknown_node(state_dir, name)
    require_own(simulated_nodes(state_dir), folder(state_dir, name))
    return provide(simulated_nodes(state_dir), name)


def ensure_server(state_dir: str) -> None:
    """Ensure that the server runs."""
    _request(state_dir, {"do": "ping"})


class ChangedNodes(NamedTuple):
    """The nodes that changed since an earlier answer."""

    since: str
    """The cursor for the next request."""
    changed: tuple[str, ...]
    names: tuple[str, ...] | None
    """All nodes; None if that list has not changed."""


def changes(state_dir: str, since: str, wait_s: float) -> ChangedNodes | None:
    """Return the changes since ``since``, as soon as there are any or after at most ``wait_s`` seconds, in one request
    for all nodes. None if there are no nodes; then no server is started. Raises as every request does.
    """
    if not names(state_dir):
        return None
    reply = _request(state_dir, {"do": "changes", "since": since, "wait": str(wait_s)})
    all_names = _field(reply, "names")
    return ChangedNodes(reply["since"], tuple(reply["changed"]), None if all_names is None else tuple(all_names))


def connect(directory: str, name: str) -> LineConnection:
    """Connect to a socket in a directory. The path goes through /proc, because a socket path is
    limited to 107 bytes.
    """
    import socket

    folder = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{name}")
        return LineConnection(connection.detach())
    finally:
        connection.close()
        os.close(folder)


class LineConnection:
    """Requests and answers over one connection, one line each. Owns its file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""

    def request(self, line: str) -> str:
        """Send a request and return the answer. Raises ConnectionError if the server is gone: BrokenPipeError if it did
        not get the request.
        """
        request = line.encode() + b"\n"
        with DriverCall("a request to the simulator"):
            while request:
                request = request[os.write(self._fd, request) :]
            while b"\n" not in self._rest:
                chunk = os.read(self._fd, 65536)
                if not chunk:
                    raise ConnectionResetError("the simulator closed the connection")
                self._rest += chunk
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer.decode()

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def request_text(request: dict[str, Any]) -> str:
    """Return a request as one line. Raises UsageError for invalid text."""
    try:
        return msgspec.json.encode(request).decode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{error.object!a} is not text", next_step="aliquot sim --help") from error


def _request(state_dir: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send one request to the server, which is started if necessary. Raises UsageError with the server's error."""
    text = request_text(request)
    nodes = simulated_nodes(state_dir)
    for _attempt in range(3):
        try:
            if reason := unsafe_reason(nodes):
                raise _unusable(nodes, reason)
            connection = connect(nodes, "control.sock")
            try:
                reply = msgspec.json.decode(connection.request(text), type=dict[str, Any])
            finally:
                connection.close()
        except (FileNotFoundError, NotADirectoryError, ConnectionError):
            _spawn(nodes)
            continue
        except PermissionError as error:
            raise _unusable(nodes, error.strerror or str(error)) from error
        if "error" in reply:
            raise UsageError(reply["error"], details=tuple(reply["details"]), next_step=reply["next"])
        return reply
    details = (f"state directory: {nodes}", f"its last log line: {_last_log_line(nodes)}")
    raise AliquotError("the simulator's server does not start", details=details)


def _unusable(base: str, reason: str) -> StorageError:
    from aliquot.sim.state_directory import unusable

    return unusable(base, reason)


def _field(reply: dict[str, Any], name: str) -> Any:
    """Return a field of an answer. Raises BlockedError if a running server of an earlier version does not send it."""
    if name not in reply:
        raise BlockedError(
            "the running simulator server belongs to another version of Aliquot",
            code="OTHER_VERSION",
            next_step="aliquot sim stop --all",
        )
    return reply[name]


def _last_log_line(base: str) -> str:
    try:
        with open(os.path.join(base, "server.log"), encoding="utf-8", errors="replace") as log:
            return (log.read().strip().splitlines() or ["none"])[-1]
    except OSError:
        return "none"


def _spawn(base: str) -> None:
    """Start the server as a daemon, unless another process has just done so. Return when it answers or has failed."""
    from aliquot.sim.state_directory import locked

    with locked(base):
        try:
            connect(base, "control.sock").close()
            return
        except (FileNotFoundError, ConnectionError):
            pass  # no server runs: start one
        readable, writable = os.pipe()
        child = launch(base, writable, os.path.join(base, "server.log"))
        os.close(writable)
        try:
            os.waitpid(child, 0)
            _wait_ready(readable)
        finally:
            os.close(readable)


def launch(base: str, ready: int, log: str) -> int:
    """Start the program that detaches the server. Return its pid. The server writes to ``ready`` when it answers
    requests.
    """
    package_root = os.path.dirname(os.path.dirname(sys.modules["aliquot"].__path__[0] + "/x"))
    path = os.pathsep.join(p for p in (package_root, os.environ.get("PYTHONPATH", "")) if p)
    words = [sys.executable, "-m", "aliquot.sim.server", base, str(ready)]
    from aliquot.foundation import bounded_process  # most commands start no server

    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        return bounded_process.start(words, output, env={**os.environ, "PYTHONPATH": path}, inherited=(ready,))
    finally:
        os.close(output)


def _wait_ready(pipe: int) -> None:
    from aliquot.foundation.descriptor_wait import wait_readable

    if wait_readable(pipe, _START_S):
        os.read(pipe, 1)


class NoSimulatedNodeError(BlockedError):
    """A simulated node of that name does not exist."""

    code = "NO_SUCH_NODE"


def unknown_node(state_dir: str, name: str) -> NoSimulatedNodeError:
    """Return the error for a node that does not exist."""
    known = names(state_dir)
    more = f" and {len(known) - 10} more" if len(known) > 10 else ""
    details = [f"there are: {', '.join(known[:10])}{more}" if known else "no node exists"]
    if os.environ.get("ALIQUOT_SIM") == name:
        details.append("ALIQUOT_SIM names it: 'unset ALIQUOT_SIM' returns to the GPUs of this host")
    following = "aliquot sim list" if known else "aliquot sim start dgx-a100"
    return NoSimulatedNodeError(f"no simulated node {name!r}", details=tuple(details), next_step=following)
