"""The output of ``nvidia-smi -q``: only the parts about how a GPU is shared."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice
from aliquot.sim.tools.nvidia_smi_cli.table_layout import fact
from aliquot.sim.tools.nvidia_smi_cli.vgpus import hosts

_MIB = 1 << 20


def log(devices: Sequence[SmiDevice]) -> list[str]:
    driver = devices[0].driver
    host = hosts(driver.devices)
    lines = [
        "",
        "==============NVSMI LOG==============",
        "",
        fact(0, "Timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        fact(0, "Driver Version", driver.version),
        fact(0, "CUDA Version", "Not Found" if host else driver.cuda),
    ]
    if host:
        able = "Supported" if any(d.facts["mixed"] is not None for d in host) else "Not Supported"
        lines += ["vGPU Driver Capability", fact(2, "Heterogenous Multi-vGPU", able)]
    lines += ["", fact(0, "Attached GPUs", len(driver.devices))]
    for device in devices:
        lines += [f"GPU {device.bus_id}", *_gpu(device), ""]
    return lines


def _gpu(device: SmiDevice) -> list[str]:
    facts = device.facts
    mode = {k: str(facts["mig"][k]).capitalize() if device.capable else "N/A" for k in ("current", "pending")}
    total, reserved, free, used = device.request("DeviceGetMemoryInfo")
    domain, bus, place = device.bus_id.split(":")
    return [
        fact(1, "Product Name", facts["product"]),
        fact(1, "Product Architecture", str(facts["architecture"]).capitalize()),
        fact(1, "Persistence Mode", "Enabled" if device.number("DeviceGetPersistenceMode") else "Disabled"),
        "    MIG Mode",
        fact(2, "Current", mode["current"]),
        fact(2, "Pending", mode["pending"]),
        *_mig_devices(device),
        fact(1, "Serial Number", device.text("DeviceGetSerial")),
        fact(1, "GPU UUID", facts["uuid"]),
        fact(1, "Minor Number", facts["minor"]),
        "    GPU Virtualization Mode",
        *_virtualization(device),
        "    PCI",
        fact(2, "Bus", f"0x{bus}"),
        fact(2, "Device", f"0x{place.partition('.')[0]}"),
        fact(2, "Domain", f"0x{domain[4:]}"),
        fact(2, "Device Id", "0x" + str(facts["pci_device"]).removeprefix("0x").upper()),
        fact(2, "Bus Id", device.bus_id),
        fact(2, "Sub System Id", "0x" + str(facts["subsystem"]).removeprefix("0x").upper()),
        "    FB Memory Usage",
        fact(2, "Total", f"{total // _MIB} MiB"),
        fact(2, "Reserved", f"{reserved // _MIB} MiB"),
        fact(2, "Used", f"{used // _MIB} MiB"),
        fact(2, "Free", f"{free // _MIB} MiB"),
        "    Utilization",
        fact(2, "GPU", _percent(device, 0)),
        fact(2, "Memory", _percent(device, 1)),
        *_processes(device),
    ]


def _percent(device: SmiDevice, place: int) -> str:
    try:
        return f"{device.request('DeviceGetUtilizationRates')[place]} %"
    except NvmlRefusalError:
        return "N/A"


def _mig_devices(device: SmiDevice) -> list[str]:
    """Return a section for each MIG device: its identity and its memory usage."""
    pairs = [(i["id"], c["id"]) for i in device.facts["instances"] for c in i["compute_instances"]]
    lines: list[str] = []
    for number, (gi, ci) in enumerate(pairs):
        total, reserved, free, used = device.request("DeviceGetMemoryInfo", gi=gi, ci=ci)
        lines += [
            "    MIG Device",
            fact(2, "Index", number),
            fact(2, "GPU Instance ID", gi),
            fact(2, "Compute Instance ID", ci),
            "        FB Memory Usage",
            fact(3, "Total", f"{total // _MIB} MiB"),
            fact(3, "Reserved", f"{reserved // _MIB} MiB"),
            fact(3, "Used", f"{used // _MIB} MiB"),
            fact(3, "Free", f"{free // _MIB} MiB"),
        ]
    return lines


def _processes(device: SmiDevice) -> list[str]:
    """Return the clients, each after the ids of its instances."""
    found = device.facts["processes"]
    lines = ["    Processes"] if found else [fact(1, "Processes", "None")]
    for each in found:
        gi, ci = each["instance"], each["compute_instance"]
        lines += [
            fact(2, "GPU instance ID", "N/A" if gi is None else gi),
            fact(2, "Compute instance ID", "N/A" if ci is None else ci),
            fact(2, "Process ID", each["pid"]),
            fact(3, "Type", "C"),
            fact(3, "Name", each["name"]),
            fact(3, "Used GPU Memory", f"{each['memory_mib']} MiB"),
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
        fact(2, "Virtualization Mode", mode),
        fact(2, "Host VGPU Mode", kind),
        fact(2, "vGPU Heterogeneous Mode", mixed),
    ]
