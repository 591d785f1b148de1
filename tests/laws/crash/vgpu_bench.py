"""Simulated hosts of virtual machines: a machine of the crash bench with vGPUs, one of which a virtual machine has."""

from __future__ import annotations

from typing import Any, NamedTuple

from laws.crash.bench import KILLED, Bench, Case, Geometry, Machine, Result

PCI = "0000:01:00.0"


class World(NamedTuple):
    """A kernel world: a node, what is on it before (the first of these gets a virtual machine, if ``held``), and what
    is asked.
    """

    name: str
    template: str
    before: str
    wish: str
    held: bool = True


MDEV = World("mdevs of the GPU", "tesla-t4:mdev", "T4-4Q*2", "{T4-4Q: 1, T4-4C: 3}")
SRIOV = World("mdevs of virtual functions", "a2:mdev", "A2-4Q*2", "{A2-4Q: 1, A2-4C: 3}")
VENDOR = World("vendor-specific VFIO", "l40s:vfio", "L40S-8Q*2", "{L40S-8Q: 1, L40S-8A: 4}")
OFF = World("virtual functions off", "a2:mdev", "", "{A2-2Q: 5}", held=False)
BACKED = World("MIG-backed", "h100-80gb-hbm3:vfio", "", "{H100XM-1-10C: 3}", held=False)
ALL = (MDEV, SRIOV, VENDOR, OFF, BACKED)


class Host(Machine):
    """The machine in its former state, and what its virtual machine must keep."""

    def __init__(self, bench: Bench, world: World, name: str) -> None:
        super().__init__(
            bench,
            Case(world.name, world.template, lambda node: [], f"    - {{gpus: all, vgpu: {world.wish}}}", 0),
            name,
        )
        self.world = world
        if world.before:
            found = self.run("apply", "--gpu", "0", "--vgpu", world.before)
            assert found.code == 0, found
        self.mine: set[tuple[Any, ...]] = set()
        if world.held:
            vgpu = self.vgpus()[0]
            self.started = self.run("sim", "vm", "start", "win10", vgpu["uuid"] if vgpu["uuid"] else vgpu["function"])
            assert self.started.code == 0, self.started
            self.mine = {_key(vgpu)}
        self.former, self.holders, self.offset = self.geometry(), self.processes(), len(super().writes())

    def vgpus(self) -> list[dict[str, Any]]:
        """The vGPUs of the one GPU, by the simulator's own account."""
        found: list[dict[str, Any]] = self.node.show()["gpus"][0]["vgpus"]
        return found

    def geometry(self) -> Geometry:
        """Instances, and virtual functions, modes and vGPUs beside them."""
        found = super().geometry()
        for gpu in self.node.show()["gpus"]:
            found.append((gpu["pci"], gpu["functions"], gpu["mixed"] or False, gpu["driver"]))
            found += sorted(_key(v) for v in gpu["vgpus"])
        return found

    def processes(self) -> list[tuple[Any, ...]]:
        """Who is on which instance, and which virtual machines run."""
        machines = [(vm["name"], vm["pid"]) for vm in self.node.show()["vms"]]
        return [*super().processes(), *machines]

    def writes(self) -> list[dict[str, Any]]:
        """What changed something since the former state was reached."""
        return super().writes()[getattr(self, "offset", 0) :]

    def assert_untouched(self) -> None:
        """The virtual machine runs and has its vGPU, which no write reached."""
        super().assert_untouched()
        assert self.mine <= {_key(v) for v in self.vgpus()}
        for call in self.writes():
            for function, _, uuid in self.mine:
                path, value = call.get("path") or "", call.get("value") or ""
                assert not (uuid and uuid in path), call
                assert not (function in path and path.endswith("current_vgpu_type")), call
                assert not (call["call"] == "SriovManage" and value), call

    def killed(self, found: Result) -> bool:
        """Whether the kill met aliquot itself. Where it met the program that aliquot ran (sriov-manage), aliquot lived
        on, and went back.
        """
        if found.code == KILLED:
            return True
        assert (found.code, found.document["status"]) == (40, "undone"), found
        self.assert_former()
        return False


def _key(vgpu: dict[str, Any]) -> tuple[Any, ...]:
    return vgpu["function"], vgpu["type_id"], vgpu["uuid"] or ""


class Hosts:
    """Fresh machines of one bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def machine(self, world: World) -> Host:
        made = Host(self.bench, world, f"h{len(self.bench.machines):03}")
        self.bench.machines.append(made)
        return made


_counts: dict[str, int] = {}


def calls(hosts: Hosts, world: World) -> int:
    """How many writes the way takes, from a run without faults."""
    if world.name not in _counts:
        machine = hosts.machine(world)
        found = machine.apply()
        assert found.code == 0, found
        machine.assert_finished()
        _counts[world.name] = len(machine.writes())
    return _counts[world.name]
