"""The rows of ``aliquot slurm apply`` and ``aliquot slurm node``."""

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
    YES,
    CliCommand,
    CommandOption,
)

NODE_NAME = CommandOption(
    "--node-name",
    help="the node's name in Slurm; this machine's host name if not given",
    metavar="NAME",
    env="SLURMD_NODENAME",
)
CONF_DIR = CommandOption(
    "--conf-dir",
    help="the folder of slurm.conf and gres.conf; that of SLURM_CONF, else /etc/slurm",
    metavar="DIR",
    complete="file",
)
OFFERS = CommandOption(
    "--offers",
    help="a GPU that this Slurm node offers; all of the host if not given (one slurmd per GPU: name each its own)",
    kind="repeat",
    metavar="GPU",
    complete="gpus",
)
_RUN = (
    NODE_NAME,
    CONF_DIR,
    OFFERS,
    CommandOption(
        "--type-style",
        help="names of types: short (a100_3g.20gb), full (nvidia_a100_3g.20gb), profile (3g.20gb)",
        choices=("short", "full", "profile"),
    ),
    CommandOption(
        "--autodetect",
        help="how gres.conf says it: explicit lines (none, or off beside a global AutoDetect), or slurmd looks itself",
        choices=("none", "off", "nvml", "nvidia", "full"),
    ),
    CommandOption("--slurmd-unit", help="slurmd's systemd unit", metavar="UNIT"),
    CommandOption(
        "--slurmd-start",
        help="the shell command that starts slurmd, instead of a unit: eval slurmd $ALIQUOT_SLURMD_OPTIONS",
        metavar="COMMAND",
    ),
    CommandOption(
        "--slurmd-stop",
        help="the shell command that stops it, returns when it has ended, and is content where none runs",
        metavar="COMMAND",
    ),
    CommandOption("--slurmd-options", help="the environment file with SLURMD_OPTIONS", metavar="FILE", complete="file"),
    CommandOption(
        "--node-conf",
        help="a dynamic node's words beside Gres ('CPUs=64 RealMemory=500000 Feature=mig'), if Slurm has others",
        metavar="WORDS",
    ),
    CommandOption(
        "--slurmctld-restart",
        help="the shell command that restarts slurmctld, for static nodes before Slurm 23.11; by-hand: you do it",
        metavar="COMMAND",
    ),
    CommandOption("--push", help="a shell command that takes changed files to the other nodes", metavar="COMMAND"),
    CommandOption(
        "--dev-root",
        help="below which folder device nodes are made; /, or the simulated node's folder",
        metavar="DIR",
        complete="file",
    ),
)

APPLY = CliCommand(
    "apply",
    "change GPUs under Slurm: drain, wait, cut, write the files, register, prove, resume",
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
            help="jobs on the node: refuse to begin, wait for their ends, or requeue them",
            choices=("refuse", "wait", "requeue"),
            default="refuse",
        ),
        CommandOption(
            "--timeout",
            help="seconds that --jobs wait, --policy wait and a restart of slurmctld by hand may last",
            metavar="SECONDS",
            default="60",
            number="float",
        ),
        POLICY,
        CommandOption("--feature", help="the node's features from now on, a layout's name among them", kind="repeat"),
        CommandOption("--revision", help="what Slurm shows of the layout, as the node's Extra", metavar="TEXT"),
        CommandOption("--force", help="overwrite what somebody wrote into our lines of gres.conf", kind="flag"),
        CommandOption(
            "--dry-run", help="say what would be done, with the files' differences, and touch nothing", kind="flag"
        ),
        CommandOption("--continue", help="finish the change that was cut off; nothing else need be typed", kind="flag"),
        CommandOption("--undo", help="undo the change that was cut off", kind="flag"),
        CommandOption(
            "--boot",
            help="finish whatever a power loss has cut off on this host; nothing to finish is a success",
            kind="flag",
        ),
        HOOKS,
        YES,
        *_RUN,
        *EVERYWHERE,
    ),
    text="Without a wish the GPUs stay, and Slurm is told what they are. Nothing is touched before it is known that "
    "it can be done. A failure undoes all of it and leaves the node drained, with the reason; a kill costs nothing: "
    "--continue, or the same command, goes on. Who was drained by somebody else stays drained.",
    examples=(
        "aliquot slurm apply --gpu 0 --mig 3g.20gb*2 --jobs wait --timeout 7200",
        "aliquot slurm apply -f layout.yaml -c day --slurmctld-restart 'ssh ctl systemctl restart slurmctld'",
        "aliquot slurm apply --gpu 0-3 --mig 1g.10gb*7 --dry-run",
        "aliquot slurm apply --continue",
    ),
    exits="0 done or nothing to do, 10 you answered no, 20 blocked or stopped on record, 40 hardware refused (and it "
    "was undone)",
)
NODE = CliCommand(
    "node",
    "what this host is to Slurm: GPUs, what they offer, how slurmd runs, what was changed last",
    "slurm.apply",
    options=(*_RUN, *EVERYWHERE),
    text="A controller reads it with -o json.",
    examples=("aliquot slurm node -o json",),
)
APPLYING = (APPLY, NODE)
