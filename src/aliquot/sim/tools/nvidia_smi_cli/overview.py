"""The output of ``nvidia-smi`` without arguments, and of ``nvidia-smi -L``. The table is that of R570 and later."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice
from aliquot.sim.tools.nvidia_smi_cli.table_layout import left, right, row, rule

_MIB = 1 << 20
_WIDTH = 91
_PARTS = "-----------------------------------------+------------------------+----------------------"
_MIG_PARTS = "------------------+----------------------------------+-----------+-----------------------"


def gpus(devices: Sequence[SmiDevice]) -> list[str]:
    """Return the lines of ``-L``: GPUs with their MIG devices."""
    lines = []
    for device in devices:
        lines.append(f"GPU {device.index}: {device.facts['product']} (UUID: {device.facts['uuid']})")
        for position, (_, _, name, unique) in enumerate(_mig_devices(device)):
            lines.append(f"  MIG {name:<12}Device {position:>2}: (UUID: {unique})")
    return lines


def _mig_devices(device: SmiDevice) -> list[tuple[int, int, str, str]]:
    """Return GPU instance, compute instance, name and UUID of each MIG device, in the order of the ids."""
    if not device.enabled:
        return []
    return [
        (instance["id"], compute["id"], compute["profile"], compute["uuid"])
        for instance in device.facts["instances"]
        for compute in instance["compute_instances"]
    ]


def table(devices: Sequence[SmiDevice]) -> list[str]:
    driver = devices[0].driver
    lines = [
        time.strftime("%a %b %e %H:%M:%S %Y").ljust(31),
        rule(_WIDTH),
        f"| NVIDIA-SMI {driver.version:<22} Driver Version: {driver.version:<14} CUDA Version: {driver.cuda:<8} |",
        f"|{_PARTS}+",
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{_PARTS.replace('-', '=')}|",
    ]
    for device in devices:
        lines += [*_gpu(device), f"+{_PARTS}+"]
    if any(d.enabled for d in devices):
        lines += ["", *_mig_table(devices)]
    return [*lines, *_processes(devices)]


def _gpu(device: SmiDevice) -> list[str]:
    bars = (left(42, "|"), left(67, "|"))
    total, _, _, used = device.request("DeviceGetMemoryInfo")
    power, limit = device.number("DeviceGetPowerUsage"), device.number("DeviceGetEnforcedPowerLimit")
    watts = "N/A" if power is None or limit is None else f"{power // 1000}W / {limit // 1000:>4}W"
    load = device.number("DeviceGetUtilizationRates")
    mode = str(device.facts["mig"]["current"]).capitalize() if device.capable else "N/A"
    return [
        row(
            _WIDTH,
            *bars,
            right(4, device.index),
            left(7, str(device.facts["product"])[:26]),
            right(40, "On" if device.number("DeviceGetPersistenceMode") else "Off"),
            left(46, device.bus_id),
            left(63, "Off"),
            right(88, "On" if device.enabled else "0"),
        ),
        row(
            _WIDTH,
            *bars,
            left(2, "N/A"),
            right(10, f"{device.number('DeviceGetTemperature')}C"),
            left(15, f"P{device.number('DeviceGetPerformanceState')}"),
            right(40, watts),
            right(65, f"{used // _MIB:>7}MiB / {total // _MIB:>6}MiB"),
            right(75, "N/A" if load is None else f"{load}%"),
            right(88, "Default"),
        ),
        row(_WIDTH, *bars, right(88, mode)),
    ]


def _mig_table(devices: Sequence[SmiDevice]) -> list[str]:
    lines = [
        rule(_WIDTH),
        "| MIG devices:".ljust(_WIDTH - 1) + "|",
        f"+{_MIG_PARTS}+",
        "| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|        Shared         |",
        "|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |",
        "|                  |                                  |        ECC|                       |",
        f"|{_MIG_PARTS.replace('-', '=')}|",
    ]
    found = [(d, n, *m[:2]) for d in devices for n, m in enumerate(_mig_devices(d))]
    if not found:
        return [*lines, "|  No MIG devices found".ljust(_WIDTH - 1) + "|", rule(_WIDTH)]
    last = (-1, -1)
    for device, position, gi, ci in found:
        if last not in ((-1, -1), (device.index, gi)):
            lines.append(f"+{_MIG_PARTS}+")
        elif last == (device.index, gi):
            lines.append(f"+{_MIG_PARTS[:18]}+{' ' * 34}+{_MIG_PARTS[54:]}+")
        lines += _mig_rows(device, position, gi, ci, shared=last == (device.index, gi))
        last = (device.index, gi)
    return [*lines, f"+{_MIG_PARTS}+"]


def _mig_rows(device: SmiDevice, position: int, gi: int, ci: int, shared: bool) -> list[str]:
    """Return the rows of a MIG device. A second compute instance of a GPU instance leaves the memory cell empty."""
    bars = (left(19, "|"), left(54, "|"), left(66, "|"))
    sm, ce, dec, enc, jpeg, ofa = device.request("DeviceGetAttributes", gi=gi, ci=ci)[:6]
    total, _, _, used = device.request("DeviceGetMemoryInfo", gi=gi, ci=ci)
    try:
        bar1 = device.request("DeviceGetBAR1MemoryInfo", gi=gi, ci=ci)[0] // _MIB - 1  # as in all captures
    except NvmlRefusalError:
        bar1 = 0
    memory = () if shared else (right(49, f"{used // _MIB:>5}MiB / {total // _MIB:>5}MiB"),)
    second = () if shared else (right(51, f"0MiB / {bar1:>5}MiB"),)
    engines = (
        right(57, sm),
        right(64, 0),
        right(69, ce),
        right(73, enc),
        right(78, dec),
        right(83, ofa),
        right(88, jpeg),
    )
    ids = (right(3, device.index), right(8, gi), right(12, ci), right(16, position))
    return [row(_WIDTH, *bars, *ids, *memory, *engines), row(_WIDTH, *bars, *second)]


def _processes(devices: Sequence[SmiDevice]) -> list[str]:
    lines = [
        "",
        rule(_WIDTH),
        "| Processes:".ljust(_WIDTH - 1) + "|",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        rule(_WIDTH, "=", "|"),
    ]
    found = [(d, p) for d in devices for p in d.facts["processes"]]
    if not found:
        lines.append("|  No running processes found".ljust(_WIDTH - 1) + "|")
    for device, process in found:
        gi, ci = process["instance"], process["compute_instance"]
        lines.append(
            row(
                _WIDTH,
                right(5, device.index),
                right(10, "N/A" if gi is None else gi),
                right(15, "N/A" if ci is None else ci),
                right(32, process["pid"]),
                right(39, "C"),
                left(43, str(process["name"])[:38]),
                right(88, f"{process['memory_mib']}MiB"),
            )
        )
    return [*lines, rule(_WIDTH)]
