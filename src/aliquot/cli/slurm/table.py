"""Command table of ``aliquot slurm``: the checks, and the verbs for a whole cluster. Other verbs are in ``table_*``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, OUTPUT, CliCommand, CommandOption
from aliquot.cli.slurm.table_apply import APPLYING
from aliquot.cli.slurm.table_render import DCGM, RENDER, TASK_PROLOG
from aliquot.cli.slurm.table_users import USERS

CHECK = CliCommand(
    "check",
    "check Slurm's GPU files; reports file and line, the rule, and the fix",
    "slurm.check",
    options=(
        CommandOption(
            "--conf-dir",
            help="directory of slurm.conf, gres.conf, cgroup.conf and helpers.conf; default: that of SLURM_CONF, else "
            "/etc/slurm, else the files of a configless slurmd",
            metavar="DIR",
            complete="file",
        ),
        CommandOption(
            "--node-name",
            help="this host's name in Slurm; default: its host name",
            metavar="NAME",
            env="SLURMD_NODENAME",
        ),
        CommandOption(
            "--inventory",
            help="inventory of another node (aliquot show -o json), FILE or NAME=FILE; repeatable; replaces this "
            "host's inventory",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption("--files-only", help="do not compare with GPUs", kind="flag"),
        CommandOption("--dev-root", help="directory that contains dev, if not /", metavar="DIR", complete="file"),
        CommandOption(
            "--live", help="also compare with slurmctld: its counts, and whether it read the files", kind="flag"
        ),
        CommandOption(
            "--script",
            help="also check the steps of a script, a playbook or a page of instructions; repeatable; without "
            "--conf-dir, check nothing else",
            kind="repeat",
            metavar="FILE",
            complete="file",
        ),
        CommandOption(
            "--slurm-version", help="Slurm's release, if it differs from this host's (24.11)", metavar="VERSION"
        ),
        CommandOption("--strict", help="also fail on warnings", kind="flag"),
        CommandOption("--fix", help="print only the commands of the fixes", kind="flag"),
        *EVERYWHERE,
    ),
    text="Parses the files and their includes as Slurm does. An error means that Slurm refuses the files, reads them "
    "differently than intended, or gives a job more than its own devices. A warning works, but hardly as intended.",
    examples=(
        "aliquot slurm check",
        "aliquot slurm check --live",
        "aliquot slurm check --script change-mig.sh",
        "aliquot slurm check --conf-dir etc/slurm --inventory n1=n1.json --slurm-version 24.11",
    ),
    exits="0 no errors (warnings are reported), 30 findings, 2 files are missing or cannot be read",
)

_SETTINGS = CommandOption(
    "-f",
    "--file",
    help="the settings: nodes, commands to reach them, allowed layouts; - for stdin",
    metavar="FILE",
    complete="file",
    required=True,
)

CONTROLLER = CliCommand(
    "controller",
    "repartition idle GPUs for jobs that wait for absent layouts",
    "slurm.controller",
    options=(
        _SETTINGS,
        CommandOption("--once", help="run one reconcile cycle, then exit", kind="flag"),
        CommandOption("--dry-run", help="observe once and print the decision; change nothing", kind="flag"),
        CommandOption(
            "--listen",
            help="serve Prometheus metrics on this address; default: 'listen' in the settings, else none",
            metavar="ADDRESS:PORT",
        ),
        CommandOption(
            "--remove",
            help="delete the placeholders that let jobs wait for absent layouts, then exit",
            kind="flag",
            aliases=("--withdraw",),
        ),
        OUTPUT,
    ),
    text="Runs until SIGTERM, SIGHUP or Ctrl-C on a host with operator rights in Slurm, for example that of slurmctld. "
    "It changes nodes by running 'aliquot slurm apply' on them. Jobs are served by priority, then by age. A node that "
    "has a job is never repartitioned.",
    examples=(
        "aliquot slurm controller -f /etc/aliquot/slurm.yaml",
        "aliquot slurm controller -f slurm.yaml --dry-run",
    ),
    exits="0 done, 20 Slurm does not answer, or another controller runs",
)
DEMAND = CliCommand(
    "demand",
    "show the GPUs that pending jobs need, the planned change for each, or what blocks it",
    "slurm.controller",
    options=(_SETTINGS, OUTPUT),
    text="Reads the queue and the managed nodes once, and changes nothing. States of a job: covered (free devices suit "
    "it), repartitioning, drained (a busy node takes no new jobs for it), waits. A stuck job has devices, but Slurm "
    "does not start it. No layout helps a job that is left to Slurm.",
    exits="0 done, 20 Slurm does not answer",
    examples=("aliquot slurm demand -f /etc/aliquot/slurm.yaml",),
)

SLURM = CliCommand(
    "slurm",
    "configure and change GPUs of Slurm nodes: gres.conf, checks, layouts on demand",
    text="Uses Slurm's own commands, or slurmrestd (ALIQUOT_SLURM=commands|rest|URL).",
    children=(RENDER, CHECK, *APPLYING, CONTROLLER, DEMAND, *USERS, TASK_PROLOG, DCGM),
)
