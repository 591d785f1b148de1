"""The row of ``aliquot capacity``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUTPUT, CliCommand, CommandOption

CAPACITY = CliCommand(
    "capacity",
    "GPUs and vGPUs for virtual machines in a cluster: how many, who has them, whether more machines fit",
    "commands.capacity",
    options=(
        CommandOption("resource", help="only this one, for example nvidia.com/NVIDIA_A2-4Q", metavar="RESOURCE"),
        CommandOption(
            "--kubeconfig",
            help="a kubeconfig file; else the pod's own rights, else $KUBECONFIG",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--ask", help="does this fit? RESOURCE or RESOURCE:COUNT; repeatable", metavar="WHAT", kind="repeat"
        ),
        CommandOption("--vgpu-info", help="the same as Rancher keeps it: vgpuInfo of a machine pool", metavar="JSON"),
        CommandOption("--host-device-info", help="hostDeviceInfo of a machine pool", metavar="JSON"),
        CommandOption("--machines", help="for so many machines (1 if not given)", metavar="COUNT", number="int"),
        CommandOption(
            "--cluster",
            help="a Rancher cluster: those of its machines that are there already need no second one",
            metavar="NAME",
        ),
        CommandOption("--pool", help="a machine pool of that cluster", metavar="NAME"),
        CommandOption("--namespace", help="where that cluster's machines are (default)", metavar="NAME"),
        OUTPUT,
    ),
    text="Reads nodes, Harvester's device objects and KubeVirt's machines. total: devices that kubelets know; usable: "
    "the healthy ones; allocatable: how many more can be given out, after running machines and those that wait. "
    "docs/capacity.md has the same for programs that poll.",
    examples=(
        "aliquot capacity",
        "aliquot capacity --ask nvidia.com/NVIDIA_A2-4Q:2 --machines 3",
        "aliquot capacity -o json",
    ),
    exits="0, 20 what was asked about does not fit",
)
