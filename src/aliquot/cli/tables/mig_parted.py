"""The rows of ``aliquot mig-parted``: the nvidia-mig-parted command line, its flags and its variables."""

from __future__ import annotations

from aliquot.cli.framework.command_model import NODE, CliCommand, CommandOption

_FILE = CommandOption(
    "-f",
    "--config-file",
    help="config file, - for stdin",
    metavar="FILE",
    complete="file",
    env="MIG_PARTED_CONFIG_FILE",
)
_SELECTED = CommandOption(
    "-c",
    "--selected-config",
    help="the named config; not needed if the file has one",
    metavar="NAME",
    complete="configs",
    env="MIG_PARTED_SELECTED_CONFIG",
)
_HOOKS = CommandOption(
    "-k", "--hooks-file", help="hooks file", metavar="FILE", complete="file", env="MIG_PARTED_HOOKS_FILE"
)
_SKIP_RESET = CommandOption("-s", "--skip-reset", help="do not reset GPUs", kind="flag", env="MIG_PARTED_SKIP_RESET")
_MODE_ONLY = CommandOption("-m", "--mode-only", help="MIG mode only", kind="flag", env="MIG_PARTED_MODE_CHANGE_ONLY")
_FORMAT = CommandOption(
    "-o",
    "--output-format",
    help="output format",
    choices=("yaml", "json"),
    default="yaml",
    env="MIG_PARTED_OUTPUT_FORMAT",
)
_CHECKPOINT = CommandOption(
    "-f",
    "--checkpoint-file",
    help="checkpoint file",
    metavar="FILE",
    complete="file",
    env="MIG_PARTED_CHECKPOINT_FILE",
)
DEBUG = CommandOption("-d", "--debug", help="say what is done", kind="flag", env="MIG_PARTED_DEBUG")
_ALWAYS = (DEBUG, NODE)

MIG_PARTED = CliCommand(
    "mig-parted",
    "the nvidia-mig-parted command line over Aliquot's planner",
    text="Files, flags, MIG_PARTED_* variables, success lines and exit codes (0, 1, 3) as nvidia-mig-parted has them. "
    "Differences: what can stay stays, an impossible or misspelt request changes nothing, a failure is undone, only "
    "GPUs that need it are reset, and assert looks at the GPUs that the config covers. An index "
    "that is not on the node, and a config for other GPUs, are accepted with a note.",
    go_flags=True,
    children=(
        CliCommand(
            "apply",
            "apply a named config",
            "commands.mig_parted",
            options=(_FILE, _SELECTED, _HOOKS, _SKIP_RESET, _MODE_ONLY, *_ALWAYS),
        ),
        CliCommand(
            "assert",
            "is a named config applied?",
            "commands.mig_parted",
            options=(
                _FILE,
                _SELECTED,
                _MODE_ONLY,
                CommandOption(
                    "-a",
                    "--valid-config",
                    help="only: is the file valid and the config in it?",
                    kind="flag",
                    env="MIG_PARTED_VALID_CONFIG",
                ),
                *_ALWAYS,
            ),
        ),
        CliCommand(
            "export",
            "this node as a config file",
            "commands.mig_parted",
            options=(
                _FORMAT,
                CommandOption(
                    "-l",
                    "--config-label",
                    help="name of the config",
                    metavar="NAME",
                    default="current",
                    env="MIG_PARTED_CONFIG_LABEL",
                ),
                *_ALWAYS,
            ),
        ),
        CliCommand(
            "generate-config",
            "a config file for this node",
            "commands.mig_parted",
            options=(
                CommandOption(
                    "-f",
                    "--output-file",
                    help="where to write; stdout if not given",
                    metavar="FILE",
                    complete="file",
                    env="MIG_PARTED_OUTPUT_FILE",
                ),
                _FORMAT,
                *_ALWAYS,
            ),
        ),
        CliCommand("checkpoint", "save the exact state", "commands.mig_parted", options=(_CHECKPOINT, *_ALWAYS)),
        CliCommand(
            "restore",
            "bring back a saved state",
            "commands.mig_parted",
            options=(_CHECKPOINT, _HOOKS, _MODE_ONLY, *_ALWAYS),
        ),
    ),
    options=(*_ALWAYS, CommandOption("--version", help="print the version", kind="flag")),
    examples=("aliquot mig-parted apply -f config.yaml -c all-balanced",),
    exits="0 done, 1 any error, 3 unknown verb",
)
