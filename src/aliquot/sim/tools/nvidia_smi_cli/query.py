"""The output of ``nvidia-smi --query-gpu=FIELDS --format=csv[,noheader][,nounits]``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.tools.nvidia_smi_cli.driver import SmiDevice

_NOT_AVAILABLE = "[N/A]"
_MIB = 1 << 20


class UnknownFieldError(Exception):
    """A field that nvidia-smi does not know."""


def _mode(device: SmiDevice, which: str) -> str:
    return str(device.facts["mig"][which]).capitalize() if device.capable else _NOT_AVAILABLE


def _memory(place: int) -> Callable[[SmiDevice], str]:
    return lambda device: f"{device.request('DeviceGetMemoryInfo')[place] // _MIB} MiB"


def _share(place: int) -> Callable[[SmiDevice], str]:
    def read(device: SmiDevice) -> str:
        try:
            return f"{device.request('DeviceGetUtilizationRates')[place]} %"
        except NvmlRefusalError:
            return _NOT_AVAILABLE

    return read


def _onoff(call: str, place: int = 0) -> Callable[[SmiDevice], str]:
    def read(device: SmiDevice) -> str:
        try:
            return "Enabled" if device.request(call)[place] else "Disabled"
        except NvmlRefusalError:
            return _NOT_AVAILABLE

    return read


def _watts(call: str) -> Callable[[SmiDevice], str]:
    def read(device: SmiDevice) -> str:
        number = device.number(call)
        return _NOT_AVAILABLE if number is None else f"{number / 1000:.2f} W"

    return read


def _part(place: int) -> Callable[[SmiDevice], str]:
    return lambda device: f"0x{device.bus_id.replace('.', ':').split(':')[place]}"


FIELDS: dict[str, Callable[[SmiDevice], str]] = {
    "index": lambda d: str(d.index),
    "count": lambda d: str(len(d.driver.devices)),
    "name": lambda d: str(d.facts["product"]),
    "uuid": lambda d: str(d.facts["uuid"]),
    "serial": lambda d: d.text("DeviceGetSerial"),
    "driver_version": lambda d: d.driver.version,
    "pci.bus_id": lambda d: d.bus_id,
    "pci.domain": _part(0),
    "pci.bus": _part(1),
    "pci.device": _part(2),
    "pci.device_id": lambda d: "0x" + str(d.facts["pci_device"]).removeprefix("0x").upper(),
    "pci.sub_device_id": lambda d: "0x" + str(d.facts["subsystem"]).removeprefix("0x").upper(),
    "mig.mode.current": lambda d: _mode(d, "current"),
    "mig.mode.pending": lambda d: _mode(d, "pending"),
    "memory.total": _memory(0),
    "memory.reserved": _memory(1),
    "memory.free": _memory(2),
    "memory.used": _memory(3),
    "utilization.gpu": _share(0),
    "utilization.memory": _share(1),
    "persistence_mode": _onoff("DeviceGetPersistenceMode"),
    "ecc.mode.current": _onoff("DeviceGetEccMode"),
    "ecc.mode.pending": _onoff("DeviceGetEccMode", 1),
    "temperature.gpu": lambda d: str(d.number("DeviceGetTemperature")),
    "power.draw": _watts("DeviceGetPowerUsage"),
    "power.limit": _watts("DeviceGetEnforcedPowerLimit"),
    "compute_cap": lambda d: ".".join(map(str, d.request("DeviceGetCudaComputeCapability"))),
    "compute_mode": lambda _d: "Default",
    "pstate": lambda d: f"P{d.number('DeviceGetPerformanceState')}",
}
_SAME = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "power.limit.enforced": "power.limit",
    "enforced.power.limit": "power.limit",
}
_UNITS = {
    **dict.fromkeys(("memory.total", "memory.reserved", "memory.free", "memory.used"), "MiB"),
    **dict.fromkeys(("utilization.gpu", "utilization.memory"), "%"),
    **dict.fromkeys(("power.draw", "power.limit"), "W"),
}


def answer(devices: Sequence[SmiDevice], fields: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the output lines. Raises UnknownFieldError."""
    wanted = [_SAME.get(f.strip(), f.strip()) for f in fields]
    for given, field in zip(fields, wanted, strict=True):
        if field not in FIELDS:
            raise UnknownFieldError(given.strip())
    bare = "nounits" in options
    lines = []
    if "noheader" not in options:
        titles = [f.strip() for f in fields]
        lines.append(
            ", ".join(
                t if bare or w not in _UNITS else f"{t} [{_UNITS[w]}]" for t, w in zip(titles, wanted, strict=True)
            )
        )
    for device in devices:
        cells = []
        for field in wanted:
            cell = FIELDS[field](device)
            unit = _UNITS.get(field)
            cells.append(cell.removesuffix(f" {unit}") if bare and unit else cell)
        lines.append(", ".join(cells))
    return lines
