"""A parser for ``nvidia-smi -q``: one block per GPU, four spaces of indent per level, ``name : value`` with a column
that differs between versions. Unknown entries are skipped, so that new sections do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Holder, Mig, MigMode
from aliquot.hardware.nvml.instances import NO_INSTANCE, Process

_INDENT = 4
_PASSED_THROUGH = "pass-through"
_GUEST = "vgpu"

Path = tuple[str, ...]


class GpuReport(msgspec.Struct, frozen=True):
    """The report of one GPU."""

    pci: str
    uuid: str
    product: str
    pci_device: str
    subsystem: str
    minor: int
    mig: Mig
    resettable: bool
    guest: bool
    mixed_size: bool | None
    """Mixed-size mode; None if the GPU does not support it in its current mode."""
    architecture: str
    memory_mib: int
    """0 if it is not reported."""
    processes: tuple[Process, ...]
    """The GPU's clients, in the order of GPU instance, compute instance and pid."""


class Log(msgspec.Struct, frozen=True):
    """A complete report. ``cuda`` is empty if the driver has no CUDA (a vGPU host)."""

    driver: str
    cuda: str
    gpus: tuple[GpuReport, ...]

    @property
    def nvml(self) -> str:
        """The library's version, which consists of these two."""
        return f"{self.cuda.partition('.')[0]}.{self.driver}" if self.cuda else self.driver


def parse(text: str) -> Log:
    """Parse a report. Raises ValueError if a GPU's block has no address."""
    head: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("GPU "):
            break
        if " : " in line:
            name, _, value = line.partition(" : ")
            head[name.strip()] = value.strip()
    cuda = head.get("CUDA Version", "")
    gpus = tuple(_report(pci, facts) for pci, facts in sections(text))
    return Log(head.get("Driver Version", ""), cuda if cuda[:1].isdigit() else "", gpus)


def sections(text: str) -> list[tuple[str, list[tuple[Path, str]]]]:
    """Return each GPU's address and its block as paths of section names with values. Raises ValueError as ``parse``."""
    blocks: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("GPU "):
            blocks.append((pci_address(line.removeprefix("GPU ").strip()), []))
        elif blocks:
            blocks[-1][1].append(line)
    return [(pci, list(_facts(lines))) for pci, lines in blocks]


def _facts(lines: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Return each line as its path of section names and its value; the value of a section header is empty."""
    above: list[str] = []
    for line in lines:
        bare = line.strip()
        if not bare:
            continue
        depth = max((len(line) - len(line.lstrip())) // _INDENT - 1, 0)
        name, _, value = bare.partition(" : ")
        above[depth:] = [name.strip()]
        yield tuple(above), value.strip()


def _report(pci: str, facts: Sequence[tuple[Path, str]]) -> GpuReport:
    values: dict[Path, str] = {}
    for path, value in facts:
        values.setdefault(path, value)

    def value_of(*path: str) -> str:
        return values.get(path, "")

    mode = value_of("GPU Virtualization Mode", "Virtualization Mode").lower()
    mixed_size = value_of("GPU Virtualization Mode", "vGPU Heterogeneous Mode")
    minor = value_of("Minor Number")
    return GpuReport(
        pci=pci,
        uuid=value_of("GPU UUID"),
        product=value_of("Product Name"),
        pci_device=_packed(value_of("PCI", "Device Id")),
        subsystem=_packed(value_of("PCI", "Sub System Id")),
        minor=int(minor) if minor.isdigit() else -1,
        mig=_mig(value_of("MIG Mode", "Current"), value_of("MIG Mode", "Pending")),
        resettable=mode != _PASSED_THROUGH,
        guest=mode == _GUEST,
        mixed_size={"Enabled": True, "Disabled": False}.get(mixed_size),
        architecture=value_of("Product Architecture").lower().partition(" ")[0],
        memory_mib=_mib(value_of("FB Memory Usage", "Total")),
        processes=tuple(_processes(facts)),
    )


def _mig(current: str, pending: str) -> Mig:
    known: dict[str, MigMode] = {"Enabled": "enabled", "Disabled": "disabled"}
    if current not in known:
        return Mig()  # N/A: not capable
    return Mig(True, known[current], known.get(pending, known[current]))


def _packed(text: str) -> str:
    digits = text.removeprefix("0x").removeprefix("0X")
    return f"0x{digits.upper().zfill(8)}" if digits else ""


def _mib(text: str) -> int:
    word = text.partition(" ")[0]
    return int(word) if word.isdigit() else 0


def _processes(facts: Sequence[tuple[Path, str]]) -> list[Process]:
    """Return the processes. The instance ids precede a process, and its name follows it."""
    found: list[tuple[int, int, int, str]] = []
    ids = {"GPU instance ID": NO_INSTANCE, "Compute instance ID": NO_INSTANCE}
    for path, value in facts:
        if path[0] != "Processes" or len(path) < 2:
            continue
        if path[1] in ids:
            ids[path[1]] = int(value) if value.isdigit() else NO_INSTANCE
        elif len(path) == 2 and path[1] == "Process ID" and value.isdigit():
            found.append((*ids.values(), int(value), ""))  # type: ignore[arg-type]
        elif path[-1] == "Name" and found:
            found[-1] = (*found[-1][:3], value.rpartition("/")[2])
    return [(gi, ci, Holder("process", str(pid), name)) for gi, ci, pid, name in sorted(found)]
