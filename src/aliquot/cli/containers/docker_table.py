"""The rows of ``aliquot docker``: MIG devices for plain containers."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, OUT, CliCommand, CommandOption

_RUNTIME = CommandOption(
    "--runtime",
    help="the first of these that is ready, if not given",
    choices=("docker", "podman", "nerdctl"),
    env="ALIQUOT_CONTAINER_RUNTIME",
)
_FORM = CommandOption(
    "--form",
    help="cdi: a CDI device name (Docker 25, Podman 4.1 or later). For NVIDIA's container toolkit: gpus (Docker's "
    "--gpus), env (NVIDIA_VISIBLE_DEVICES); legacy is what of these two the runtime takes",
    choices=("cdi", "gpus", "env", "legacy"),
    default="cdi",
)
_HOLD = CommandOption(
    "--hold",
    help="seconds that the device is kept for a container that has not come yet; 'forever': until 'docker release'",
    metavar="SECONDS",
    default="600",
)
_NO_RESERVE = CommandOption(
    "--no-reserve", help="only pick: needs no right to write, and keeps nobody else from taking it", kind="flag"
)
_SHARE = CommandOption("--share", help="take a device although somebody has it", kind="flag")
_SPEC_DIR = CommandOption(
    "--spec-dir",
    help="where CDI files are; repeatable; if none, where the runtime looks",
    kind="repeat",
    metavar="DIR",
    complete="file",
)
_WAIT = CommandOption(
    "--wait", help="seconds to wait for others that pick or change", metavar="SECONDS", default="30", number="float"
)
_PICKING = (_RUNTIME, _FORM, _HOLD, _NO_RESERVE, _SHARE, _SPEC_DIR, _WAIT)

_RUN_ARGS = CliCommand(
    "run-args",
    "what to type after 'docker run' for a free MIG device, which is reserved until its container is gone",
    "containers.docker",
    options=(
        CommandOption(
            "what",
            help="a profile (3g.20gb), a UUID (MIG-...), or gpu:mig as nvidia-smi numbers them (0:1); several give one "
            "container several devices",
            kind="many",
            metavar="DEVICE",
            complete="profiles",
            required=True,
        ),
        CommandOption("--name", help="the container's name", metavar="NAME"),
        *_PICKING,
        *EVERYWHERE,
    ),
    text="A program uses one MIG device at most: with several, each process needs CUDA_VISIBLE_DEVICES. Keep the words "
    "in a variable first: 'docker run $(...)' would start a container without a GPU where nothing is free.",
    examples=(
        "args=$(aliquot docker run-args 3g.20gb) && docker run --rm $args IMAGE nvidia-smi -L",
        "aliquot docker run-args 0:1 --form legacy",
    ),
    exits="0, or 20 where nothing is free or the runtime cannot do it",
)
_COMPOSE = CliCommand(
    "compose",
    "a Compose file, or what to merge into one, with a free MIG device for each service",
    "containers.docker",
    options=(
        CommandOption(
            "services",
            help="SERVICE=DEVICE, DEVICE as for run-args; several devices with commas; a DEVICE alone is service app",
            kind="many",
            metavar="SERVICE=DEVICE",
            complete="profiles",
            required=True,
        ),
        CommandOption("--image", help="the services' image: makes it a whole file", metavar="IMAGE"),
        *OUT,
        *_PICKING,
        *EVERYWHERE,
    ),
    text="Without --image it is a file to merge: docker compose -f compose.yaml -f gpus.yaml up. A service that is to "
    "keep its device while it is down needs --hold forever.",
    examples=(
        "aliquot docker compose train=3g.20gb web=1g.5gb --out gpus.yaml",
        "aliquot docker compose app=0:1 --image nvidia/cuda:12.6.0-base-ubuntu24.04",
    ),
)
_CHECK = CliCommand(
    "check",
    "can containers get MIG devices here? Runtimes, CDI and its files, NVIDIA's toolkit, with what to type next",
    "containers.docker_check",
    options=(_RUNTIME, _SPEC_DIR, *EVERYWHERE),
    examples=("aliquot docker check", "aliquot docker check --runtime podman"),
    exits="0 a container can get a device, 20 it cannot",
)
_LIST = CliCommand(
    "list",
    "the devices that a container can have, who has each, and what is reserved",
    "containers.docker",
    options=(*EVERYWHERE,),
    examples=("aliquot docker list",),
)
_RELEASE = CliCommand(
    "release",
    "end reservations; containers that run keep their devices",
    "containers.docker",
    options=(
        CommandOption(
            "what",
            help="a reservation by its id, its container's name, or a device's UUID",
            kind="many",
            metavar="WHAT",
        ),
        CommandOption("--all", help="every reservation", kind="flag"),
        _WAIT,
        *EVERYWHERE,
    ),
    examples=("aliquot docker release web",),
)

DOCKER = CliCommand(
    "docker",
    "plain containers of Docker, Podman and containerd: a free MIG device for each",
    children=(_RUN_ARGS, _COMPOSE, _CHECK, _LIST, _RELEASE),
    examples=(
        "aliquot docker check",
        "args=$(aliquot docker run-args 3g.20gb) && docker run --rm $args IMAGE nvidia-smi -L",
    ),
)
