"""Capability minors: which ``/dev/nvidia-caps/nvidia-cap<minor>`` opens an instance, and what the kernel lists.

minor(gpu, gi) = 3 + 135 gpu + 9 gi, minor(gpu, gi, ci) = that + 1 + ci. Here gpu is the *device minor* number
(``/dev/nvidia<N>``), not the index. Source: MIG User Guide and open-gpu-kernel-modules. The file
``/proc/driver/nvidia-caps/mig-minors`` lists the same for every possible instance and is static.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Gpu


def gi_minor(gpu_minor: int, gi: int) -> int:
    """Return the minor that guards a GPU instance; -1 if the GPU's minor is unknown."""
    return -1 if gpu_minor < 0 else 3 + 135 * gpu_minor + 9 * gi


def ci_minor(gpu_minor: int, gi: int, ci: int) -> int:
    """Return the minor that guards a compute instance."""
    return -1 if gpu_minor < 0 else gi_minor(gpu_minor, gi) + 1 + ci


class CapabilityFiles:
    """The kernel's lists below ``proc_root``; all empty if that is None."""

    def __init__(self, proc_root: str | None) -> None:
        self._root = proc_root
        self._minors: dict[str, int] | None = None

    def gpus(self) -> list[str]:
        """Return the PCI addresses of the kernel driver's GPUs in ascending order."""
        import os

        try:
            names = os.listdir(f"{self._root}/driver/nvidia/gpus") if self._root is not None else []
        except OSError:
            return []
        return sorted(pci_address(name) for name in names)

    def remarks(self, gpus: Sequence[Gpu]) -> tuple[str, ...]:
        """Return a sentence for each existing instance whose minor the kernel lists differently."""
        wrong = []
        for gpu in gpus:
            for i in gpu.instances:
                pairs = [(f"gpu{gpu.minor}/gi{i.id}/access", i.capability_minor)]
                pairs += [(f"gpu{gpu.minor}/gi{i.id}/ci{c.id}/access", c.capability_minor) for c in i.compute_instances]
                for key, minor in pairs:
                    listed = self._listed().get(key, minor)
                    if listed != minor:
                        wrong.append(f"the kernel lists capability minor {listed} for {key}, the formula says {minor}")
        return tuple(wrong)

    def _listed(self) -> dict[str, int]:
        if self._minors is None:
            self._minors = {}
            if self._root is not None:
                try:
                    with open(f"{self._root}/driver/nvidia-caps/mig-minors") as file:
                        rows = [line.split() for line in file]
                except OSError:
                    rows = []
                self._minors = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
        return self._minors
