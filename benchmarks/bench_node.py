"""A simulated node, and the raw side of E6: the same NVML calls in a plain loop, a thread per GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ctypes import byref
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.model.actions import Action, Create, Destroy
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.hardware.nvml.session import NvmlSession
from aliquot.node.connect import Connection, connect
from aliquot.node.hooks import NoHooks
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

Layout = Sequence[tuple[str, int]]
"""Profile names with the memory slice where each starts."""


@contextmanager
def started(template: str, latency: str) -> Iterator[tuple[str, str]]:
    """Start a simulated node, and yield its state directory and name. Stops it at the end."""
    with TemporaryDirectory(prefix="aliquot-bench-") as state_dir:
        name = control.start(state_dir, template, "bench", latency=latency)
        try:
            yield state_dir, name
        finally:
            control.stop(state_dir)


class Node:
    """Both sides on one simulated node: the engine, and the raw loop over a session of its own."""

    def __init__(self, state_dir: str, name: str) -> None:
        self.connection: Connection = connect(name, state_dir=state_dir)
        self.sim = SimClient(state_dir, name)
        self.raw = NvmlSession(control.library(state_dir, name))
        self.log = os.path.join(control.folder(state_dir, name), "calls.jsonl")
        inventory = self.read()
        self.pcis = [g.pci for g in inventory.gpus]
        self.handles = {p: self.raw.nv.nvmlDeviceGetHandleByPciBusId(p) for p in self.pcis}

    def close(self) -> None:
        self.raw.close()
        self.sim.close()
        self.connection.close()

    def read(self) -> Inventory:
        return self.connection.backend.read()

    def enable(self) -> None:
        """Enable MIG mode on all GPUs side by side."""
        side_by_side([partial(self.raw.nv.nvmlDeviceSetMigMode, h, 1) for h in self.handles.values()])

    def plan(self, layouts: dict[str, Layout]) -> Plan:
        """Return the plan for these layouts; other GPUs are not touched."""
        inventory = self.read()
        requests = []
        for pci, layout in layouts.items():
            table = inventory.family(inventory.gpu(pci))
            rows = [(table.by_name[name], start) for name, start in layout]
            items = tuple(DesiredInstance(p.id, p.name, (p.default_compute.id,), start) for p, start in rows)
            requests.append(DesiredGpu(pci=pci, mig=True, instances=items))
        made = plan(inventory, Desired(gpus=tuple(requests), name="bench"))
        assert not made.blocked, made.blockers
        return made

    def apply(self, made: Plan) -> ApplyOutcome:
        """Apply a plan through the engine, as the command does."""
        c = self.connection
        context = ExecutionContext(c.backend, c.host, c.journal, c.clock, c.lock, c.workers, NoHooks())
        outcome = apply(made, context, lambda _: None)
        assert outcome.status == "done", (outcome.status, outcome.error)
        return outcome

    def loop(self, made: Plan) -> None:
        """Make only the write calls of a plan, in a plain loop, a thread per GPU."""
        side_by_side([partial(self._apply_actions, pci, worker) for pci, worker in made.actions_by_gpu.items()])

    def _apply_actions(self, pci: str, actions: Sequence[Action]) -> None:
        nv, device = self.raw.nv, self.handles[pci]
        for action in actions:
            if isinstance(action, Destroy):
                instance = nv.nvmlDeviceGetGpuInstanceById(device, action.instance)
                for ci in action.compute_instances:
                    nv.nvmlComputeInstanceDestroy(nv.nvmlGpuInstanceGetComputeInstanceById(instance, ci))
                nv.nvmlGpuInstanceDestroy(instance)
            elif isinstance(action, Create):
                place = Placement.parse(action.placement)
                where = byref(nv.c_nvmlGpuInstancePlacement_t(place.start, place.size))
                made = nv.nvmlDeviceCreateGpuInstanceWithPlacement(device, action.profile_id, where)
                for part in action.compute:
                    nv.nvmlGpuInstanceCreateComputeInstance(made, part.profile_id)

    def logged(self) -> int:
        """Return the current size of the call log in bytes."""
        return os.path.getsize(self.log)

    def calls_since(self, mark: int) -> tuple[int, int]:
        """Return the number of all calls and of write calls since a mark."""
        with open(self.log, "rb") as file:
            file.seek(mark)
            lines = file.read().splitlines()
        return len(lines), sum(b'"write":true' in line for line in lines)


def side_by_side(jobs: Sequence[Callable[[], Any]]) -> None:
    """Run each job in a thread. Raises the first failure."""
    with ThreadPoolExecutor(max(1, len(jobs))) as pool:
        for waiting in [pool.submit(job) for job in jobs]:
            waiting.result()
