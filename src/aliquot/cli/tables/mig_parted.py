"""The rows of ``aliquot mig-parted``: the command line of nvidia-mig-parted, with its options and variables."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

_FILE = CommandOption(
    "-f",
    "--config-file",
    help="a config file; - for stdin",
    metavar="FILE",
    complete="file",
    env="MIG_PARTED_CONFIG_FILE",
)
_SELECTED = CommandOption(
    "-c",
    "--selected-config",
    help="the named config; not needed if the file has only one",
    metavar="NAME",
    complete="configs",
    env="MIG_PARTED_SELECTED_CONFIG",
)
_HOOKS = CommandOption(
    "-k", "--hooks-file", help="a hooks file", metavar="FILE", complete="file", env="MIG_PARTED_HOOKS_FILE"
)
_SKIP_RESET = CommandOption("-s", "--skip-reset", help="do not reset GPUs", kind="flag", env="MIG_PARTED_SKIP_RESET")
_MODE_ONLY = CommandOption(
    "-m", "--mode-only", help="change MIG mode only", kind="flag", env="MIG_PARTED_MODE_CHANGE_ONLY"
)
_FORMAT = CommandOption(
    "-o",
    "--output-format",
    help="the output format",
    choices=("yaml", "json"),
    default="yaml",
    env="MIG_PARTED_OUTPUT_FORMAT",
)
_CHECKPOINT = CommandOption(
    "-f",
    "--checkpoint-file",
    help="a checkpoint file",
    metavar="FILE",
    complete="file",
    env="MIG_PARTED_CHECKPOINT_FILE",
)
_VALID = CommandOption(
    "-a",
    "--valid-config",
    help="check only the file, and whether it has the config",
    kind="flag",
    env="MIG_PARTED_VALID_CONFIG",
)
_LABEL = CommandOption(
    "-l",
    "--config-label",
    help="the name of the config",
    metavar="NAME",
    default="current",
    env="MIG_PARTED_CONFIG_LABEL",
)
_OUTPUT_FILE = CommandOption(
    "-f",
    "--output-file",
    help="the file to write; stdout by default",
    metavar="FILE",
    complete="file",
    env="MIG_PARTED_OUTPUT_FILE",
)
DEBUG = CommandOption("-d", "--debug", help="print what is done", kind="flag", env="MIG_PARTED_DEBUG")
_ALWAYS = (DEBUG, NODE)


def _verb(name: str, help: str, *options: CommandOption) -> CliCommand:
    return CliCommand(name, help, "commands.mig_parted", options=(*options, *_ALWAYS), go_flags=True)


MIG_PARTED = CliCommand(
    "mig-parted",
    "run the command line of nvidia-mig-parted with Aliquot's planner",
    text="Files, options, MIG_PARTED_* variables, success lines and exit codes (0, 1, 3) are those of "
    "nvidia-mig-parted. Differences: instances that match are kept, and an impossible or misspelt request changes "
    "nothing. A failure is undone, and only GPUs that need a reset are reset. assert checks only the GPUs that the "
    "config covers. An index that is not on the node, and a config for other GPUs, are accepted with a note.",
    go_flags=True,
    children=(
        _verb("apply", "apply a named config", _FILE, _SELECTED, _HOOKS, _SKIP_RESET, _MODE_ONLY),
        _verb("assert", "check whether a named config is applied", _FILE, _SELECTED, _MODE_ONLY, _VALID),
        _verb("export", "write this node as a config file", _FORMAT, _LABEL),
        _verb("generate-config", "write a config file for this node", _OUTPUT_FILE, _FORMAT),
        _verb("checkpoint", "save the exact state", _CHECKPOINT),
        _verb("restore", "restore a saved state", _CHECKPOINT, _HOOKS, _MODE_ONLY),
    ),
    options=(*_ALWAYS, CommandOption("--version", help="print the version", kind="flag")),
    examples=("aliquot mig-parted apply -f config.yaml -c all-balanced",),
    exits="0 done, 1 any error, 3 unknown verb",
)
