"""The row of ``aliquot capacity``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUTPUT, CliCommand, CommandOption

CAPACITY = CliCommand(
    "capacity",
    "show the GPUs and vGPUs for VMs in a cluster, and whether more VMs fit",
    "commands.capacity",
    extra="agent",
    options=(
        CommandOption(
            "resource", help="show only this resource, for example nvidia.com/NVIDIA_A2-4Q", metavar="RESOURCE"
        ),
        CommandOption(
            "--kubeconfig",
            help="a kubeconfig file; by default the service account of the pod, else $KUBECONFIG",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--request",
            help="report whether RESOURCE or RESOURCE:COUNT fits; repeatable",
            metavar="RESOURCE",
            kind="repeat",
            aliases=("--ask",),
        ),
        CommandOption(
            "--vgpu-info", help="the request as Rancher stores it: vgpuInfo of a machine pool", metavar="JSON"
        ),
        CommandOption(
            "--host-device-info",
            help="the request as Rancher stores it: hostDeviceInfo of a machine pool",
            metavar="JSON",
        ),
        CommandOption("--machines", help="the number of VMs; 1 by default", metavar="COUNT", number="int"),
        CommandOption(
            "--cluster",
            help="a Rancher cluster: VMs of it that exist are not counted twice",
            metavar="NAME",
        ),
        CommandOption("--pool", help="a machine pool of that cluster", metavar="NAME"),
        CommandOption(
            "--namespace", help="the namespace of the VMs of that cluster; 'default' by default", metavar="NAME"
        ),
        OUTPUT,
    ),
    text="Reads nodes, Harvester's device objects and KubeVirt's VMs. 'total' counts the devices that kubelets know, "
    "'usable' the healthy ones, and 'allocatable' those left after running and pending VMs. docs/capacity.md describes "
    "the same numbers for programs.",
    examples=(
        "aliquot capacity",
        "aliquot capacity --request nvidia.com/NVIDIA_A2-4Q:2 --machines 3",
        "aliquot capacity -o json",
    ),
    exits="0 it fits, or nothing was requested; 20 the request does not fit",
)
