"""E15: claims of Dynamic Resource Allocation on one node, and what a large cluster writes for them.

The agent is the real process on a simulated node, kubelet's side is real gRPC, and the API server is the suite's
stand-in. The echo answers the same bytes by the same gRPC stack. The last part has no processes: it publishes every
node of a cluster by the agent's model.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.bench_process import Memory, memory
from benchmarks.claims_node import ClaimNode, echo
from benchmarks.measure import Figure, Report, at_most, clock, load, ratio, spread

from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.writes import plan_writes
from support.agents import Agent
from support.cluster import StandinCluster
from support.deployed import AGENT, CLAIMS
from support.drafleet import FleetNode
from support.factory import inventory

GROUP = "E15 claims"
ECHO_GOAL = 2.0
PARALLEL_GOAL = 1.2
MEMORY_GOAL_MIB = 6.0
IDLE_S = 120.0
WAVE = 100
"""Claims of a wave, on the 56 smallest placements of eight GPUs: half of them at a time."""


def run(report: Report, quick: bool) -> None:
    report(load(GROUP))
    with _claim_node("dgx-a100", "none") as node:
        _memory(report, node)
        _round_trips(report, node, 50 if quick else 1000)
        _waves(report, node, 1 if quick else 15)
        busy = _memory_of(node.agent)
        report(Figure(GROUP, "memory of the claim agent after these claims", str(busy), "simulated"))
        _idle(report, node, 1.0 if quick else IDLE_S)
    with _claim_node("dgx-a100", "measured") as node:
        _eight_gpus(report, node, 1 if quick else 5)
    _cluster(report, 20 if quick else 1250)


@contextmanager
def _claim_node(template: str, latency: str) -> Iterator[ClaimNode]:
    with TemporaryDirectory(prefix="aliquot-bench-") as name:
        folder = Path(name)
        with closing(StandinCluster(folder)) as cluster:
            agent = Agent(cluster, folder, "gpu-node", template, latency=latency, manifest=CLAIMS)
            with closing(agent):
                for gpu in range(8):
                    agent.sim.set_mode(gpu, True)
                with ClaimNode(agent, folder) as node:
                    yield node


def _round_trips(report: Report, node: ClaimNode, calls: int) -> None:
    """Compare what needs no hardware with an echo.

    The agent asks a simulated node for the boot's id over a socket, where it reads a file of a host. That question is
    measured beside it, and taken off for the ratio.
    """
    claim = node.allocate("echoed", 0, 0)
    request, answer = node.prepare_bytes(claim)
    node.settle()
    base: list[float] = []
    ours: list[float] = []
    boot: list[float] = []
    with echo(answer, request) as ask, asyncio.Runner() as runner:
        for _ in range(calls):
            base.append(ask())
            ours.append(node.timed_prepare(claim))
            boot.append(clock(lambda: runner.run(asyncio.to_thread(node.host.boot))))
    _line(report, f"echo of {len(request)} and {len(answer)} bytes by the same gRPC stack", base)
    _line(report, "Prepare of a claim that is prepared", ours)
    _line(report, "... of this the question for the boot's id, which the simulator answers", boot)
    share = (median(ours) - median(boot)) / median(base)
    goal, verdict = f"<= {ECHO_GOAL:g}x", at_most(share, ECHO_GOAL)
    report(Figure(GROUP, "Prepare without hardware: p50 to the echo's", f"{share:.2f}x", "measured", goal, verdict))
    warm: list[float] = []
    for _ in range(max(5, calls // 20)):
        node.unprepare(claim)
        warm.append(node.timed_prepare(claim))
    _line(report, "Prepare of a new claim on a warm instance, which reads all simulated GPUs", warm)
    node.unprepare(claim)


def _waves(report: Report, node: ClaimNode, waves: int) -> None:
    failures, began = 0, time.perf_counter()
    for wave in range(waves):
        for half in range(2):
            claims = [node.allocate(f"w{wave}-{half}-{n}", n // 7, n % 7) for n in range(WAVE // 2)]
            failures += sum(1 for error in node.prepare_all(claims) if error)
            failures += sum(1 for claim in claims if node.unprepare(claim))
            for claim in claims:
                node.delete(claim)
    took = time.perf_counter() - began
    name = f"{waves} x {WAVE} claims on 8 GPUs, {WAVE // 2} at a time: failures"
    text = f"in {took:.0f} s with the API server's part"
    report(Figure(GROUP, name, str(failures), "simulated", "0", at_most(failures, 0), text))


def _idle(report: Report, node: ClaimNode, seconds: float) -> None:
    node.settle()
    cluster = node.agent.cluster
    before = cluster.revision
    time.sleep(seconds)
    writes = (cluster.revision or 0) - (before or 0)
    report(Figure(GROUP, f"idle: API writes in {seconds:g} s", str(writes), "simulated", "0", at_most(writes, 0)))


def _memory(report: Report, node: ClaimNode) -> None:
    """Compare with the label agent when neither has done anything yet, in one cluster."""
    node.settle()
    claims = _memory_of(node.agent)
    with TemporaryDirectory(prefix="aliquot-bench-") as name:
        label = Agent(node.agent.cluster, Path(name), "label-node", "dgx-a100", manifest=AGENT)
        with closing(label):
            label.start()
            label.until(lambda: label.labels().get("nvidia.com/mig.capable"), "the labels", 60)
            node.settle()
            other = _memory_of(label)
    more = claims.own - other.own
    goal, verdict = f"<= {MEMORY_GOAL_MIB:g} MiB", at_most(more, MEMORY_GOAL_MIB)
    report(Figure(GROUP, "memory of an idle claim agent, 8 GPUs", str(claims), "simulated"))
    report(Figure(GROUP, "memory of an idle label agent, 8 GPUs", str(other), "simulated"))
    report(Figure(GROUP, "memory of its own above the label agent's", f"{more:.1f} MiB", "simulated", goal, verdict))


def _memory_of(agent: Agent) -> Memory:
    assert agent.process is not None
    return memory(agent.process.pid)


def _eight_gpus(report: Report, node: ClaimNode, repeats: int) -> None:
    """Prepare a claim on each GPU: one after the other, and all by one call. Each creates an instance."""
    slowest, together = [], []
    for n in range(repeats):
        alone = [node.allocate(f"alone-{n}-{gpu}", gpu, 0) for gpu in range(8)]
        slowest.append(max(node.timed_prepare(claim) for claim in alone))
        node.clear(alone)
        claims = [node.allocate(f"all-{n}-{gpu}", gpu, 0) for gpu in range(8)]
        began = time.perf_counter()
        failed = [error for error in node.prepare_all(claims, together=True) if error]
        together.append(time.perf_counter() - began)
        assert not failed, failed
        node.clear(claims)
    share, pairs = ratio(together, slowest)
    name = "8 claims on 8 GPUs by one call, each with a new instance, to the slowest alone"
    goal, verdict = f"<= {PARALLEL_GOAL:g}x", at_most(share, PARALLEL_GOAL)
    report(Figure(GROUP, name, f"{share:.2f}x", "simulated", goal, verdict, spread(pairs, ".2f", "x")))
    report(Figure(GROUP, "... in seconds", f"{median(together):.2f} s", "simulated", spread=spread(together, ".2f")))


def _cluster(report: Report, nodes: int) -> None:
    """Publish a cluster, then allocate one device of each node, as the agents would write it."""
    naming, now = DriverNaming(NVIDIA_DRIVER), datetime.now(UTC)
    gpus = inventory("h100-80gb-sxm*8", enabled=True)
    fleet = [FleetNode(f"n{number:04d}", gpus, naming) for number in range(nodes)]
    for what, allocated in (("publish all", ()), ("one more claim on each", ("gpu-0-mig-1g10gb-19-0",))):
        writes = size = 0
        began = time.process_time()
        for node in fleet:
            before = _slices(node)
            node.publish(allocated, now)
            planned = plan_writes(before, _slices(node), node.name)
            writes += planned.count
            size += sum(len(msgspec.json.encode(each)) for each in (*planned.create, *planned.update))
        spent = time.process_time() - began
        name = f"{nodes:,} nodes x 8 H100, {what}: slices written, their bytes, CPU of all agents together"
        value = f"{writes:,}, {size / 2**20:.1f} MiB, {spent:.1f} s"
        per_node = f"{writes / nodes:.1f}, {size / nodes / 1024:.1f} KiB and {spent / nodes * 1e3:.1f} ms a node"
        report(Figure(GROUP, name, value, "simulated", spread=per_node))


def _slices(node: FleetNode) -> list[ResourceSlice]:
    return msgspec.convert(node.published, list[ResourceSlice])


def _line(report: Report, name: str, values: Sequence[float]) -> None:
    cuts = quantiles(values, n=100)
    text = f"p50 {cuts[49] * 1e3:.2f} ms, p99 {cuts[98] * 1e3:.2f} ms"
    report(Figure(GROUP, name, text, "measured", spread=f"max {max(values) * 1e3:.2f} ms, n={len(values)}"))
