"""The rows of ``aliquot slurm`` that work on a whole cluster, or that Slurm itself calls."""

from __future__ import annotations

from aliquot.cli.framework.command_model import OUTPUT, CliCommand, CommandOption

_SETTINGS = CommandOption(
    "-f",
    "--file",
    help="the settings: which nodes, how they are reached, what they may become; - for stdin",
    metavar="FILE",
    complete="file",
    required=True,
)

CONTROLLER = CliCommand(
    "controller",
    "cut idle GPUs for jobs that wait for layouts which are not there",
    "slurm.controller",
    options=(
        _SETTINGS,
        CommandOption("--once", help="one look, what follows from it, and the end", kind="flag"),
        CommandOption("--dry-run", help="with one look: say what would be done, and do nothing", kind="flag"),
        CommandOption(
            "--listen",
            help="serve figures for Prometheus there, instead of where the settings' listen says; none without",
            metavar="ADDRESS:PORT",
        ),
        CommandOption(
            "--withdraw", help="delete the records that let jobs wait for absent layouts, and end", kind="flag"
        ),
        OUTPUT,
    ),
    text="Runs until SIGTERM, SIGHUP or Ctrl-C, where Slurm's operators are, beside slurmctld for example, and changes "
    "nodes by 'aliquot slurm apply' there. Jobs are served by priority, then by age; no node with a job is ever cut.",
    examples=(
        "aliquot slurm controller -f /etc/aliquot/slurm.yaml",
        "aliquot slurm controller -f slurm.yaml --dry-run",
    ),
    exits="0 done, 20 Slurm does not answer, or another controller is at work",
)
DEMAND = CliCommand(
    "demand",
    "what pending jobs ask of the GPUs, what would be done for each, and why not",
    "slurm.controller",
    options=(_SETTINGS, OUTPUT),
    examples=("aliquot slurm demand -f /etc/aliquot/slurm.yaml",),
)

CONTROL: tuple[CliCommand, ...] = (CONTROLLER, DEMAND)
