"""The row of ``aliquot doctor``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption

DOCTOR = CliCommand(
    "doctor",
    "check this host or a cluster: report what is missing, and what to type",
    "doctor.doctor",
    options=(
        CommandOption(
            "--kubeconfig",
            help="check this cluster too: the API server, your rights, custom resources, agents",
            metavar="FILE",
            complete="file",
        ),
        *EVERYWHERE,
    ),
    text="It changes nothing. It checks the driver and the GPUs, the permissions of this user, the lock and the "
    "journal. It also checks the programs that may hold GPUs (kubelet, Docker, Podman, containerd, Slurm, libvirt), "
    "optional packages and the C compiler. A program that is not installed is only a note. With --sim it "
    "leaves out the programs of this host, which do not concern a simulated node.",
    examples=("aliquot doctor", "aliquot doctor --kubeconfig $KUBECONFIG -o json"),
    exits="0 no problem, 20 at least one",
)
