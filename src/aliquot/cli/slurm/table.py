"""The rows of ``aliquot slurm``: files for a node, checks, and changes that Slurm takes part in. Here are the checks,
and the verbs that work on a whole cluster.
"""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, OUTPUT, CliCommand, CommandOption
from aliquot.cli.slurm.table_apply import APPLYING
from aliquot.cli.slurm.table_cloud import CLOUD
from aliquot.cli.slurm.table_render import DCGM, RENDER, TASK_PROLOG

CHECK = CliCommand(
    "check",
    "what is wrong with Slurm's files for GPUs: with file and line, the rule's name, and what to do",
    "slurm.check",
    options=(
        CommandOption(
            "--conf-dir",
            help="the folder of slurm.conf, gres.conf, cgroup.conf and helpers.conf; that of SLURM_CONF, else "
            "/etc/slurm, else what a configless slurmd was sent",
            metavar="DIR",
            complete="file",
        ),
        CommandOption(
            "--node-name",
            help="this machine's name in Slurm; its host name if not given",
            metavar="NAME",
            env="SLURMD_NODENAME",
        ),
        CommandOption(
            "--inventory",
            help="the GPUs of another node (aliquot show -o json), FILE or NAME=FILE; repeatable; then this machine's "
            "are not looked at",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--files-only", help="compare with no GPUs at all", kind="flag"),
        CommandOption("--dev-root", help="where /dev is, if elsewhere", metavar="DIR", complete="file"),
        CommandOption("--live", help="ask slurmctld, too: what it has, and whether it has read the files", kind="flag"),
        CommandOption(
            "--script",
            help="also look for wrong steps in a script, a playbook or a page of instructions; repeatable; without "
            "--conf-dir at nothing else",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--slurm-version", help="Slurm's release, if it is not the one here (24.11)", metavar="VERSION"),
        CommandOption("--strict", help="warnings count, too", kind="flag"),
        CommandOption("--fix", help="print nothing but the commands to type", kind="flag"),
        *EVERYWHERE,
    ),
    text="Files are read as Slurm itself reads them, with what they include. An error is what Slurm refuses, or takes "
    "otherwise than it is meant, or what gives a job more than its own; a warning works, and hardly as meant.",
    examples=(
        "aliquot slurm check",
        "aliquot slurm check --live",
        "aliquot slurm check --script change-mig.sh",
        "aliquot slurm check --conf-dir etc/slurm --inventory n1=n1.json --slurm-version 24.11",
    ),
    exits="0 nothing wrong (warnings are told), 30 findings, 2 files that are not there or cannot be read",
)

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

SLURM = CliCommand(
    "slurm",
    "Slurm nodes: gres.conf, checks, safe changes, layouts on demand",
    text="Through Slurm's own commands, or slurmrestd (ALIQUOT_SLURM=scontrol|rest chooses).",
    children=(RENDER, CHECK, *APPLYING, CONTROLLER, DEMAND, *CLOUD, TASK_PROLOG, DCGM),
)
