"""The rows of ``aliquot slurm`` for layouts that Slurm itself switches: node_features/helpers and CLOUD records."""

from __future__ import annotations

from aliquot.cli.framework.command_model import EVERYWHERE, CliCommand, CommandOption
from aliquot.cli.slurm.table_apply import CONF_DIR, NODE_NAME, OFFERS

_LAYOUT = CommandOption(
    "--layout",
    help="what each GPU is cut into: 3g.20gb,3g.20gb or 2x3g.20gb or mig_2x3g.20gb; repeatable",
    kind="repeat",
    metavar="LAYOUT",
    complete="profiles",
)
_VERSION = CommandOption("--slurm", help="the release to write for; that of slurmctld if it answers", metavar="VERSION")
_START = CommandOption(
    "--slurmd-start", help="the shell command that starts slurmd, instead of a unit", metavar="COMMAND"
)
_STOP = CommandOption("--slurmd-stop", help="the shell command that stops it, and returns then", metavar="COMMAND")
_DEV_ROOT = CommandOption("--dev-root", help="below which folder device nodes are made", metavar="DIR", complete="file")
_STYLE = CommandOption(
    "--type-style",
    help="names of types: short (a100_3g.20gb), full (nvidia_a100_3g.20gb), profile (3g.20gb)",
    choices=("short", "full", "profile"),
    default="short",
)
_SIBLINGS = CommandOption(
    "--siblings",
    help="what 'aliquot slurm siblings -o json' printed, or a folder of such files",
    metavar="PATH",
    default="/etc/aliquot/siblings",
    env="ALIQUOT_SLURM_SIBLINGS",
    complete="file",
)
_LOG = CommandOption("--log", help="the folder for what the hosts say", metavar="DIR", default="/var/log/aliquot")

FAMILIES = CliCommand(
    "families",
    "layouts by how many devices they make: what node_features/helpers can switch between; renders helpers.conf",
    "slurm.helper",
    options=(
        _LAYOUT,
        OFFERS,
        NODE_NAME,
        _VERSION,
        CommandOption("--all", help="also layouts of profiles with attributes (+me)", kind="flag"),
        CommandOption(
            "--helper", help="the helper program", metavar="PATH", default="/usr/local/libexec/aliquot/mig-helper"
        ),
        CommandOption(
            "--exec-time", help="seconds that one call may last", metavar="SECONDS", default="120", number="int"
        ),
        CommandOption(
            "--boot-time", help="seconds that a change may last", metavar="SECONDS", default="300", number="int"
        ),
        CommandOption(
            "--allow-user", help="who may cause a change; everybody if not given", kind="repeat", metavar="USER"
        ),
        *EVERYWHERE,
    ),
    text="Slurm compares the number of devices that a node registers with the configured one, so only layouts of one "
    "number can be features of a node, and its Gres is untyped: a job asks for the layout (-C mig_2x3g.20gb) and for "
    "any device in it (--gres=gpu:1). Layouts of several profiles are honest only for jobs that take the whole node.",
    examples=("aliquot slurm families", "aliquot slurm families --layout 2x3g.20gb --layout 4g.20gb,3g.20gb"),
)
HELPER = CliCommand(
    "helper",
    "the helper program of node_features/helpers: says the active layout, or makes one active",
    "slurm.helper",
    options=(
        CommandOption("feature", help="the layout to make active: mig_2x3g.20gb", metavar="FEATURE"),
        NODE_NAME,
        CONF_DIR,
        OFFERS,
        _DEV_ROOT,
        CommandOption("--no-reload", help="do not have slurmd read gres.conf again", kind="flag"),
        *EVERYWHERE,
    ),
    text="Slurm's slurmd runs it, through deploy/slurm/mig-helper. GPUs first, then gres.conf, then a hang-up signal "
    "to slurmd. GPUs in no layout of this node print nothing and drain the node: Slurm takes silence, and a failure, "
    "for agreement.",
    examples=("aliquot slurm helper", "aliquot slurm helper mig_2x3g.20gb"),
    exits="0 it is so, 20 blocked, 40 hardware refused (and it was undone)",
)
SIBLINGS = CliCommand(
    "siblings",
    "a host's CLOUD records, one per layout: lines for slurm.conf, and the file that 'slurm power' reads",
    "slurm.siblings",
    options=(
        _LAYOUT,
        OFFERS,
        NODE_NAME,
        _VERSION,
        CommandOption("--address", help="the host's address for slurmctld", metavar="ADDRESS"),
        CommandOption("--port", help="the first record's slurmd port; the others follow", default="6820", number="int"),
        CommandOption("--hardware", help="CPUs and memory; what 'slurmd -C' prints if not given", metavar="WORDS"),
        CommandOption("--feature", help="a static feature of all of them", kind="repeat", metavar="NAME"),
        CommandOption(
            "--idle", help="seconds without a job after which a record powers down", default="300", number="int"
        ),
        CommandOption("--reach", help="how the controller runs commands on the host: 'ssh {host}'", metavar="COMMAND"),
        CommandOption("--check", help="which records are open now; more than one per host is drift", kind="flag"),
        CommandOption("--open", help="make this record the open one, its siblings closed", metavar="RECORD"),
        CommandOption(
            "--timeout",
            help="seconds that --open waits for jobs at most",
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
    "'aliquot slurm controller' keeps it so and swaps them as jobs ask; --open does it by hand: it drains the others, "
    "waits for their jobs, powers them down, and opens the record last.",
    examples=(
        "aliquot slurm siblings --layout 2x3g.20gb --layout 7x1g.5gb --reach 'ssh {host}' -o json",
        "aliquot slurm siblings --check",
        "aliquot slurm siblings --open n1-7x1g-5gb --timeout 3600",
    ),
    exits="0 fine, 20 blocked, or jobs did not end in time (--open), 30 several records of one host are open (--check)",
)
_NODE = CommandOption("record", help="the record's name", metavar="RECORD", required=True)
_HOSTS = CommandOption("hosts", help="records as a host list: n[1-4]-2x3g-20gb", metavar="HOSTLIST", required=True)
_HOST_SIDE = (_LAYOUT, OFFERS, CONF_DIR, _STYLE, _START, _STOP, _DEV_ROOT, *EVERYWHERE)

POWER = CliCommand(
    "power",
    "what Slurm's power saving runs: a host becomes one of its records, or none",
    children=(
        CliCommand(
            "resume",
            "ResumeProgram: start records on their hosts, in the background",
            "slurm.power",
            options=(_HOSTS, _SIBLINGS, _LOG, *EVERYWHERE),
            text="Of two records of one host one is started, and the other set down with the reason: its jobs go back "
            "to the queue. A host that cannot start sets its record down with the reason, too.",
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
            "on the host: cut the GPUs, write gres.conf, start slurmd as this record",
            "slurm.power",
            options=(_NODE, *_HOST_SIDE),
            examples=("aliquot slurm power start n1-2x3g-20gb --layout 2x3g.20gb",),
            exits="0 done, 20 blocked: the host is another record now, or a GPU is in use",
        ),
        CliCommand(
            "stop",
            "on the host: stop that record's slurmd; nothing where the host is another one",
            "slurm.power",
            options=(_NODE, *_HOST_SIDE),
            examples=("aliquot slurm power stop n1-2x3g-20gb",),
        ),
        CliCommand(
            "follow",
            "one host's start or stop to its end, and what Slurm is told of it",
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
