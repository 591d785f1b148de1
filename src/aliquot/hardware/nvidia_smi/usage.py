"""The usage of a node's GPUs, as far as ``nvidia-smi -q`` reports it: memory, and the utilization of whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.core.model.inventory import Gpu
from aliquot.core.model.usage import NVML, Usage
from aliquot.hardware.nvidia_smi.command import Smi
from aliquot.hardware.nvidia_smi.query_output import Path, sections

_DEVICE = "MIG Device"
_USED = ("FB Memory Usage", "Used")
_TOTAL = ("FB Memory Usage", "Total")


def read_usage(smi: Smi, gpus: Mapping[str, Gpu]) -> tuple[Usage, ...]:
    """Return the usage from one command. ``gpus`` are those of the last read, by PCI address, because the report has no
    profile names. Raises the error that a refusal stands for.
    """
    text = smi.run_checked("reading the usage of the GPUs", "-q")
    return tuple(each for pci, facts in sections(text) for each in _usages(pci, facts, gpus.get(pci)))


def _usages(pci: str, facts: list[tuple[Path, str]], gpu: Gpu | None) -> Iterator[Usage]:
    values: dict[Path, str] = {}
    for path, value in facts:
        values.setdefault(path, value)
    if values.get(("MIG Mode", "Current")) != "Enabled":
        share = _number(values.get(("Utilization", "Gpu"), values.get(("Utilization", "GPU"), "")))
        compute = None if share is None else share / 100
        used, total = _number(values.get(_USED, "")), _number(values.get(_TOTAL, ""))
        yield Usage(pci, None, "", used, total, compute, "" if compute is None else NVML)
        return
    yielded = set[int]()
    for each in _devices(facts):
        instance = _number(each.get(("GPU Instance ID",), ""))
        if instance is None or instance in yielded:
            continue  # compute instances of one GPU instance share its memory
        yielded.add(instance)
        gpu_instance = gpu.instance(instance) if gpu is not None else None
        profile = gpu_instance.profile if gpu_instance is not None else ""
        yield Usage(pci, instance, profile, _number(each.get(_USED, "")), _number(each.get(_TOTAL, "")))


def _devices(facts: list[tuple[Path, str]]) -> list[dict[Path, str]]:
    """Return the sections of MIG devices, each with the entries below its header."""
    found: list[dict[Path, str]] = []
    for path, value in facts:
        if path == (_DEVICE,):
            found.append({})
        elif path[0] == _DEVICE and found:
            found[-1].setdefault(path[1:], value)
    return found


def _number(text: str) -> int | None:
    """Parse ``12 MiB`` or ``7 %``; None for N/A."""
    word = text.partition(" ")[0]
    return int(word) if word.isdigit() else None
