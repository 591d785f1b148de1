"""Command table of ``aliquot dra``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUTPUT, CliCommand, CommandOption

KUBECONFIG = CommandOption(
    "--kubeconfig",
    help="a kubeconfig file; by default the service account of the pod, else $KUBECONFIG",
    metavar="FILE",
    complete="file",
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
DRA = CliCommand(
    "dra",
    "show the GPUs of Kubernetes Dynamic Resource Allocation, and who has them",
    children=(SHOW,),
)
