"""Checks of the driver version: too old for a GPU, known to be bad, or with a caveat. Pure; for ``show``.

Sources: minimum drivers from the MIG User Guide (in the catalog); known-bad drivers and the R535 caveat from the
documentation of NVIDIA's GPU Operator.
"""

from __future__ import annotations

from aliquot.core.model import vgpu_checks as vgpu_verdicts
from aliquot.core.model.driver_branches import FLOOR, numbers, older
from aliquot.core.model.inventory import Gpu, Inventory

BAD_WITH_MIXED_MODES = ("570.124.06", "570.133.20", "570.148.08", "570.158.01")
"""Drivers with which no GPU workload is scheduled on a node that mixes MIG and full GPUs (gpu-operator issue 1361)."""

GOOD_INSTEAD = "570.86.15"
FIXED_IN = "570.172.08"


def verdicts(inventory: Inventory) -> tuple[str, ...]:
    """Return sentences about present or expected problems with this node's driver and modes."""
    of_gpus = (sentence for gpu in inventory.gpus for sentence in _gpu(inventory, gpu))
    return (*_node(inventory), *of_gpus, *vgpu_verdicts.warnings(inventory))


def notes(inventory: Inventory) -> tuple[str, ...]:
    """Return sentences that are good to know and are not problems."""
    return vgpu_verdicts.notes(inventory)


def family_minimum(inventory: Inventory, gpu: Gpu) -> str | None:
    """Return the oldest driver that supports MIG on this GPU. None if unknown."""
    return inventory.family(gpu).driver_min if gpu.family else None


def bad_with_mixed_modes(driver: str) -> str:
    """Return a sentence about problems of a driver on a node that mixes MIG and full GPUs. Empty if none are known."""
    if driver not in BAD_WITH_MIXED_MODES:
        return ""
    return (
        f"driver {driver} is known to be bad for nodes that mix MIG and full GPUs (GPU pods stay pending, gpu-operator "
        f"issue 1361): NVIDIA recommends {GOOD_INSTEAD}, and {FIXED_IN} fixes it"
    )


def pending_mode(gpu: Gpu) -> str:
    """Return a sentence about a MIG mode that is not active yet. Empty if none is pending."""
    if gpu.mig.current == gpu.mig.pending:
        return ""
    end = "a reset makes it active" if gpu.resettable else "a reboot of this VM makes it active"
    return f"MIG mode of GPU {gpu.pci} is {gpu.mig.current}, {gpu.mig.pending} is pending: {end}"


def _node(inventory: Inventory) -> tuple[str, ...]:
    driver, messages = inventory.driver, []
    capable = [g for g in inventory.gpus if g.mig.capable]
    on = [g for g in inventory.gpus if g.mig.enabled]
    if older(driver, str(FLOOR)):
        messages.append(f"driver {driver} is too old: Aliquot needs R{FLOOR} or later")
    if on and len(on) < len(inventory.gpus):
        bad = bad_with_mixed_modes(driver)
        messages += [bad] if bad else []
    if numbers(driver)[:1] == (535,) and any(not g.mig.enabled for g in capable):
        messages.append(
            f"driver {driver} lists no profiles while MIG mode is off: Aliquot uses the catalog for those GPUs"
        )
    return tuple(messages)


def _gpu(inventory: Inventory, gpu: Gpu) -> tuple[str, ...]:
    messages = []
    if gpu.lost:
        messages.append(f"GPU {gpu.pci} has fallen off the bus: look for Xid messages in the kernel log, then reboot")
    minimum = family_minimum(inventory, gpu)
    if minimum and older(inventory.driver, minimum):
        messages.append(
            f"GPU {gpu.pci} ({gpu.product}) needs driver {minimum} or later for MIG, this is {inventory.driver}"
        )
    if pending := pending_mode(gpu):
        messages.append(pending)
    if gpu.mig.enabled and gpu.family is None:
        messages.append(
            f"GPU {gpu.pci} ({gpu.product}) has MIG mode enabled, but Aliquot knows no geometry table for it"
        )
    return tuple(messages)
