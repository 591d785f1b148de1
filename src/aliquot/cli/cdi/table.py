"""The rows of ``aliquot cdi``. Options have the names of nvidia-ctk, if it has them."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, FORCE, NODE, CliCommand, CommandOption, out_option

_VENDOR = CommandOption(
    "--vendor",
    help="the vendor of the CDI kind; by default nvidia.com, or management.nvidia.com with --mode management",
    metavar="VENDOR",
)
_CLASS = CommandOption("--class", help="the class of the CDI kind", metavar="CLASS", default="gpu")

CDI = CliCommand(
    "cdi",
    "write device specs for Docker, Podman, containerd and CRI-O",
    text="Runtimes with the Container Device Interface then take --device nvidia.com/gpu=NAME. Aliquot updates its "
    "files in /etc/cdi and /var/run/cdi after each change that it makes. After a change by another tool, write the "
    "file again.",
    children=(
        CliCommand(
            "generate",
            "write a CDI spec of the devices of this node",
            "cdi.cdi",
            options=(
                out_option(
                    "write the spec to a file, for example /var/run/cdi/nvidia.com-gpu.yaml, instead of stdout",
                    env="NVIDIA_CTK_CDI_OUTPUT_FILE_PATH",
                    aliases=("--output",),
                    folders="its folder, unless it is /etc/cdi or /var/run/cdi,",
                ),
                CommandOption(
                    "-o",
                    "--output",
                    help="the format of the spec; text: JSON if the name of the file ends with .json, else YAML",
                    metavar="FORMAT",
                    choices=("text", "json", "yaml"),
                    default="text",
                    env="NVIDIA_CTK_CDI_GENERATE_OUTPUT_FORMAT",
                    aliases=("--format",),
                ),
                CommandOption(
                    "--mode",
                    help="auto: devices for workloads; management: one device 'all' with every device node, also "
                    "those that change instances",
                    choices=("auto", "management"),
                    default="auto",
                ),
                _VENDOR,
                _CLASS,
                CommandOption(
                    "--device-name-strategy",
                    help="the names of devices: uuid, index (0, 0:1), type-index (gpu0, mig0:1) or place "
                    "(0000:07:00.0-3g.20gb-4, which survives re-creation); repeatable; by default uuid, index and "
                    "place",
                    kind="repeat",
                    choices=("uuid", "index", "type-index", "place"),
                ),
                CommandOption("--no-all-device", help="write no device 'all'", kind="flag"),
                CommandOption(
                    "--whole-mig-gpus",
                    help="also offer GPUs in MIG mode whole, with all their instances",
                    kind="flag",
                ),
                CommandOption(
                    "--driver-root",
                    help="the root directory of the driver",
                    metavar="DIR",
                    complete="file",
                    env="NVIDIA_CTK_DRIVER_ROOT",
                ),
                CommandOption(
                    "--driver-root-ctr-path",
                    help="the path of that directory in this process, if it differs",
                    metavar="DIR",
                    complete="file",
                    env="DRIVER_ROOT_CTR_PATH",
                ),
                CommandOption(
                    "--dev-root",
                    help="the directory that contains /dev; the driver root by default",
                    metavar="DIR",
                    complete="file",
                    env="NVIDIA_CTK_DEV_ROOT",
                ),
                CommandOption(
                    "--nvidia-cdi-hook-path",
                    help="the nvidia-cdi-hook program; searched for by default",
                    metavar="FILE",
                    complete="file",
                    env="NVIDIA_CDI_HOOK_PATH",
                ),
                FORCE,
                NODE,
            ),
            examples=(
                "aliquot cdi generate --out /var/run/cdi/nvidia.com-gpu.yaml",
                "aliquot cdi generate -o json --device-name-strategy uuid",
            ),
        ),
        CliCommand(
            "list",
            "list the devices that containers can request, by every name, with the files that define them",
            "cdi.cdi",
            options=(
                CommandOption(
                    "--spec-dir",
                    help="a directory of CDI files; repeatable; by default /etc/cdi and /var/run/cdi",
                    kind="repeat",
                    metavar="DIR",
                    complete="file",
                ),
                _VENDOR,
                _CLASS,
                *EVERYWHERE,
            ),
            exits="0, or 30 if a file that Aliquot wrote lists other devices than the node has",
        ),
    ),
    options=(NODE,),
    examples=("aliquot cdi generate --out /var/run/cdi/nvidia.com-gpu.yaml", "aliquot cdi list"),
)
