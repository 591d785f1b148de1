"""The rows of ``aliquot cdi``. Flags are named as nvidia-ctk names them, where it has them."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, NODE, CliCommand, CommandOption

_VENDOR = CommandOption(
    "--vendor",
    help="the kind's vendor (default nvidia.com, management.nvidia.com with --mode management)",
    metavar="VENDOR",
)
_CLASS = CommandOption("--class", help="the kind's class", metavar="CLASS", default="gpu")

CDI = CliCommand(
    "cdi",
    "device specs for Docker, Podman, containerd and CRI-O",
    text="What runs containers by the Container Device Interface then takes --device nvidia.com/gpu=NAME. Write the "
    "file again after each change of geometry; the agent does that by itself.",
    children=(
        CliCommand(
            "generate",
            "a CDI spec of what this node has now",
            "cdi.cdi",
            options=(
                CommandOption(
                    "--output",
                    help="the file to write, for example /var/run/cdi/nvidia.com-gpu.yaml; else stdout",
                    metavar="FILE",
                    complete="file",
                    env="NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",
                ),
                CommandOption(
                    "-o",
                    "--format",
                    help="yaml or json; the file's name decides if not given",
                    choices=("yaml", "json"),
                    env="NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT",
                ),
                CommandOption(
                    "--mode",
                    help="auto: devices for workloads; management: one device 'all' with every node, those that "
                    "change instances among them",
                    choices=("auto", "management"),
                    default="auto",
                ),
                _VENDOR,
                _CLASS,
                CommandOption(
                    "--device-name-strategy",
                    help="how devices are named: uuid, index (0, 0:1), type-index (gpu0, mig0:1) or place "
                    "(0000:07:00.0-3g.20gb-4, which survives re-creation); repeatable; uuid, index and place if none",
                    kind="repeat",
                    choices=("uuid", "index", "type-index", "place"),
                ),
                CommandOption("--no-all-device", help="no device 'all'", kind="flag"),
                CommandOption(
                    "--whole-mig-gpus",
                    help="offer GPUs in MIG mode whole as well, with all their instances",
                    kind="flag",
                ),
                CommandOption(
                    "--driver-root",
                    help="where the driver is installed",
                    metavar="DIR",
                    complete="file",
                    env="NVIDIA_CTK_DRIVER_ROOT",
                ),
                CommandOption(
                    "--driver-root-ctr-path",
                    help="where this process sees the driver root, if elsewhere",
                    metavar="DIR",
                    complete="file",
                    env="DRIVER_ROOT_CTR_PATH",
                ),
                CommandOption(
                    "--dev-root",
                    help="where /dev is; the driver root if not given",
                    metavar="DIR",
                    complete="file",
                    env="NVIDIA_CTK_DEV_ROOT",
                ),
                CommandOption(
                    "--nvidia-cdi-hook-path",
                    help="the nvidia-cdi-hook program; looked for if not given",
                    metavar="FILE",
                    complete="file",
                    env="NVIDIA_CDI_HOOK_PATH",
                ),
                CommandOption("--force", help="replace a file that Aliquot did not write", kind="flag"),
                NODE,
            ),
            examples=(
                "aliquot cdi generate --output /var/run/cdi/nvidia.com-gpu.yaml",
                "aliquot cdi generate --format json --device-name-strategy uuid",
            ),
        ),
        CliCommand(
            "list",
            "the devices that containers can ask for, by every name, and the files that have them",
            "cdi.cdi",
            options=(
                CommandOption(
                    "--spec-dir",
                    help="where CDI files are; repeatable; /etc/cdi and /var/run/cdi if none",
                    kind="repeat",
                    metavar="DIR",
                    complete="file",
                ),
                _VENDOR,
                _CLASS,
                *EVERYWHERE,
            ),
            exits="0, or 30 where a file of ours has other devices than the node",
        ),
    ),
    options=(NODE,),
    examples=("aliquot cdi generate --output /var/run/cdi/nvidia.com-gpu.yaml", "aliquot cdi list"),
)
