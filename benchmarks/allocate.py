"""E9: Allocate over a real unix socket, against an echo of the same bytes over one.

The plugin runs in a process of its own, as the agent does. The client is Google's gRPC library, so that both sides are
those of a real node except for the kubelet's language. Own time is the time of a call above the echo.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from statistics import quantiles
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory

from benchmarks.measure import Figure, Report, at_most, clock, digest, load

from aliquot.kubernetes.device_plugin.endpoint import socket_name
from aliquot.kubernetes.device_plugin.manager import DevicePlugins
from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.gpu.device_resources import DeviceResource, ResourceDevice, ResourceOffer

GROUP = "E9 Allocate"
GOAL_MS = 5.0
LINES = 64
NAME = "nvidia.com/mig-1g.10gb"
DEVICES = tuple(
    ResourceDevice(
        f"MIG-{n:08x}-0000-4000-8000-000000000000", f"0000:{n // 7:02x}:00.0", (), f"{n // 7}:{n % 7}", n // 28
    )
    for n in range(56)
)
"""Eight GPUs of seven devices each."""


def run(report: Report, quick: bool) -> None:
    calls = 100 if quick else 1000
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=[DEVICES[9].id])])
    body = request.SerializeToString()
    report(load(GROUP))
    report(
        Figure(GROUP, f"input: {calls} calls for one of {len(DEVICES)} devices", f"sha256 {digest(body)}", "measured")
    )
    with TemporaryDirectory(prefix="aliquot-bench-") as folder, _plugin(folder) as pid:
        path = os.path.join(folder, socket_name(NAME))
        answer = len(_once(path, body))
        with _echo(os.path.join(folder, "echo.sock"), len(body), answer) as echo:
            raw = _sequential(calls, echo)
        _line(report, f"echo of {len(body)} and {answer} bytes, one after the other", raw)
        with _client(path) as ask:
            start, _ = _usage(pid)
            beside: list[float] = []
            ours = _sequential(calls, lambda: ask(body))
            wall = clock(lambda: beside.extend(_parallel(calls, lambda: ask(body))))
            cpu, memory = _usage(pid)
        _line(report, "Allocate, one after the other", ours)
        own = [max(0.0, t - _middle(raw)) for t in ours]
        _line(report, "Allocate, one after the other: own time", own, GOAL_MS)
        _line(report, f"Allocate, {LINES} at once: until answered, {LINES - 1} waiting beside it", beside)
        rate = f"{(calls + LINES) / wall:.0f} per second"
        report(
            Figure(
                GROUP, f"Allocate, {LINES} at once: answered (client and plugin share the machine)", rate, "measured"
            )
        )
        each = (cpu - start) / (2 * calls + LINES + 20) * 1e3
        report(
            Figure(
                GROUP,
                "plugin's CPU per call",
                f"{each:.2f} ms",
                "measured",
                f"<= {GOAL_MS:g} ms",
                at_most(each, GOAL_MS),
            )
        )
        report(Figure(GROUP, "plugin's memory (Python and gRPC only)", f"{memory:.1f} MiB", "measured"))


def _line(report: Report, name: str, values: list[float], goal: float | None = None) -> None:
    cuts = quantiles(values, n=100)
    p50, p99, most = cuts[49] * 1e3, cuts[98] * 1e3, max(values) * 1e3
    verdict = "-" if goal is None else at_most(p99, goal)
    text = f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"
    limit = "" if goal is None else f"p99 <= {goal:g} ms"
    report(Figure(GROUP, name, text, "measured", limit, verdict, f"max {most:.2f} ms, n={len(values)}"))


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _sequential(calls: int, act: Callable[[], object]) -> list[float]:
    for _ in range(20):
        act()
    return [clock(act) for _ in range(calls)]


def _parallel(calls: int, act: Callable[[], object]) -> list[float]:
    with ThreadPoolExecutor(LINES) as pool:
        list(pool.map(lambda _: act(), range(LINES)))
        return list(pool.map(lambda _: clock(act), range(calls)))


@contextmanager
def _client(path: str) -> Iterator[Callable[[bytes], bytes]]:
    import grpc

    with closing(grpc.insecure_channel(f"unix:{path}", options=[("grpc.default_authority", "localhost")])) as channel:
        yield channel.unary_unary("/v1beta1.DevicePlugin/Allocate")


def _once(path: str, body: bytes) -> bytes:
    with _client(path) as ask:
        return ask(body)


@contextmanager
def _echo(path: str, asked: int, answered: int) -> Iterator[Callable[[], object]]:
    """Run a server that reads ``asked`` bytes and writes ``answered``; each call is one round trip."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        with suppress(OSError):
            line, _ = listener.accept()
            while line.recv(asked, socket.MSG_WAITALL):
                line.sendall(b"a" * answered)

    threading.Thread(target=serve, daemon=True).start()
    line = socket.socket(socket.AF_UNIX)
    line.connect(path)

    def act() -> None:
        line.sendall(b"q" * asked)
        line.recv(answered, socket.MSG_WAITALL)

    yield act
    line.close()
    listener.close()


@contextmanager
def _plugin(folder: str) -> Iterator[int]:
    """Run the plugin in a process of its own, and yield its pid."""
    with Popen(
        [sys.executable, "-c", f"from benchmarks.allocate import serve; serve({folder!r})"],
        stdout=PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.terminate()


def serve(folder: str) -> None:
    """Serve the devices below a folder until killed."""

    async def forever() -> None:
        plugins = DevicePlugins(folder)
        await plugins.publish(ResourceOffer((DeviceResource(NAME, DEVICES),)))
        print("ready", flush=True)
        await asyncio.Event().wait()

    asyncio.run(forever())


def _usage(pid: int) -> tuple[float, float]:
    """Return CPU seconds and resident MiB of a process."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(words[11]) + int(words[12])) / ticks, int(words[21]) * os.sysconf("SC_PAGESIZE") / 2**20
