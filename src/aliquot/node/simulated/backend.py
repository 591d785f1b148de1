"""The Backend port with a simulated node's own protocol, without NVML, for hosts without a C compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory, Mig
from aliquot.core.model.vgpu_scheduler import from_driver, to_driver
from aliquot.foundation.driver_calls import DriverCall
from aliquot.hardware.nvml.capability_minors import ci_minor, gi_minor
from aliquot.hardware.nvml.partition_ids import slots_mirrored
from aliquot.hardware.nvml.session_gate import SessionGate
from aliquot.sim.client import SimClient
from aliquot.sim.lifecycle import LineConnection, connect, ensure_server

if TYPE_CHECKING:
    from aliquot.core.model.facts import Facts
    from aliquot.core.model.usage import Usage
    from aliquot.core.model.vgpu_usage import VgpuUsage
    from aliquot.core.model.xids import XidPolicy
    from aliquot.hardware.nvml.health import Health

JsonObject = dict[str, Any]
_WHOLE = -1
_GET_SCHEDULER = "DeviceGetVgpuSchedulerState"


class SimBackend:
    """The GPUs of a simulated node. It holds a session open as NVML does, and such a client prevents a GPU reset."""

    def __init__(self, node: SimClient) -> None:
        self.node = node.name
        self._sim = node
        self._gate = SessionGate(self.close, self._start)
        self._idle: list[LineConnection] = []
        self._index: dict[str, int] = {}
        self._start()
        too_old = codes.driver_too_old(self._call("opening the session", "", "SystemGetDriverVersion")[1])
        if too_old is not None:
            self.close()
            raise too_old

    # -- the session: one per process, as with the library

    def _start(self) -> None:
        self._idle.append(self._open_session())

    def _open_session(self) -> LineConnection:
        ensure_server(self._sim.state_dir)
        try:
            lines = connect(self._sim.directory, "nvml.sock")
            with DriverCall("opening NVML"):
                code = int(lines.request(f"hello {os.getpid()}-direct").partition(" ")[0])
        except (FileNotFoundError, ConnectionError) as gone:
            raise codes.error(codes.DRIVER_NOT_LOADED, f"reaching simulated node {self.node}") from gone
        if code:
            lines.close()
            raise codes.error(code, "opening NVML")
        return lines

    def close(self) -> None:
        while self._idle:
            lines = self._idle.pop()
            try:
                lines.request("bye")
            except ConnectionError:
                continue  # the session ended with the connection
            finally:
                lines.close()

    @contextmanager
    def suspend(self) -> Iterator[None]:
        with self._gate.suspended():
            yield

    def _call(self, attempt: str, pci: str, line: str, repeatable: bool = True) -> tuple[list[int], str]:
        """Make one call and return its numbers and its text. A call that changes something is never sent twice."""
        with self._gate.use():
            return self._exchange(attempt, pci, line, repeatable)

    def _exchange(self, attempt: str, pci: str, line: str, repeatable: bool) -> tuple[list[int], str]:
        for _again in range(3):
            try:
                lines = self._idle.pop()
            except IndexError:
                lines = self._open_session()  # other threads use all sessions
            try:
                with DriverCall(attempt, pci):
                    answer = lines.request(line)
            except ConnectionError as gone:
                lines.close()
                if not repeatable and not isinstance(gone, BrokenPipeError):
                    raise codes.error(codes.UNKNOWN, attempt, gpu=pci) from gone
                continue  # the server was killed, and is restarted with the same state
            self._idle.append(lines)
            head, _, text = answer.partition("|")
            code, *numbers = [int(word) for word in head.split()]
            if code != codes.SUCCESS:
                raise codes.error(code, attempt, gpu=pci)
            return numbers, text
        raise codes.error(codes.DRIVER_NOT_LOADED, attempt, gpu=pci)

    def query(self, attempt: str, line: str) -> list[int]:
        """Make a call that only reads, and return its numbers."""
        return self._call(attempt, "", line)[0]

    def health(self, policy: XidPolicy) -> Health:
        """Watch the GPUs for XIDs, from the first poll on."""
        from aliquot.hardware.nvml.health import Health
        from aliquot.node.simulated.xid_events import SimEvents

        return Health(SimEvents(self.query, self.read), policy)

    # -- reading

    def _snapshot(self, attempt: str) -> JsonObject:
        return msgspec.json.decode(self._call(attempt, "", "Snapshot")[1], type=JsonObject)

    def read(self) -> Inventory:
        facts = self._snapshot(f"reading {self.node}")
        gpus = tuple(self._gpu(g) for g in facts["gpus"])
        self._index = {g["pci"]: g["handle"] for g in facts["gpus"]}
        return Inventory(node=self.node, gpus=gpus, driver=facts["driver"], nvml=facts["nvml"])

    def read_gpu(self, pci: str) -> Gpu:
        for facts in self._snapshot(f"reading {pci}")["gpus"]:
            if facts["pci"] == pci:
                if facts["lost"]:
                    raise codes.error(codes.GPU_IS_LOST, f"reading {pci}", gpu=pci)
                return self._gpu(facts)
        raise codes.error(codes.NOT_FOUND, f"looking for GPU {pci}", gpu=pci)

    def _gpu(self, facts: JsonObject) -> Gpu:
        """Return a GPU with the schedulers of its GPU instances, which have a call of their own, as in NVML."""
        gpu = _gpu(facts)
        scheduled = {i["id"] for i in facts["instances"] if i.get("scheduler")}
        if gpu.lost or not scheduled:
            return gpu
        call = f"GpuInstanceGetVgpuSchedulerState {facts['handle']}"
        instances = []
        for each in gpu.instances:
            if each.id in scheduled:
                policy, strict, _, time_slice = self._call(f"reading {gpu.pci}", gpu.pci, f"{call} {each.id} -1")[0]
                each = msgspec.structs.replace(each, scheduler=from_driver(policy, strict, time_slice))
            instances.append(each)
        return msgspec.structs.replace(gpu, instances=tuple(instances))

    def facts(self) -> Facts:
        from aliquot.core.model.facts import Facts

        return msgspec.json.decode(self._call(f"reading the facts of {self.node}", "", "Facts")[1], type=Facts)

    def usage(self, over_s: float = 0.0) -> tuple[Usage, ...]:
        """Return current shares, without waiting for a second sample."""
        from aliquot.core.model.usage import Usage

        return msgspec.json.decode(
            self._call(f"reading the use of {self.node}", "", "Usage")[1], type=tuple[Usage, ...]
        )

    def vgpu_usage(self) -> tuple[VgpuUsage, ...]:
        from aliquot.core.model.vgpu_usage import VgpuUsage

        text = self._call(f"reading the use of the vGPUs of {self.node}", "", "VgpuUsage")[1]
        return msgspec.json.decode(text, type=tuple[VgpuUsage, ...])

    def _number(self, pci: str) -> int:
        if pci not in self._index:
            self.read()
        if pci not in self._index:
            raise codes.error(codes.NOT_FOUND, f"looking for GPU {pci}", gpu=pci)
        return self._index[pci]

    # -- writing

    def _write(self, attempt: str, pci: str, call: str, *numbers: int) -> int:
        words = " ".join(map(str, (call, self._number(pci), *numbers)))
        answer, _ = self._call(f"{attempt} on {pci}", pci, words, repeatable=False)
        return answer[0] if answer else _WHOLE

    def set_mode(self, pci: str, enabled: bool) -> bool:
        attempt = f"{'enabling' if enabled else 'disabling'} MIG mode"
        activation = self._write(attempt, pci, "DeviceSetMigMode", _WHOLE, _WHOLE, int(enabled))
        numbers, _ = self._call(f"{attempt} on {pci}", pci, f"DeviceGetMigMode {self._number(pci)} -1 -1")
        current, pending = numbers
        if int(enabled) not in (current, pending):
            raise codes.error(activation, f"{attempt} on {pci}", gpu=pci)
        return current == int(enabled)

    def create_gpu_instance(self, pci: str, profile_id: int, start: int, size: int) -> int:
        attempt = f"creating a GPU instance of profile {profile_id} at {start}:{size}"
        call = "DeviceCreateGpuInstanceWithPlacement"
        return self._write(attempt, pci, call, _WHOLE, _WHOLE, profile_id, start, size)

    def destroy_gpu_instance(self, pci: str, instance: int) -> None:
        attempt = f"destroying GPU instance {instance}"
        self._present(attempt, pci, "DeviceGetGpuInstanceById", _WHOLE, _WHOLE, instance)
        self._write(attempt, pci, "GpuInstanceDestroy", instance, _WHOLE)

    def create_compute_instance(self, pci: str, instance: int, profile_id: int, start: int | None, size: int) -> int:
        attempt = f"creating a compute instance of profile {profile_id} in GPU instance {instance}"
        self._present(attempt, pci, "DeviceGetGpuInstanceById", _WHOLE, _WHOLE, instance)
        if start is None:
            return self._write(attempt, pci, "GpuInstanceCreateComputeInstance", instance, _WHOLE, profile_id)
        call = "GpuInstanceCreateComputeInstanceWithPlacement"
        return self._write(attempt, pci, call, instance, _WHOLE, profile_id, start, size)

    def destroy_compute_instance(self, pci: str, instance: int, compute_instance: int) -> None:
        attempt = f"destroying compute instance {compute_instance} of GPU instance {instance}"
        self._present(attempt, pci, "DeviceGetGpuInstanceById", _WHOLE, _WHOLE, instance)
        self._present(attempt, pci, "GpuInstanceGetComputeInstanceById", instance, _WHOLE, compute_instance)
        self._write(attempt, pci, "ComputeInstanceDestroy", instance, compute_instance)

    def mixed_size(self, pci: str) -> bool | None:
        """Return mixed-size mode; None if the GPU or its driver does not support it, and while MIG mode is on."""
        gpus = self._snapshot(f"reading mixed-size mode of {pci}")["gpus"]
        return next((g["mixed"] for g in gpus if g["pci"] == pci), None)

    def set_mixed_size(self, pci: str, on: bool) -> None:
        attempt = f"switching mixed-size mode {'on' if on else 'off'}"
        gpu = self.read_gpu(pci)
        if gpu.mig.enabled:
            for each in gpu.instances:
                if bool(each.mixed_size) != on:
                    self._write(attempt, pci, "GpuInstanceSetVgpuHeterogeneousMode", each.id, _WHOLE, int(on))
            return
        self._write(attempt, pci, "DeviceSetVgpuHeterogeneousMode", _WHOLE, _WHOLE, int(on))

    def scheduler(self, pci: str) -> str:
        attempt = f"reading the vGPU scheduler of {pci}"
        policy, strict, _, time_slice = self._call(attempt, pci, f"{_GET_SCHEDULER} {self._number(pci)} -1 -1")[0]
        return from_driver(policy, strict, time_slice)

    def set_scheduler(self, pci: str, scheduler: str) -> None:
        policy, strict, time_slice, frequency = to_driver(scheduler)
        numbers = _WHOLE, _WHOLE, policy, strict, time_slice, frequency
        self._write(f"setting the vGPU scheduler {scheduler}", pci, "DeviceSetVgpuSchedulerState", *numbers)

    def set_instance_scheduler(self, pci: str, instance: int, scheduler: str) -> None:
        attempt = f"setting the vGPU scheduler {scheduler} on GPU instance {instance}"
        self._write(attempt, pci, "GpuInstanceSetVgpuSchedulerState", instance, _WHOLE, *to_driver(scheduler))

    def renumber(self) -> None:
        """Read the GPUs' positions again, because GPUs have come or gone."""
        self._index = {}

    def _present(self, attempt: str, pci: str, call: str, *numbers: int) -> None:
        """Look the instance up first, as an NVML client must for its handle: a wrong id is "not found"."""
        words = " ".join(map(str, (call, self._number(pci), *numbers)))
        self._call(f"{attempt} on {pci}", pci, words)


def _gpu(facts: JsonObject) -> Gpu:
    plain = ("pci", "uuid", "index", "product", "pci_device", "subsystem")
    identity = {k: facts[k] for k in plain}
    if facts["lost"]:
        return Gpu(**identity, lost=True)
    mig = Mig(**facts["mig"])
    instances = tuple(_instance(i, facts) for i in facts["instances"])
    known = facts["family"] is not None and mig.enabled
    return Gpu(
        **identity,
        minor=facts["minor"],
        family=facts["family"],
        mig=mig,
        instances=instances,
        holders=_holders(facts, lambda p: not mig.enabled or p["instance"] is None),
        resettable=not facts["guest"],
        slots_mirrored=slots_mirrored(catalog.family(facts["family"]), instances) if known else None,
    )


def _instance(instance: JsonObject, gpu: JsonObject) -> GpuInstance:
    gi = instance["id"]
    holders = _holders(gpu, lambda p: p["instance"] == gi)
    return GpuInstance(
        id=gi,
        profile=instance["profile"],
        profile_id=instance["profile_id"],
        placement=instance["placement"],
        held=bool(holders),
        holders=holders,
        capability_minor=gi_minor(gpu["minor"], gi),
        compute_instances=tuple(_compute(c, gi, gpu) for c in instance["compute_instances"]),
        mixed_size=instance.get("mixed", msgspec.UNSET),
    )


def _compute(compute: JsonObject, gi: int, gpu: JsonObject) -> ComputeInstance:
    number = compute["id"]
    return ComputeInstance(
        **{k: compute[k] for k in ("id", "profile", "profile_id", "placement", "uuid")},
        capability_minor=ci_minor(gpu["minor"], gi, number),
        holders=_holders(gpu, lambda p: (p["instance"], p["compute_instance"]) == (gi, number)),
    )


def _holders(gpu: JsonObject, mine: Callable[[JsonObject], bool]) -> tuple[Holder, ...]:
    order = sorted(gpu["processes"], key=lambda p: (p["instance"] or 0, p["compute_instance"] or 0, p["pid"]))
    found = [Holder("process", str(p["pid"]), p["name"].rpartition("/")[2]) for p in order if mine(p)]
    return tuple(dict.fromkeys(found))
