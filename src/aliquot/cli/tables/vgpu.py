"""The rows of ``aliquot vgpu``: what virtual machines can share of each GPU."""

from __future__ import annotations

from aliquot.cli.framework.command_model import (
    EVERYWHERE,
    HOOKS,
    NODE,
    POLICY,
    TIMEOUT,
    WATCH,
    YES,
    CliCommand,
    CommandOption,
)

_ANY = CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus")
GPU = CommandOption(
    "gpu", help="a GPU by index, PCI address, UUID or product", metavar="GPU", complete="gpus", required=True
)
DRY_RUN = CommandOption("--dry-run", help="show the plan and touch nothing", kind="flag")
CHANGE = (DRY_RUN, POLICY, TIMEOUT, HOOKS, YES, *EVERYWHERE)
EXITS = "as apply; with --dry-run as plan"

VGPU = CliCommand(
    "vgpu",
    "vGPUs for virtual machines: types, what there is, virtual functions",
    text="What a GPU should hold is asked with 'aliquot apply --gpu GPU --vgpu TYPE*N' or in a file, as for MIG.",
    children=(
        CliCommand(
            "types",
            "the vGPU types of each GPU: creatable now, how many more, and why the rest is not",
            "commands.vgpu",
            options=(_ANY, *EVERYWHERE),
            examples=("aliquot vgpu types", "aliquot vgpu types 0 -o json"),
        ),
        CliCommand(
            "list",
            "the vGPUs that there are, on which function, and which virtual machine has them",
            "commands.vgpu",
            options=(_ANY, WATCH, *EVERYWHERE),
            examples=("aliquot vgpu list", "aliquot vgpu list --watch"),
        ),
        CliCommand(
            "enable",
            "switch a GPU's virtual functions on (SR-IOV)",
            "commands.vgpu",
            options=(GPU, *CHANGE),
            text="The driver forgets GPU instances and mixed-size mode when it does that: the plan says what goes.",
            examples=("aliquot vgpu enable 0 --dry-run", "aliquot vgpu enable 0"),
            exits=EXITS,
        ),
        CliCommand(
            "disable",
            "destroy a GPU's idle vGPUs and switch its virtual functions off",
            "commands.vgpu",
            options=(GPU, *CHANGE),
            text="It refuses while a virtual machine has one of the vGPUs, and names it.",
            examples=("aliquot vgpu disable 0 --dry-run",),
            exits=EXITS,
        ),
    ),
    options=(NODE,),
    examples=("aliquot vgpu types 0", "aliquot vgpu list"),
)
