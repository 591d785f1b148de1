"""Command table of ``aliquot slurm`` for layouts that Slurm switches: node_features/helpers and CLOUD records."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption
from aliquot.cli.slurm.table_apply import CAPACITY, CONF_DIR, NODE_NAME

_LAYOUT = CommandOption(
    "--layout",
    help="layout of each GPU: 3g.20gb,3g.20gb or 2x3g.20gb or mig_2x3g.20gb; repeatable",
    kind="repeat",
    metavar="LAYOUT",
    complete="profiles",
)
_VERSION = CommandOption("--slurm", help="the release to write for; default: that of slurmctld", metavar="VERSION")
_START = CommandOption(
    "--slurmd-start", help="the shell command that starts slurmd, instead of a unit", metavar="COMMAND"
)
_STOP = CommandOption(
    "--slurmd-stop", help="the shell command that stops slurmd and returns after its end", metavar="COMMAND"
)
_DEV_ROOT = CommandOption(
    "--dev-root", help="directory below which device nodes are created", metavar="DIR", complete="file"
)
_STYLE = CommandOption(
    "--type-style",
    help="the names of GRES types: short (a100_3g.20gb), full (nvidia_a100_3g.20gb), profile (3g.20gb)",
    choices=("short", "full", "profile"),
    default="short",
)
_SIBLINGS = CommandOption(
    "--siblings",
    help="a file from 'aliquot slurm siblings -o json', or a directory of such files",
    metavar="PATH",
    default="/etc/aliquot/siblings",
    env="ALIQUOT_SLURM_SIBLINGS",
    complete="file",
)
_LOG = CommandOption("--log", help="directory for the output of the hosts", metavar="DIR", default="/var/log/aliquot")

FAMILIES = CliCommand(
    "families",
    "list layouts by number of devices: node_features/helpers switches within one number; renders helpers.conf",
    "slurm.helper",
    options=(
        _LAYOUT,
        CAPACITY,
        NODE_NAME,
        _VERSION,
        CommandOption("--all", help="also list layouts of profiles with attributes (+me)", kind="flag"),
        CommandOption(
            "--helper", help="the helper program", metavar="PATH", default="/usr/local/libexec/aliquot/mig-helper"
        ),
        CommandOption(
            "--exec-time", help="time limit of one call in seconds", metavar="SECONDS", default="120", number="int"
        ),
        CommandOption(
            "--boot-time", help="time limit of a change in seconds", metavar="SECONDS", default="300", number="int"
        ),
        CommandOption(
            "--allow-user", help="a user who may cause a change; default: all users", kind="repeat", metavar="USER"
        ),
        *EVERYWHERE,
    ),
    text="Slurm compares the number of devices that a node registers with the configured number. Therefore only "
    "layouts with the same number can be features of a node, and its Gres is untyped. A job requests the layout "
    "(-C mig_2x3g.20gb) and any device in it (--gres=gpu:1). Use layouts of several profiles only for jobs that take "
    "the whole node.",
    examples=("aliquot slurm families", "aliquot slurm families --layout 2x3g.20gb --layout 4g.20gb,3g.20gb"),
)
HELPER = CliCommand(
    "helper",
    "the helper program of node_features/helpers: print the active layout, or activate one",
    "slurm.helper",
    options=(
        CommandOption("feature", help="the layout to activate: mig_2x3g.20gb", metavar="FEATURE"),
        NODE_NAME,
        CONF_DIR,
        CAPACITY,
        _DEV_ROOT,
        CommandOption("--no-reload", help="do not let slurmd read gres.conf again", kind="flag"),
        *EVERYWHERE,
    ),
    text="slurmd runs it through deploy/slurm/mig-helper. It changes the GPUs, then gres.conf, then sends SIGHUP to "
    "slurmd. If no feature describes the layout of the GPUs, it prints nothing and drains the node, because Slurm "
    "treats missing output, and a failure, as success.",
    examples=("aliquot slurm helper", "aliquot slurm helper mig_2x3g.20gb"),
    exits="0 done, 20 blocked, 40 hardware refused (change undone)",
)
SIBLINGS = CliCommand(
    "siblings",
    "render a host's CLOUD records, one per layout: lines for slurm.conf, and the file that 'slurm power' reads",
    "slurm.siblings",
    options=(
        _LAYOUT,
        CAPACITY,
        NODE_NAME,
        _VERSION,
        CommandOption("--address", help="the host's address for slurmctld", metavar="ADDRESS"),
        CommandOption("--port", help="the first record's slurmd port; the others follow", default="6820", number="int"),
        CommandOption("--hardware", help="CPUs and memory; default: output of 'slurmd -C'", metavar="WORDS"),
        CommandOption("--feature", help="a static feature of all records; repeatable", kind="repeat", metavar="NAME"),
        CommandOption(
            "--idle", help="seconds without a job after which a record powers down", default="300", number="int"
        ),
        CommandOption(
            "--via",
            help="the command that runs commands on the host: 'ssh {host}'",
            metavar="COMMAND",
            aliases=("--reach",),
        ),
        CommandOption("--check", help="show the open records; more than one per host is an error", kind="flag"),
        CommandOption("--open", help="make this record the only open one of its host", metavar="RECORD"),
        CommandOption(
            "--timeout",
            help="time limit in seconds of --open for jobs to end",
            metavar="SECONDS",
            default="60",
            number="float",
        ),
        _STYLE,
        CONF_DIR,
        _START,
        _STOP,
        _DEV_ROOT,
        *EVERYWHERE,
    ),
    text="Exactly one record of a host may be open (not drained): two would start at once and wait for each other. "
    "'aliquot slurm controller' ensures that, and swaps records for jobs. --open does it manually: it drains the "
    "others, waits for their jobs, powers them down, and opens the record last.",
    examples=(
        "aliquot slurm siblings --layout 2x3g.20gb --layout 7x1g.5gb --via 'ssh {host}' -o json",
        "aliquot slurm siblings --check",
        "aliquot slurm siblings --open n1-7x1g-5gb --timeout 3600",
    ),
    exits="0 done, 20 blocked, or jobs did not end in time (--open), 30 several records of one host are open (--check)",
)
_NODE = CommandOption("record", help="the name of a record", metavar="RECORD", required=True)
_HOSTS = CommandOption("hosts", help="records as a host list: n[1-4]-2x3g-20gb", metavar="HOSTLIST", required=True)
_HOST_SIDE = (_LAYOUT, CAPACITY, CONF_DIR, _STYLE, _START, _STOP, _DEV_ROOT, *EVERYWHERE)

POWER = CliCommand(
    "power",
    "programs for Slurm's power saving: start and stop the records of hosts",
    children=(
        CliCommand(
            "resume",
            "ResumeProgram: start records on their hosts, in the background",
            "slurm.power",
            options=(_HOSTS, _SIBLINGS, _LOG, *EVERYWHERE),
            text="Only one record of a host is started. Others are set DOWN with a reason, and their jobs return to "
            "the queue. A record that its host cannot start is also set DOWN with the reason.",
            examples=("aliquot slurm power resume n1-2x3g-20gb",),
        ),
        CliCommand(
            "suspend",
            "SuspendProgram: stop records on their hosts, in the background",
            "slurm.power",
            options=(_HOSTS, _SIBLINGS, _LOG, *EVERYWHERE),
            examples=("aliquot slurm power suspend n1-2x3g-20gb",),
        ),
        CliCommand(
            "start",
            "on the host: partition the GPUs, write gres.conf, start slurmd as this record",
            "slurm.power",
            options=(_NODE, *_HOST_SIDE),
            examples=("aliquot slurm power start n1-2x3g-20gb --layout 2x3g.20gb",),
            exits="0 done, 20 blocked (the host runs as another record, or a GPU is held)",
        ),
        CliCommand(
            "stop",
            "on the host: stop that record's slurmd; does nothing if the host runs as another one",
            "slurm.power",
            options=(_NODE, *_HOST_SIDE),
            examples=("aliquot slurm power stop n1-2x3g-20gb",),
        ),
        CliCommand(
            "follow",
            "run a start or stop on its host to the end, and report a failure to Slurm",
            "slurm.power",
            options=(
                CommandOption("what", help="start or stop", metavar="VERB", choices=("start", "stop"), required=True),
                _NODE,
                _SIBLINGS,
                *EVERYWHERE,
            ),
            hidden=True,
        ),
    ),
)
CLOUD = (FAMILIES, HELPER, SIBLINGS, POWER)
