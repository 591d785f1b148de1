"""Command table of ``aliquot dra``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUTPUT, CliCommand, CommandOption

KUBECONFIG = CommandOption(
    "--kubeconfig",
    help="a kubeconfig file; by default the service account of the pod, else $KUBECONFIG",
    metavar="FILE",
    complete="file",
)
DRIVER = CommandOption(
    "--dra-driver", help="the name of the driver", metavar="NAME", default="gpu.aliquot.dev", env="DRA_DRIVER"
)
SHOW = CliCommand(
    "show",
    "show the GPUs that nodes publish, the claims that have them, and what else fits",
    "dra.show",
    options=(
        CommandOption("nodes", help="only these nodes", metavar="NODE", kind="many"),
        KUBECONFIG,
        OUTPUT,
    ),
    text="Reads the resource slices and claims of the cluster (resource.k8s.io/v1), also those of NVIDIA's driver. "
    "For a profile of which no device is free, it names the claims that have its room.",
    examples=("aliquot dra show", "aliquot dra show n1 -o json"),
    exits="0 done, 20 the cluster does not answer, or has no GPU in a resource slice",
)
CLASSES = CliCommand(
    "classes",
    "print the DeviceClasses by which pods request GPUs and MIG devices",
    "dra.classes",
    options=(
        CommandOption(
            "families",
            help="families of the catalog; by default what the cluster publishes",
            metavar="FAMILY",
            kind="many",
        ),
        DRIVER,
        CommandOption(
            "--claims-only", help="without names of extended resources: pods must request claims", kind="flag"
        ),
        KUBECONFIG,
        OUTPUT,
    ),
    text="One class for whole GPUs, one for all MIG devices, and one for each profile. If the cluster publishes GPUs "
    "for VMs, one for whole ones and one for each vGPU type. A pod that requests the "
    "resource nvidia.com/mig-1g.10gb then gets an instance through a claim that the scheduler makes. If the device "
    "plugin of a node that serves claims offers the same resource, print the classes with --claims-only.",
    examples=("aliquot dra classes", "aliquot dra classes h100-80gb-sxm --claims-only"),
    exits="0 done, 2 no such family, 20 the cluster does not answer, or the driver has no GPU in a resource slice",
)
CHECK = CliCommand(
    "check",
    "check whether the cluster can serve GPUs by claims: report what is missing, and what to type",
    "dra.check",
    options=(DRIVER, KUBECONFIG, OUTPUT),
    text="It only reads, and asks the API server for rights. It checks the release of the API server and the feature "
    "gates, as far as objects show them, and the rights of the claim agent. It checks every resource slice, the device "
    "classes, and the nodes: claim agents that do not run, and device plugins that offer the same GPUs.",
    examples=("aliquot dra check", "aliquot dra check -o json"),
    exits="0 no problem, 2 no such driver name, 20 at least one problem",
)
DRA = CliCommand(
    "dra",
    "show and check GPUs in Dynamic Resource Allocation, and print device classes",
    children=(SHOW, CLASSES, CHECK),
)
