"""The rows of ``aliquot vgpu-dm``: the command line of nvidia-vgpu-dm, with its options and variables."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

_FILE = CommandOption(
    "-f",
    "--config-file",
    help="a config file; - for stdin",
    metavar="FILE",
    complete="file",
    env="VGPU_DM_CONFIG_FILE",
)
_SELECTED = CommandOption(
    "-c",
    "--selected-config",
    help="the named config; not needed if the file has only one",
    metavar="NAME",
    complete="configs",
    env="VGPU_DM_SELECTED_CONFIG",
)
_VALID = CommandOption(
    "-a",
    "--valid-config",
    help="check only the file, and whether it has the config",
    kind="flag",
    env="VGPU_DM_VALID_CONFIG",
)
_DEBUG = CommandOption("-d", "--debug", help="print what is done", kind="flag", env="VGPU_DM_DEBUG")
_ALWAYS = (_DEBUG, NODE)


def _verb(name: str, help: str, *options: CommandOption) -> CliCommand:
    return CliCommand(name, help, "commands.vgpu_dm", options=(*options, *_ALWAYS), go_flags=True)


VGPU_DM = CliCommand(
    "vgpu-dm",
    "run the command line of nvidia-vgpu-dm with Aliquot's planner",
    text="Files, options, VGPU_DM_* variables, success lines and exit codes (0, 1, 3) are those of nvidia-vgpu-dm. "
    "Differences: vGPUs that match are kept, and a vGPU that a VM has open is never destroyed. All three vGPU "
    "frameworks of the kernel work. Virtual functions, MIG mode and the GPU instances of MIG-backed types are part of "
    "the change. A failure is undone, and an impossible request changes nothing. assert checks only the GPUs that the "
    "config covers. A config for other GPUs is accepted with a note.",
    go_flags=True,
    children=(
        _verb("apply", "apply a named config", _FILE, _SELECTED),
        _verb("assert", "check whether a named config is applied", _FILE, _SELECTED, _VALID),
    ),
    options=(*_ALWAYS, CommandOption("--version", help="print the version", kind="flag")),
    examples=("aliquot vgpu-dm apply -f config.yaml -c A2-4Q",),
    exits="0 done, 1 any error, 3 unknown verb",
)
