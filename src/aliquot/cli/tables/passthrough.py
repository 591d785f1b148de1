"""The rows of ``aliquot passthrough``: whole GPUs, or single virtual functions, for a VM."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, GPU, GPUS, NODE, CliCommand, CommandOption
from aliquot.cli.tables.vgpu import CHANGE, EXITS

_DEVICES = (
    CommandOption(
        "gpus",
        help="GPUs, named as by --gpu, or virtual functions by their PCI addresses",
        kind="many",
        metavar="DEVICE",
        complete="gpus",
    ),
    GPU,
)

PASSTHROUGH = CliCommand(
    "passthrough",
    "pass whole GPUs or virtual functions through to VMs (vfio-pci)",
    children=(
        CliCommand(
            "list",
            "list the driver and the holder of each GPU and virtual function",
            "commands.passthrough",
            options=(*GPUS, *EVERYWHERE),
            examples=("aliquot passthrough list",),
        ),
        CliCommand(
            "check",
            "check whether a device can be passed through now: IOMMU, IOMMU group, holder",
            "commands.passthrough",
            options=(*_DEVICES, *EVERYWHERE),
            examples=("aliquot passthrough check 0",),
            exits="0 it can, or it already is; 20 it cannot",
        ),
        CliCommand(
            "enable",
            "bind a device to vfio-pci",
            "commands.passthrough",
            options=(*_DEVICES, *CHANGE),
            text="Binds only this device (driver_override), never all devices of its kind. Aliquot records the "
            "previous driver.",
            examples=("aliquot passthrough enable 0 --dry-run", "aliquot passthrough enable 0000:08:00.4"),
            exits=EXITS,
        ),
        CliCommand(
            "disable",
            "bind a device to its previous driver again",
            "commands.passthrough",
            options=(*_DEVICES, *CHANGE),
            text="Refuses while a VM holds the device, and names the VM.",
            examples=("aliquot passthrough disable 0",),
            exits=EXITS,
        ),
    ),
    options=(NODE,),
    examples=("aliquot passthrough list", "aliquot passthrough check 0"),
)
