"""E11: the controller's webhooks and capacity pages, over TLS, in a cluster of 1,000 virtual machines.

The controller is the real process; the API server that it watches is the suite's stand-in, in this process. Reviews are
posted as the API server posts them, over one connection that stays open. A write waits for the answer, so the slowest
of a hundred counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import quantiles

import msgspec
from benchmarks import bench_machines as made
from benchmarks.bench_machines import RESOURCE, TYPE, ApiUser, addresses, machine, review, site
from benchmarks.bench_process import cpu, memory
from benchmarks.measure import Figure, Report, at_most, clock, digest, load

from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.manifests import webhooks

GROUP = "E11 admission and capacity"
MEASURED = "measured"
GOAL_MS = 250.0
"""Too short to be noticed in a write; the API server itself would wait ten seconds."""
_HARVESTER, _KUBEVIRT = "devices.harvesterhci.io", "kubevirt.io"


def run(report: Report, quick: bool) -> None:
    repeats = 5 if quick else 300
    code = digest(*(msgspec.json.encode(each) for _, each in made.objects()))
    text = (
        f"{made.NODES} nodes, {made.MACHINES:,} machines with a vGPU each, {sum(1 for _ in made.objects()):,} objects"
    )
    report(load(GROUP))
    report(Figure(GROUP, f"input: {text}", f"sha256 {code}", MEASURED))
    with site() as found:
        began = time.perf_counter()
        pid = found.start()
        report(Figure(GROUP, "process start until it answers", f"{time.perf_counter() - began:.2f} s", MEASURED))
        client = found.user()
        _line(report, "an empty page, for comparison", _timed(repeats, lambda: client.ask("/healthz")))
        _reviews(report, client, repeats)
        _in_use(report, client, found.listed, max(3, repeats // 10))
        _pages(report, client, repeats)
        time.sleep(2)
        before = cpu(pid)
        time.sleep(2 if quick else 30)
        spent = (cpu(pid) - before) * 60 / (2 if quick else 30)
        report(Figure(GROUP, "CPU of an idle minute", f"{spent:.2f} s", MEASURED))
        mem = memory(pid)
        report(Figure(GROUP, "memory", f"{mem.rss:.1f} MiB resident, {mem.own:.1f} its own", MEASURED))
        client.close()


def _timed(repeats: int, act: Callable[[], object]) -> list[float]:
    """Return milliseconds per call; the first three calls warm up."""
    return [clock(act) * 1e3 for _ in range(repeats + 3)][3:]


def _line(report: Report, name: str, values: Sequence[float], goal: float = 0.0, more: str = "") -> None:
    cuts = quantiles(values, n=100, method="inclusive")
    value = f"p50 {cuts[49]:.1f} ms, p99 {cuts[98]:.1f} ms"
    verdict, limit = (at_most(cuts[98], goal), f"p99 <= {goal:g} ms") if goal else ("-", "")
    report(Figure(GROUP, name, value, MEASURED, limit, verdict, f"max {max(values):.1f} ms, n={len(values)}{more}"))


def _verdict(user: ApiUser, path: str, body: bytes, *, allowed: bool) -> None:
    response = msgspec.json.decode(user.ask(path, body))["response"]
    assert response["allowed"] is allowed, response


def _reviews(report: Report, user: ApiUser, repeats: int) -> None:
    """Measure the reviews that are answered from the watches' cache."""
    one, many = machine("new", RESOURCE), machine("crowd", *[RESOURCE] * (made.CARDS * made.MOST))
    unknown = machine("odd", "nvidia.com/NVIDIA_A2-99Q")
    new = review("virtualmachines", _KUBEVIRT, None, one)
    cases = {
        "a machine with a vGPU is created, devices filled in": (webhooks.MUTATE_MACHINES, new, True),
        "a machine with a vGPU is created, let in": (webhooks.VALIDATE_MACHINES, new, True),
        "a machine with an unknown resource, refused": (
            webhooks.VALIDATE_MACHINES,
            review("virtualmachines", _KUBEVIRT, None, unknown),
            False,
        ),
        "a machine with 12 vGPUs, of which no node has so many left, refused": (
            webhooks.VALIDATE_MACHINES,
            review("virtualmachines", _KUBEVIRT, None, many),
            False,
        ),
        "a VGPUDevice is enabled, let through": (webhooks.VALIDATE_DEVICES, _enabled(made.LAST, made.CARDS - 1), True),
        "a VGPUDevice is enabled on a card that is full, refused": (
            webhooks.VALIDATE_DEVICES,
            _enabled("node-050", 0),
            False,
        ),
    }
    for name, (path, body, allowed) in cases.items():

        def ask(path: str = path, body: bytes = body, allowed: bool = allowed) -> None:
            _verdict(user, path, body, allowed=allowed)

        _line(report, name, _timed(repeats, ask), GOAL_MS)


def _enabled(node: str, index: int) -> bytes:
    """Return the review of a request for a vGPU on a free virtual function."""
    pf, functions = addresses(index)
    free = made.vgpu(node, functions[9], pf, enabled=False, uid="")
    on = free | {"spec": free["spec"] | {"enabled": True, "vGPUTypeName": TYPE}}
    return review("vgpudevices", _HARVESTER, free, on)


def _in_use(report: Report, user: ApiUser, listed: Callable[[], None], repeats: int) -> None:
    """Measure the review of a removed device, which is allowed only after the VMs were read from the API server."""
    pf, functions = addresses(0)
    free = made.vgpu("node-050", functions[9], pf, enabled=True, uid="5b5b7326-6bb8-48cb-a321-8fa58ccbb38c")
    used = made.vgpu("node-050", functions[0], pf, enabled=True, uid="5b5b7326-6bb8-48cb-a321-8fa58ccbb38c")
    assert functions[0] in used["spec"]["address"]
    assert object_name("node-050", functions[0]) == used["metadata"]["name"]
    for name, each, allowed in (("no VM uses, let through", free, True), ("a machine uses, refused", used, False)):
        off = each | {"spec": each["spec"] | {"enabled": False, "vGPUTypeName": ""}}
        body = review("vgpudevices", _HARVESTER, each, off)

        def ask(body: bytes = body, allowed: bool = allowed) -> None:
            _verdict(user, webhooks.VALIDATE_DEVICES, body, allowed=allowed)

        _line(report, f"a VGPUDevice is disabled that {name}", _timed(repeats, ask), 0 if allowed else GOAL_MS)
    name = "of which: the stand-in lists 1,000 machines and instances"
    _line(report, name, _timed(repeats, listed))


def _pages(report: Report, user: ApiUser, repeats: int) -> None:
    pages = {
        "/v1/capacity, the whole cluster": "/v1/capacity",
        "/v1/capacity/fit for 20 machines": f"/v1/capacity/fit?resource={RESOURCE}&count=1&machines=20",
        "/v1/harvester/cluster/local?link=deviceCapacity": "/v1/harvester/cluster/local?link=deviceCapacity",
    }
    for name, path in pages.items():
        size = len(user.ask(path))
        _line(report, name, _timed(repeats, lambda path=path: user.ask(path)), GOAL_MS, f", {size:,} bytes")  # type: ignore[misc]
