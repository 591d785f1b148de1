"""The rows of ``aliquot docker``: MIG devices for containers without an orchestrator."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, OUT, CliCommand, CommandOption

_RUNTIME = CommandOption(
    "--runtime",
    help="the container runtime; by default the first of these that is ready",
    choices=("docker", "podman", "nerdctl"),
    env="ALIQUOT_CONTAINER_RUNTIME",
)
_FORM = CommandOption(
    "--form",
    help="cdi: a CDI device name (Docker 25, Podman 4.1 or later). For NVIDIA's container toolkit: gpus (Docker's "
    "--gpus) or env (NVIDIA_VISIBLE_DEVICES); legacy: the one of these two that the runtime takes",
    choices=("cdi", "gpus", "env", "legacy"),
    default="cdi",
)
_HOLD = CommandOption(
    "--hold",
    help="seconds to reserve the device for a container that does not run yet; 'forever': until 'docker release'",
    metavar="SECONDS",
    default="600",
)
_NO_RESERVE = CommandOption(
    "--no-reserve",
    help="only choose: needs no right to write, and does not keep others from taking the device",
    kind="flag",
)
_SHARE = CommandOption("--share", help="share a device that another container holds", kind="flag")
_SPEC_DIR = CommandOption(
    "--spec-dir",
    help="a directory of CDI files; repeatable; by default the directories that the runtime reads",
    kind="repeat",
    metavar="DIR",
    complete="file",
)
_WAIT = CommandOption(
    "--wait",
    help="seconds to wait for other processes that choose or change devices",
    metavar="SECONDS",
    default="30",
    number="float",
)
_PICKING = (_RUNTIME, _FORM, _HOLD, _NO_RESERVE, _SHARE, _SPEC_DIR, _WAIT)

_RUN_ARGS = CliCommand(
    "run-args",
    "print the options of 'docker run' for a free MIG device, and reserve the device",
    "containers.docker",
    options=(
        CommandOption(
            "what",
            help="a profile (3g.20gb), a UUID (MIG-...), or gpu:mig as nvidia-smi numbers them (0:1); several give "
            "one container several devices",
            kind="many",
            metavar="DEVICE",
            complete="profiles",
            required=True,
        ),
        CommandOption("--name", help="the name of the container", metavar="NAME"),
        *_PICKING,
        *EVERYWHERE,
    ),
    text="The reservation ends with the container. A CUDA program uses only one MIG device: with several, each "
    "process needs CUDA_VISIBLE_DEVICES. Store the output in a variable first: 'docker run $(...)' would start a "
    "container without a GPU if no device is free.",
    examples=(
        "args=$(aliquot docker run-args 3g.20gb) && docker run --rm $args IMAGE nvidia-smi -L",
        "aliquot docker run-args 0:1 --form legacy",
    ),
    exits="0, or 20 if no device is free or the runtime cannot use it",
)
_COMPOSE = CliCommand(
    "compose",
    "print a Compose file with a free MIG device for each service",
    "containers.docker",
    options=(
        CommandOption(
            "services",
            help="SERVICE=DEVICE, with DEVICE as for run-args; several devices with commas; DEVICE alone is for the "
            "service 'app'",
            kind="many",
            metavar="SERVICE=DEVICE",
            complete="profiles",
            required=True,
        ),
        CommandOption("--image", help="the image of the services: prints a complete file", metavar="IMAGE"),
        *OUT,
        *_PICKING,
        *EVERYWHERE,
    ),
    text="Without --image, prints a file to merge: docker compose -f compose.yaml -f gpus.yaml up. A service that "
    "keeps its device while it is down needs --hold forever.",
    examples=(
        "aliquot docker compose train=3g.20gb web=1g.5gb --out gpus.yaml",
        "aliquot docker compose app=0:1 --image nvidia/cuda:12.6.0-base-ubuntu24.04",
    ),
)
_CHECK = CliCommand(
    "check",
    "check whether containers can get MIG devices on this host, and print what to do",
    "containers.docker_check",
    options=(_RUNTIME, _SPEC_DIR, *EVERYWHERE),
    examples=("aliquot docker check", "aliquot docker check --runtime podman"),
    exits="0 a container can get a device, 20 it cannot",
)
_LIST = CliCommand(
    "list",
    "list the devices for containers, their holders and the reservations",
    "containers.docker",
    options=(*EVERYWHERE,),
    examples=("aliquot docker list",),
)
_RELEASE = CliCommand(
    "release",
    "end reservations; running containers keep their devices",
    "containers.docker",
    options=(
        CommandOption(
            "what",
            help="a reservation by its id, the name of its container, or the UUID of a device",
            kind="many",
            metavar="WHAT",
        ),
        CommandOption("--all", help="end every reservation", kind="flag"),
        _WAIT,
        *EVERYWHERE,
    ),
    examples=("aliquot docker release web",),
)

DOCKER = CliCommand(
    "docker",
    "give containers of Docker, Podman and containerd a free MIG device each",
    children=(_RUN_ARGS, _COMPOSE, _CHECK, _LIST, _RELEASE),
    examples=(
        "aliquot docker check",
        "args=$(aliquot docker run-args 3g.20gb) && docker run --rm $args IMAGE nvidia-smi -L",
    ),
)
