"""The rows of ``aliquot passthrough``: whole GPUs, or single virtual functions, for one virtual machine."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, NODE, CliCommand, CommandOption
from aliquot.cli.tables.vgpu import CHANGE, EXITS

_DEVICE = CommandOption(
    "device",
    help="a GPU by index, PCI address, UUID or product, or a virtual function by its PCI address",
    metavar="DEVICE",
    complete="gpus",
    required=True,
)

PASSTHROUGH = CliCommand(
    "passthrough",
    "whole GPUs, or virtual functions, for one virtual machine (vfio-pci)",
    children=(
        CliCommand(
            "list",
            "which driver has each GPU and each virtual function, and who has it",
            "commands.passthrough",
            options=EVERYWHERE,
            examples=("aliquot passthrough list",),
        ),
        CliCommand(
            "check",
            "whether a device can be handed out now: IOMMU, its IOMMU group, who has it",
            "commands.passthrough",
            options=(_DEVICE, *EVERYWHERE),
            examples=("aliquot passthrough check 0",),
            exits="0 it can be, or it is already; 20 it cannot",
        ),
        CliCommand(
            "enable",
            "hand a device to vfio-pci",
            "commands.passthrough",
            options=(_DEVICE, *CHANGE),
            text="Only this device is bound (driver_override), never all of its kind. The driver that it had is kept "
            "on record.",
            examples=("aliquot passthrough enable 0 --dry-run", "aliquot passthrough enable 0000:08:00.4"),
            exits=EXITS,
        ),
        CliCommand(
            "disable",
            "give a device back to the driver that it had",
            "commands.passthrough",
            options=(_DEVICE, *CHANGE),
            text="It refuses while a virtual machine has the device, and names it.",
            examples=("aliquot passthrough disable 0",),
            exits=EXITS,
        ),
    ),
    options=(NODE,),
    examples=("aliquot passthrough list", "aliquot passthrough check 0"),
)
