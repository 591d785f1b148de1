"""Binding a PCI function of any vendor to vfio-pci, and back to its driver. GPUs are bound with their boards instead
(``passthrough``).

A function is bound alone, as Harvester does: the rest of its IOMMU group has claims of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot.core.engine.ports import Clock
from aliquot.core.engine.programs import DriverPrograms
from aliquot.errors import BlockedError, InUseError
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel.errors import kernel_file_error
from aliquot.hardware.kernel.function_users import host_uses
from aliquot.hardware.kernel.vfio_binding import NoIommuError, bind_to_vfio, restore_drivers
from aliquot.hardware.kernel_files import KernelFiles

MODPROBE_S = 30.0


def load_vfio(files: KernelFiles, programs: DriverPrograms) -> None:
    """Load vfio-pci with the host's modprobe, unless it is loaded: without pcidevices nothing else does.

    A failure shows when a function is bound.
    """
    if not files.exists(f"{bus.DRIVERS}/{bus.VFIO}"):
        programs.run(("modprobe", bus.VFIO), MODPROBE_S)


def bind_function(files: KernelFiles, clock: Clock, pci: str, node_addresses: Collection[str]) -> None:
    """Bind a function to vfio-pci, unless the host needs it. Raises InUseError with the users, NoIommuError,
    BlockedError without that driver, HardwareError.
    """
    try:
        users = host_uses(files, pci, node_addresses)
        group = bus.group(files, pci)
    except OSError as failure:
        raise kernel_file_error(failure, f"finding out what uses {pci}", f"{bus.DEVICES}/{pci}") from failure
    if users:
        raise InUseError(
            f"the host itself uses {pci}: {'; '.join(users)}",
            next_step=f"end that use, or claim another device; see ls /sys/bus/pci/devices/{pci}",
        )
    if group is None:
        raise NoIommuError(
            f"{pci} has no IOMMU group: the IOMMU is off",
            next_step="enable it in the firmware and with intel_iommu=on (AMD: amd_iommu=on), then reboot",
        )
    if not files.exists(f"{bus.DRIVERS}/{bus.VFIO}"):
        step = "modprobe vfio-pci on the node; Aliquot then continues by itself"
        raise BlockedError("the driver vfio-pci is not loaded", code="NO_VFIO", next_step=step)
    bind_to_vfio(files, clock, pci, ())


def release_function(files: KernelFiles, pci: str, driver: str) -> None:
    """Return a function from vfio-pci to a driver; "" or a driver that is not loaded stands for any that accepts it.
    Raises InUseError while a VM has it open, HardwareError.
    """
    known = bool(driver) and driver != bus.VFIO and files.exists(f"{bus.DRIVERS}/{driver}")
    restore_drivers(files, pci, {pci: driver if known else None})
