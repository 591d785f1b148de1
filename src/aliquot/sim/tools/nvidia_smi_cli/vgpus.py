"""The output of ``nvidia-smi vgpu``, ``vgpu -q``, ``vgpu -s | -c [-v]`` on a vGPU host."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver.vgpu_load import FIRST_NUMBER, VGPUS_OF_GPU
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice
from aliquot.sim.tools.nvidia_smi_cli.table_layout import fact, left, right, rule
from aliquot.sim.tools.nvidia_smi_cli.table_layout import row as plain

_WIDTH = 79

_SCHEDULERS = ("Best Effort", "Equal Share", "Fixed Share")
_CLASSES = {"A": "NVS", "B": "NVS", "C": "Compute", "Q": "Quadro"}
_LICENSES = {
    "A": "GRID-Virtual-Apps,3.0",
    "B": "GRID-Virtual-PC,2.0;Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0",
    "C": "NVIDIA-vComputeServer,9.0;Quadro-Virtual-DWS,5.0",
    "Q": "Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0",
}


class ActiveVgpu(NamedTuple):
    """A vGPU that a VM has open."""

    number: int
    facts: dict[str, Any]
    vm: str

    @property
    def vm_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_OID, self.vm))

    @property
    def vm_name(self) -> str:
        """QEMU's name option, as the driver finds it on the command line."""
        return f"{self.vm},debug-threads=on"


def hosts(devices: Sequence[SmiDevice]) -> list[SmiDevice]:
    """Return the GPUs with the vGPU host driver."""
    return [d for d in devices if d.facts["world"]]


def active(device: SmiDevice, vms: Sequence[dict[str, Any]]) -> list[ActiveVgpu]:
    found = []
    for position, each in enumerate(device.facts["vgpus"]):
        for vm in vms:
            if (each["uuid"] or each["function"]) in vm["devices"]:
                found.append(ActiveVgpu(FIRST_NUMBER + VGPUS_OF_GPU * device.handle + position, each, vm["name"]))
    return found


def schedulers(devices: Sequence[SmiDevice], vms: Sequence[dict[str, Any]]) -> list[str]:
    """Return ``vgpu -ss``: of each GPU the policy, and the rest only while a VM runs."""
    lines: list[str] = []
    for device in devices:
        try:
            policy, strict, average, time_slice = device.request("DeviceGetVgpuSchedulerState")
        except NvmlRefusalError:
            continue
        lines += [f"GPU {device.bus_id}", fact(1, "Active vGPUs", len(active(device, vms)))]
        lines.append(fact(1, "Scheduler Policy", _SCHEDULERS[policy - 1]))
        if time_slice:
            lines.append(fact(1, "ARR Mode", "Enabled" if strict != 1 else "Disabled"))
            lines += [fact(1, "Average Factor", average)] if strict != 1 else []
            lines.append(fact(1, "Time Slice(ns)", time_slice))
    return lines


def overview(devices: Sequence[SmiDevice], vms: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table: all GPUs, and the running vGPUs."""
    version = devices[0].driver.version
    parts = "|---------------------------------+------------------------------+------------+"
    closing = parts.replace("|", "+")
    lines = [
        rule(_WIDTH),
        f"| NVIDIA-SMI {version:<22} Driver Version: {version:<26}|",
        parts,
        "| GPU  Name                       | Bus-Id                       | GPU-Util   |",
        "|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |",
        parts.replace("-", "=")[:-1] + "|",
    ]
    bars = (left(34, "|"), left(65, "|"))
    for device in devices:
        busy = device.number("DeviceGetUtilizationRates")
        name = _truncated(str(device.facts["product"]), 26)
        load = "N/A" if busy is None else f"{busy}%"
        head = (right(4, device.index), left(7, name), left(36, device.bus_id), right(71, load))
        lines.append(plain(_WIDTH, *bars, *head))
        for each in active(device, vms):
            cells = (
                left(7, each.number),
                left(19, _truncated(str(each.facts["type"]), 14)),
                left(36, _truncated(each.vm_id, 7)),
                left(45, _truncated(each.vm_name, 18)),
                right(73, "0%"),
            )
            lines.append(plain(_WIDTH, *bars, *cells))
        lines.append(closing)
    return lines


def _truncated(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def report(devices: Sequence[SmiDevice], vms: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of ``vgpu -q``."""
    lines = []
    for device in devices:
        found = active(device, vms)
        lines += [f"GPU {device.bus_id}", fact(1, "Active vGPUs", len(found))]
        for each in found:
            lines += _instance(device, each)
        lines.append("")
    return lines


def _instance(device: SmiDevice, each: ActiveVgpu) -> list[str]:
    facts, kind = each.facts, types(device).get(each.facts["type_id"])
    memory = kind.fb_mib if kind else 0
    instance, place = facts["instance"], facts["placement"]
    return [
        fact(1, "vGPU ID", each.number),
        fact(2, "VM ID", each.vm_id),
        fact(2, "VM Name", each.vm_name),
        fact(2, "vGPU Name", facts["type"]),
        fact(2, "vGPU Type", facts["type_id"]),
        fact(2, "vGPU UUID", facts["uuid"] or uuid.uuid5(uuid.NAMESPACE_OID, f"{each.vm}/{facts['function']}")),
        *([fact(2, "MDEV UUID", facts["uuid"])] if facts["uuid"] else []),
        fact(2, "Guest Driver Version", "N/A"),
        fact(2, "License Status", "N/A (Expiry: N/A)"),
        fact(2, "GPU Instance ID", "N/A" if instance is None else instance),
        fact(2, "Placement ID", "N/A" if place is None else place),
        fact(2, "Accounting Mode", "N/A"),
        fact(2, "ECC Mode", "N/A"),
        fact(2, "Frame Rate Limit", f"{kind.frl} FPS" if kind else "N/A"),
        fact(2, "PCI", "").rstrip(": "),
        fact(3, "Bus Id", f"00000000:{facts['function'].partition(':')[2].upper()}"),
        fact(2, "FB Memory Usage", "").rstrip(": "),
        fact(3, "Total", f"{memory} MiB"),
        fact(3, "Used", "0 MiB"),
        fact(3, "Free", f"{memory} MiB"),
    ]


def types(device: SmiDevice) -> dict[int, VgpuType]:
    """Return the known types of a GPU, by id."""
    table = vgpu.table(str(device.facts["pci_device"]), str(device.facts["subsystem"]))
    return table.by_id if table is not None else {}


def listed(devices: Sequence[SmiDevice], call: str, verbose: bool) -> list[str]:
    """Return the lines of ``vgpu -s`` (DeviceGetSupportedVgpus) or ``vgpu -c`` (DeviceGetCreatableVgpus)."""
    lines = []
    for device in devices:
        known = types(device)
        lines.append(f"GPU {device.bus_id}")
        for number in device.request(call):
            kind = known[number]
            lines += _details(device, kind) if verbose else [f"    {kind.name}"]
        lines.append("")
    return lines


def _details(device: SmiDevice, kind: VgpuType) -> list[str]:
    wide, _, high = (kind.max_res or "4096x2160").partition("x")
    memory = f"0x{str(device.facts['pci_device']).removeprefix('0x').lower()}"
    inside = [fact(2, "Max Instances Per GI", kind.per_instance)] if kind.mig_backed else []
    return [
        fact(1, "vGPU Type ID", hex(kind.id or 0)),
        fact(2, "Name", kind.name),
        fact(2, "Class", _CLASSES.get(kind.series[:1], "Compute")),
        fact(2, "GPU Instance Profile ID", kind.profile_id if kind.mig_backed else "N/A"),
        fact(2, "Max Instances", kind.max),
        *inside,
        fact(2, "Max Instances Per VM", kind.per_vm),
        fact(2, "Multi vGPU Exclusive", "False"),
        fact(2, "Device ID", memory),
        fact(2, "Sub System ID", "0x000010de"),
        fact(2, "FB Memory", f"{kind.fb_mib} MiB"),
        fact(2, "Display Heads", kind.heads),
        fact(2, "Maximum X Resolution", wide),
        fact(2, "Maximum Y Resolution", high),
        fact(2, "Frame Rate Limit", f"{kind.frl} FPS" if kind.frl else "N/A"),
        fact(2, "GRID License", _LICENSES.get(kind.series[:1], "N/A")),
    ]
