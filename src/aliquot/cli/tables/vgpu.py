"""The rows of ``aliquot vgpu``: vGPUs for VMs."""

from __future__ import annotations

from aliquot.cli.framework.command_model import (
    EACH,
    EVERYWHERE,
    GPUS,
    HOOKS,
    NODE,
    POLICY,
    TIMEOUT,
    WAIT_FOR_LOCK,
    WATCH,
    YES,
    CliCommand,
    CommandOption,
)

DRY_RUN = CommandOption("--dry-run", help="show the plan and touch nothing", kind="flag")
CHANGE = (DRY_RUN, EACH, POLICY, TIMEOUT, WAIT_FOR_LOCK, HOOKS, YES, *EVERYWHERE)
EXITS = "as apply; with --dry-run as plan"

VGPU = CliCommand(
    "vgpu",
    "show vGPU types and vGPUs, and enable virtual functions (SR-IOV)",
    text="Request vGPUs with 'aliquot apply --gpu GPU --vgpu TYPE*N' or in a config file, as for MIG.",
    children=(
        CliCommand(
            "types",
            "list the vGPU types of each GPU: how many can be created now, and why not more",
            "commands.vgpu",
            options=(*GPUS, *EVERYWHERE),
            examples=("aliquot vgpu types", "aliquot vgpu types 0 -o json"),
        ),
        CliCommand(
            "list",
            "list the vGPUs, their virtual functions and the VMs that hold them",
            "commands.vgpu",
            options=(*GPUS, WATCH, *EVERYWHERE),
            examples=("aliquot vgpu list", "aliquot vgpu list --watch"),
        ),
        CliCommand(
            "enable",
            "enable the virtual functions of a GPU (SR-IOV)",
            "commands.vgpu",
            options=(*GPUS, *CHANGE),
            text="The driver then drops GPU instances and mixed-size mode: the plan lists what is lost.",
            examples=("aliquot vgpu enable 0 --dry-run", "aliquot vgpu enable 0"),
            exits=EXITS,
        ),
        CliCommand(
            "disable",
            "destroy the idle vGPUs of a GPU and disable its virtual functions",
            "commands.vgpu",
            options=(*GPUS, *CHANGE),
            text="Refuses while a VM holds one of the vGPUs, and names the VM.",
            examples=("aliquot vgpu disable 0 --dry-run",),
            exits=EXITS,
        ),
    ),
    options=(NODE,),
    examples=("aliquot vgpu types 0", "aliquot vgpu list"),
)
