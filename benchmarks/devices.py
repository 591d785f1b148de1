"""E10: the devices agent, from requests in Harvester's objects to GPUs, without the time that hardware takes.

The driver is used in both ways: its library on the host, and its programs in its pod. The figures of the original
(Harvester's pcidevices) are not measured. They follow from its documentation and code, and each names its source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.bench_devices import CHECK_S, Site, site
from benchmarks.bench_process import cpu, memory
from benchmarks.measure import Figure, Report, at_most, digest, load, spread

from aliquot.kubernetes.client.watch import DEFAULT_TIMING

GROUP = "E10 the devices agent"
SIM = "simulated"
NODES = {16: ("a2:vfio", "NVIDIA A2-4Q"), 32: ("l40s:vfio", "NVIDIA L40S-12Q")}
EIGHT = "a2:vfio*8"
CUT = ("a100-sxm4-40gb:mdev", "1g.5gb", 7)
SETUPS = {False: "library on the machine", True: "programs in the driver's pod"}
SEEN_GOAL_S = 30.0
"""The requirement: new virtual functions are listed within this time, hardware included."""
CHANGES_GOAL_MS = 100.0


def run(report: Report, quick: bool) -> None:
    code = digest(msgspec.json.encode([NODES, EIGHT, CUT, CHECK_S]))
    report(load(GROUP))
    report(Figure(GROUP, "input: the nodes, the types, the time between looks", f"sha256 {code}", SIM))
    repeats = 1 if quick else 5
    for count in NODES:
        for pod in SETUPS:
            _walks(report, count, repeats, pod=pod)
    _original(
        report, "VGPUDevices listed after enabling: the next pass of a loop of 30 s", "0 to 30 s, 15 s in the mean"
    )
    for pod in SETUPS:
        _cut(report, repeats, pod=pod)
    _original(
        report,
        "a layout of 7 instances: programs run by exec, one per instance made, four per instance ended, two lists each",
        "9 and 30",
    )
    _idle(report, 2.0 if quick else 120.0)
    _original(report, "an idle hour with 8 GPUs in MIG mode: two lists per GPU every 300 s", "192 programs run by exec")
    _pure(report, 5 if quick else 50)


def _report(report: Report, name: str, values: Sequence[float], goal: float = 0.0) -> None:
    text, verdict = f"{median(values):.2f} s median", at_most(max(values), goal) if goal else "-"
    report(Figure(GROUP, name, text, SIM, f"<= {goal:g} s" if goal else "", verdict, spread(values, ".2f", " s")))


def _original(report: Report, name: str, value: str) -> None:
    report(Figure(GROUP, f"the original, as documented: {name}", value, "quoted"))


def _walks(report: Report, count: int, repeats: int, *, pod: bool) -> None:
    """Measure virtual functions on and off, then vGPUs. The first repeat of each warms up and does not count."""
    template, name = NODES[count]
    way = SETUPS[pod]
    with site(template, pod=pod) as found:
        found.start()
        pci = found.pcis[0]
        turns = [
            (found.functions(pci, count, on=True), found.functions(pci, count, on=False)) for _ in range(repeats + 1)
        ]
        found.functions(pci, count, on=True)
        function = found.status("sriovgpudevices", pci)["vfAddresses"][0]
        made = [(*found.vgpu(function, name), found.no_vgpu(function)) for _ in range(repeats + 1)]
    head = f"SRIOVGPUDevice enabled until {count} VGPUDevices are listed and it is Ready, {way}"
    _report(report, head, [on for on, _ in turns[1:]], SEEN_GOAL_S)
    _report(report, f"and disabled until they are gone, {count}, {way}", [off for _, off in turns[1:]])
    _report(
        report,
        f"VGPUDevice enabled until vGPUConfigured, {count} siblings, {way}",
        [reported for reported, _, _ in made[1:]],
    )
    _report(report, f"until kubelet can give it away, {count} siblings, {way}", [offered for _, offered, _ in made[1:]])
    _report(report, f"VGPUDevice disabled until reported, {count} siblings, {way}", [gone for _, _, gone in made[1:]])


def _cut(report: Report, repeats: int, *, pod: bool) -> None:
    """Measure creating and destroying a MIG layout, and count the programs that this takes."""
    template, profile, count = CUT
    times: list[tuple[float, float]] = []
    commands: list[tuple[int, int]] = []
    with site(template, pod=pod) as found:
        found.start()
        pci = found.pcis[0]
        found.functions(pci, 16, on=True)
        found.until(lambda: found.one("migconfigurations", pci), "the MigConfiguration")
        for _ in range(repeats + 1):
            before = found.commands.total()
            made = found.layout(pci, profile, count)
            between = found.commands.total()
            times.append((made, found.no_layout(pci)))
            commands.append((between - before, found.commands.total() - between))
    _report(report, f"MigConfiguration of {count} x {profile} until synced, {SETUPS[pod]}", [on for on, _ in times[1:]])
    _report(report, f"and disabled until disabled, {SETUPS[pod]}", [off for _, off in times[1:]])
    if pod:
        value = f"{median(a for a, _ in commands[1:]):g} and {median(b for _, b in commands[1:]):g}"
        report(Figure(GROUP, f"programs run in the pod for {count} instances made, and ended", value, SIM))


def _idle(report: Report, seconds: float) -> None:
    """Measure both ways side by side without requests, each with 8 GPUs, 128 virtual functions and 8 vGPUs."""
    with ExitStack() as stack:
        sites = {pod: stack.enter_context(site(EIGHT, pod=pod)) for pod in SETUPS}
        for found in sites.values():
            _fill(found)
        time.sleep(min(seconds, CHECK_S + 10))
        before = {pod: _meter(found) for pod, found in sites.items()}
        time.sleep(seconds)
        for pod, found in sites.items():
            after, mem = _meter(found), memory(found.pid)
            _idle_lines(report, SETUPS[pod], before[pod], after, seconds)
            text = f"{mem.rss:.1f} MiB resident, {mem.own:.1f} its own"
            report(Figure(GROUP, f"memory, 8 GPUs x 16 functions, {SETUPS[pod]}", text, SIM))


class Meter(msgspec.Struct, frozen=True):
    """The resources that one agent has used so far. ``requests`` are without exec, which ``commands`` counts."""

    cpu: float
    writes: int
    requests: int
    watches: int
    commands: int
    calls: int


def _meter(found: Site) -> Meter:
    requests = found.requests
    return Meter(
        cpu=cpu(found.pid),
        writes=found.writes,
        requests=sum(n for name, n in requests.items() if "exec" not in name),
        watches=sum(n for name, n in requests.items() if name.startswith("watch ")),
        commands=found.commands.total(),
        calls=found.calls,
    )


def _fill(found: Site) -> None:
    found.start()
    for pci in found.pcis:
        found.functions(pci, 16, on=True)
        found.vgpu(found.status("sriovgpudevices", pci)["vfAddresses"][0], "NVIDIA A2-4Q")


def _idle_lines(report: Report, way: str, before: Meter, after: Meter, seconds: float) -> None:
    writes, minute = after.writes - before.writes, 60 / seconds
    name = f"8 GPUs x 16 functions idle: API writes in {seconds:.0f} s, {way}"
    report(Figure(GROUP, name, f"{writes}", SIM, "0", at_most(writes, 0)))
    mean = (DEFAULT_TIMING.shortest_s + DEFAULT_TIMING.longest_s) / 2
    asked = (after.requests - before.requests - (after.watches - before.watches)) * minute
    text = f"{asked:.1f} API requests, {after.watches} watches opened again every {mean:.0f} s"
    text += f", {(after.commands - before.commands) * minute:.1f} programs in the pod"
    text += f", {(after.calls - before.calls) * minute:.0f} calls of the driver at the node"
    report(Figure(GROUP, f"an idle minute, 8 GPUs x 16 functions, {way}", text, SIM, spread=f"over {seconds:.0f} s"))
    spent = (after.cpu - before.cpu) * minute
    report(Figure(GROUP, f"CPU of an idle minute, 8 GPUs x 16 functions, {way}", f"{spent:.2f} s", SIM))


def _pure(report: Report, repeats: int) -> None:
    """Measure only the decisions of a reconcile cycle, one that finds nothing to do and one that finds no objects."""
    from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import intents
    from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects
    from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
    from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One

    with TemporaryDirectory(prefix="aliquot-bench-") as folder:
        one = One(EIGHT, Path(folder)).settle()
        for name in list(one.store.of("SRIOVGPUDevice")):
            one.store.patch("SRIOVGPUDevice", name, {"spec": {"enabled": True}})
        one.settle()
        view, objects = one.view(), one.store.typed()
        assert len(objects.vgpus) == 128
        assert changes(view, objects, one.results) == ()
        cases: dict[str, Callable[[], object]] = {
            "changes() where all is true": lambda: changes(view, objects, one.results),
            "changes() before any object exists": lambda: changes(view, Objects(), {}),
            "intents()": lambda: intents(view, objects),
        }
        for name, act in cases.items():
            took = [_spent(act) * 1e3 for _ in range(repeats)]
            goal, extent = f"<= {CHANGES_GOAL_MS:g} ms", spread(took, ".1f", " ms")
            head, value = f"{name}, 8 GPUs x 16 functions", f"{median(took):.1f} ms CPU, median"
            report(Figure(GROUP, head, value, "measured", goal, at_most(median(took), CHANGES_GOAL_MS), extent))


def _spent(act: Callable[[], object]) -> float:
    """Return the CPU seconds of one call."""
    began = time.process_time()
    act()
    return time.process_time() - began
