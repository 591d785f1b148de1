"""Command table of ``aliquot slurm apply`` and ``aliquot slurm node``."""

from __future__ import annotations

from aliquot.cli.framework.command_model import (
    COMPAT,
    CONFIG,
    EVERYWHERE,
    FILE,
    GPU,
    HOOKS,
    MIG,
    MODE_ONLY,
    POLICY,
    WAIT_FOR_LOCK,
    YES,
    CliCommand,
    CommandOption,
)

NODE_NAME = CommandOption(
    "--node-name",
    help="the node's name in Slurm; default: this host's name",
    metavar="NAME",
    env="SLURMD_NODENAME",
)
CONF_DIR = CommandOption(
    "--conf-dir",
    help="directory of slurm.conf and gres.conf; default: that of SLURM_CONF, else /etc/slurm",
    metavar="DIR",
    complete="file",
)
CAPACITY = CommandOption(
    "--capacity",
    help="GPUs that this Slurm node offers, named as by --gpu; default: all GPUs of the host (with a slurmd per GPU: "
    "its own)",
    kind="repeat",
    metavar="GPU",
    complete="gpus",
    aliases=("--offers",),
)
_RUN = (
    NODE_NAME,
    CONF_DIR,
    CAPACITY,
    CommandOption(
        "--type-style",
        help="the names of GRES types: short (a100_3g.20gb), full (nvidia_a100_3g.20gb), profile (3g.20gb)",
        choices=("short", "full", "profile"),
    ),
    CommandOption(
        "--autodetect",
        help="form of gres.conf: explicit lines (none, or off with a global AutoDetect), or detection by slurmd",
        choices=("none", "off", "nvml", "nvidia", "full"),
    ),
    CommandOption("--slurmd-unit", help="the systemd unit of slurmd", metavar="UNIT"),
    CommandOption(
        "--slurmd-start",
        help="the shell command that starts slurmd, instead of a unit: eval slurmd $ALIQUOT_SLURMD_OPTIONS",
        metavar="COMMAND",
    ),
    CommandOption(
        "--slurmd-stop",
        help="the shell command that stops slurmd and returns after its end; must succeed if none runs",
        metavar="COMMAND",
    ),
    CommandOption("--slurmd-options", help="the environment file with SLURMD_OPTIONS", metavar="FILE", complete="file"),
    CommandOption(
        "--node-conf",
        help="a dynamic node's keys other than Gres ('CPUs=64 RealMemory=500000 Feature=mig'), if they change",
        metavar="WORDS",
    ),
    CommandOption(
        "--slurmctld-restart",
        help="the shell command that restarts slurmctld, for static nodes before Slurm 23.11; by-hand: you restart it",
        metavar="COMMAND",
    ),
    CommandOption("--push", help="a shell command that copies changed files to the other nodes", metavar="COMMAND"),
    CommandOption(
        "--dev-root",
        help="directory below which device nodes are created; default: /, or the simulated node's directory",
        metavar="DIR",
        complete="file",
    ),
)

APPLY = CliCommand(
    "apply",
    "change GPUs under Slurm: drain, wait, partition, write the files, register, verify, resume",
    "slurm.apply",
    options=(
        FILE,
        CONFIG,
        GPU,
        MIG,
        COMPAT,
        MODE_ONLY,
        CommandOption(
            "--jobs",
            help="policy for jobs on the node: refuse to start, wait for them to end, or requeue them",
            choices=("refuse", "wait", "requeue"),
            default="refuse",
        ),
        CommandOption(
            "--timeout",
            help="time limit in seconds of --jobs wait, --policy wait and a manual restart of slurmctld",
            metavar="SECONDS",
            default="60",
            number="float",
        ),
        POLICY,
        CommandOption(
            "--feature",
            help="a feature that the node has after the change, such as a layout's name; repeatable",
            kind="repeat",
        ),
        CommandOption(
            "--revision", help="a text about the layout that Slurm shows as the node's Extra", metavar="TEXT"
        ),
        CommandOption(
            "--slots",
            help="keep a constant number of records, so that later changes repartition idle slots beside running jobs; "
            "without it the node has a record for each device",
            kind="flag",
        ),
        CommandOption("--force", help="overwrite manual edits in the managed block of gres.conf", kind="flag"),
        CommandOption("--dry-run", help="show the plan and the differences of files, and change nothing", kind="flag"),
        CommandOption(
            "--continue", help="finish an interrupted change, or its undo; needs no other options", kind="flag"
        ),
        CommandOption("--undo", help="undo an interrupted change", kind="flag"),
        CommandOption(
            "--boot",
            help="finish all interrupted changes on this host, for example after a power loss; none is a success",
            kind="flag",
        ),
        WAIT_FOR_LOCK,
        HOOKS,
        YES,
        *_RUN,
        *EVERYWHERE,
    ),
    text="Without a request the GPUs stay, and Slurm is updated to match them. Nothing is touched before all checks "
    "pass. After a failure the change is undone, and the node stays drained with the reason. A killed change continues "
    "with --continue or the same command. A node that someone else drained stays drained.",
    examples=(
        "aliquot slurm apply --gpu 0 --mig 3g.20gb*2 --jobs wait --timeout 7200",
        "aliquot slurm apply -f layout.yaml -c day --slurmctld-restart 'ssh ctl systemctl restart slurmctld'",
        "aliquot slurm apply --gpu 0-3 --mig 1g.10gb*7 --dry-run",
        "aliquot slurm apply --continue",
    ),
    exits="0 done, undone by --undo, or nothing to do, 10 you answered no, 20 blocked or stopped on record, 40 "
    "hardware refused (change undone)",
)
NODE = CliCommand(
    "node",
    "show this host as a Slurm node: GPUs, their GRES, how slurmd runs, and the last change",
    "slurm.apply",
    options=(*_RUN, *EVERYWHERE),
    text="The controller reads it with -o json.",
    examples=("aliquot slurm node -o json",),
)
APPLYING = (APPLY, NODE)
