"""``nvidia-smi -q``: the parts that tell how a GPU is shared. Others are left out."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aliquot.sim.codes import NvmlRefusal
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice
from aliquot.sim.tools.nvidia_smi_cli.vgpus import hosts

_MIB = 1 << 20


def _fact(depth: int, name: str, value: object) -> str:
    return f"{' ' * 4 * depth}{name}".ljust(42) + f": {value}"


def log(devices: Sequence[SmiDevice]) -> list[str]:
    driver = devices[0].driver
    host = hosts(driver.devices)
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        _fact(0, "Timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        _fact(0, "Driver Version", driver.version),
        _fact(0, "CUDA Version", "Not Found" if host else driver.cuda),
    ]
    if host:
        able = "Supported" if any(d.facts["mixed"] is not None for d in host) else "Not Supported"
        lines += ["vGPU Driver Capability", _fact(2, "Heterogenous Multi-vGPU", able)]
    lines += ["", _fact(0, "Attached GPUs", len(driver.devices))]
    for device in devices:
        lines += [f"GPU {device.bus_id}", *_gpu(device), ""]
    return lines


def _gpu(device: SmiDevice) -> list[str]:
    facts = device.facts
    mode = {k: str(facts["mig"][k]).capitalize() if device.capable else "N/A" for k in ("current", "pending")}
    total, reserved, free, used = device.request("DeviceGetMemoryInfo")
    domain, bus, place = device.bus_id.split(":")
    return [
        _fact(1, "Product Name", facts["product"]),
        _fact(1, "Product Architecture", str(facts["architecture"]).capitalize()),
        _fact(1, "Persistence Mode", "Enabled" if device.number("DeviceGetPersistenceMode") else "Disabled"),
        "    MIG Mode",
        _fact(2, "Current", mode["current"]),
        _fact(2, "Pending", mode["pending"]),
        *_mig_devices(device),
        _fact(1, "Serial Number", device.text("DeviceGetSerial")),
        _fact(1, "GPU UUID", facts["uuid"]),
        _fact(1, "Minor Number", facts["minor"]),
        "    GPU Virtualization Mode",
        *_virtualization(device),
        "    PCI",
        _fact(2, "Bus", f"0x{bus}"),
        _fact(2, "Device", f"0x{place.partition('.')[0]}"),
        _fact(2, "Domain", f"0x{domain[4:]}"),
        _fact(2, "Device Id", "0x" + str(facts["pci_device"]).removeprefix("0x").upper()),
        _fact(2, "Bus Id", device.bus_id),
        _fact(2, "Sub System Id", "0x" + str(facts["subsystem"]).removeprefix("0x").upper()),
        "    FB Memory Usage",
        _fact(2, "Total", f"{total // _MIB} MiB"),
        _fact(2, "Reserved", f"{reserved // _MIB} MiB"),
        _fact(2, "Used", f"{used // _MIB} MiB"),
        _fact(2, "Free", f"{free // _MIB} MiB"),
        "    Utilization",
        _fact(2, "GPU", _percent(device, 0)),
        _fact(2, "Memory", _percent(device, 1)),
        *_processes(device),
    ]


def _percent(device: SmiDevice, place: int) -> str:
    try:
        return f"{device.request('DeviceGetUtilizationRates')[place]} %"
    except NvmlRefusal:
        return "N/A"


def _mig_devices(device: SmiDevice) -> list[str]:
    """A section each: the parts that tell what it is and what is used of its memory."""
    pairs = [(i["id"], c["id"]) for i in device.facts["instances"] for c in i["compute_instances"]]
    lines: list[str] = []
    for number, (gi, ci) in enumerate(pairs):
        total, reserved, free, used = device.request("DeviceGetMemoryInfo", gi=gi, ci=ci)
        lines += [
            "    MIG Device",
            _fact(2, "Index", number),
            _fact(2, "GPU Instance ID", gi),
            _fact(2, "Compute Instance ID", ci),
            "        FB Memory Usage",
            _fact(3, "Total", f"{total // _MIB} MiB"),
            _fact(3, "Reserved", f"{reserved // _MIB} MiB"),
            _fact(3, "Used", f"{used // _MIB} MiB"),
            _fact(3, "Free", f"{free // _MIB} MiB"),
        ]
    return lines


def _processes(device: SmiDevice) -> list[str]:
    """The clients, each after the instances that it is in."""
    found = device.facts["processes"]
    lines = ["    Processes"] if found else [_fact(1, "Processes", "None")]
    for each in found:
        gi, ci = each["instance"], each["compute_instance"]
        lines += [
            _fact(2, "GPU instance ID", "N/A" if gi is None else gi),
            _fact(2, "Compute instance ID", "N/A" if ci is None else ci),
            _fact(2, "Process ID", each["pid"]),
            _fact(3, "Type", "C"),
            _fact(3, "Name", each["name"]),
            _fact(3, "Used GPU Memory", f"{each['memory_mib']} MiB"),
        ]
    return lines


def _virtualization(device: SmiDevice) -> list[str]:
    facts = device.facts
    mixed = "N/A" if facts["mixed"] is None else "Enabled" if facts["mixed"] else "Disabled"
    if facts["world"]:
        mode, kind = "Host VGPU", "Non SR-IOV" if facts["world"] == "mdev" else "SR-IOV"
    else:
        mode, kind = "Pass-Through" if facts["guest"] else "None", "N/A"
    return [
        _fact(2, "Virtualization Mode", mode),
        _fact(2, "Host VGPU Mode", kind),
        _fact(2, "vGPU Heterogeneous Mode", mixed),
    ]
