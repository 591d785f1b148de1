"""Simulated hosts of VMs: a host of the crash bench with vGPUs, one of which a VM holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from laws.crash.bench import KILLED, Bench, Case, Geometry, Machine, Result

PCI = "0000:01:00.0"


class Environment(NamedTuple):
    """A vGPU framework: a node, its initial vGPUs (a VM holds the first of these if ``held``), and the request."""

    name: str
    template: str
    before: str
    desired_state: str
    held: bool = True


MDEV = Environment("mdevs of the GPU", "tesla-t4:mdev", "T4-4Q*2", "{T4-4Q: 1, T4-4C: 3}")
SRIOV = Environment("mdevs of virtual functions", "a2:mdev", "A2-4Q*2", "{A2-4Q: 1, A2-4C: 3}")
VENDOR = Environment("vendor-specific VFIO", "l40s:vfio", "L40S-8Q*2", "{L40S-8Q: 1, L40S-8A: 4}")
OFF = Environment("virtual functions off", "a2:mdev", "", "{A2-2Q: 5}", held=False)
BACKED = Environment("MIG-backed", "h100-80gb-hbm3:vfio", "", "{H100XM-1-10C: 3}", held=False)
SCHEDULED = Environment(
    "another scheduler", "a2:mdev", "A2-4Q*2", "{A2-4Q: 2}, scheduler: 'fixed-share,2ms'", held=False
)
MIXED = Environment(
    "mixed sizes in a GPU instance",
    "rtx-pro-6000-blackwell-server-edition:vfio",
    "",
    "{DC-1-12Q: 1, DC-1-6Q: 2}, mixed-size: true",
    held=False,
)
SCHEDULED_INSIDE = Environment(
    "another scheduler of GPU instances",
    "rtx-pro-6000-blackwell-server-edition:vfio",
    "DC-1-12Q*2",
    "{DC-1-12Q: 4}, scheduler: 'equal-share,2ms'",
    held=False,
)
ALL = (MDEV, SRIOV, VENDOR, OFF, BACKED, SCHEDULED, MIXED, SCHEDULED_INSIDE)


class Host(Machine):
    """The host in its initial state, and what its VM must keep."""

    def __init__(self, bench: Bench, environment: Environment, name: str) -> None:
        super().__init__(
            bench,
            Case(
                environment.name,
                environment.template,
                lambda node: [],
                f"    - {{gpus: all, vgpu: {environment.desired_state}}}",
                0,
            ),
            name,
        )
        self.environment = environment
        if environment.before:
            found = self.run("apply", "--gpu", "0", "--vgpu", environment.before)
            assert found.code == 0, found
        self.mine: set[tuple[Any, ...]] = set()
        if environment.held:
            vgpu = self.vgpus()[0]
            self.started = self.run("sim", "vm", "start", "win10", vgpu["uuid"] if vgpu["uuid"] else vgpu["function"])
            assert self.started.code == 0, self.started
            self.mine = {_key(vgpu)}
        self.previous, self.holders, self.offset = self.geometry(), self.processes(), len(super().writes())

    def vgpus(self) -> list[dict[str, Any]]:
        """Return the simulator's own record of the vGPUs of the one GPU."""
        found: list[dict[str, Any]] = self.node.show()["gpus"][0]["vgpus"]
        return found

    def geometry(self) -> Geometry:
        """Return the instances, and the virtual functions, modes and vGPUs."""
        found = super().geometry()
        for gpu in self.node.show()["gpus"]:
            modes = gpu["mixed"] or False, tuple(gpu["scheduler"])
            found.append((gpu["pci"], gpu["functions"], *modes, gpu["driver"]))
            found += sorted((i["id"], i.get("mixed", False), tuple(i["scheduler"] or ())) for i in gpu["instances"])
            found += sorted(_key(v) for v in gpu["vgpus"])
        return found

    def processes(self) -> list[tuple[Any, ...]]:
        """Return the processes on each instance, and the running VMs."""
        machines = [(vm["name"], vm["pid"]) for vm in self.node.show()["vms"]]
        return [*super().processes(), *machines]

    def writes(self) -> list[dict[str, Any]]:
        """Return the writes since the initial state was reached."""
        return super().writes()[getattr(self, "offset", 0) :]

    def assert_untouched(self) -> None:
        """Assert that the VM runs and has its vGPU, which no write reached."""
        super().assert_untouched()
        assert self.mine <= {_key(v) for v in self.vgpus()}
        for call in self.writes():
            for function, _, uuid in self.mine:
                path, value = call.get("path") or "", call.get("value") or ""
                assert not (uuid and uuid in path), call
                assert not (function in path and path.endswith("current_vgpu_type")), call
                assert not (call["call"] == "SriovManage" and value), call

    def killed(self, found: Result) -> bool:
        """Report whether the kill hit aliquot itself. If it hit the program that aliquot ran (sriov-manage), aliquot
        survived and rolled back.
        """
        if found.code == KILLED:
            return True
        assert (found.code, found.document["status"]) == (40, "undone"), found
        self.assert_previous()
        return False


def _key(vgpu: dict[str, Any]) -> tuple[Any, ...]:
    return vgpu["function"], vgpu["type_id"], vgpu["uuid"] or ""


class Hosts:
    """New hosts of one bench."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def machine(self, environment: Environment) -> Host:
        made = Host(self.bench, environment, f"h{len(self.bench.machines):03}")
        self.bench.machines.append(made)
        return made


_counts: dict[str, int] = {}


def calls(hosts: Hosts, environment: Environment) -> int:
    """Return the number of writes of the change, from a run without errors."""
    if environment.name not in _counts:
        machine = hosts.machine(environment)
        found = machine.apply()
        assert found.code == 0, found
        machine.assert_finished()
        _counts[environment.name] = len(machine.writes())
    return _counts[environment.name]
