"""The table of commands. A new verb needs a row here and a file in this package."""

from __future__ import annotations

from aliquot.cli.cdi import table as cdi_commands
from aliquot.cli.containers import docker_table as docker_commands
from aliquot.cli.doctor import table as doctor_commands
from aliquot.cli.dra import table as dra_commands
from aliquot.cli.framework.command_model import (
    CHANGE,
    DESIRED,
    EACH,
    EVERYWHERE,
    FORCE,
    GPU,
    GPUS,
    HOOKS,
    MARKDOWN,
    NODE,
    OUT,
    OUTPUT,
    POLICY,
    TICKETS,
    TIMEOUT,
    WAIT_FOR_LOCK,
    WATCH,
    YES,
    CliCommand,
    CommandOption,
    out_option,
)
from aliquot.cli.libvirt import table as libvirt_commands
from aliquot.cli.slurm import table as slurm_commands
from aliquot.cli.tables import agent as agent_commands
from aliquot.cli.tables import capacity as capacity_commands
from aliquot.cli.tables import dashboard as dashboard_commands
from aliquot.cli.tables import metrics as metrics_commands
from aliquot.cli.tables import mig_parted as migparted_commands
from aliquot.cli.tables import passthrough as passthrough_commands
from aliquot.cli.tables import sim as sim_commands
from aliquot.cli.tables import vgpu as vgpu_commands
from aliquot.cli.tables import vgpu_dm as vgpu_dm_commands

_SHOW = CliCommand(
    "show",
    "show the GPUs, their layout drawn to scale, and the holders",
    "commands.show",
    options=(WATCH, *TICKETS, *GPUS, EACH),
    examples=("aliquot show", "aliquot show 0-1 -o json", "aliquot show --watch"),
)
_PROFILES = CliCommand(
    "profiles",
    "list the profiles of each GPU, their placements, and which of them fit now",
    "commands.profiles",
    options=(*EVERYWHERE, *GPUS, EACH),
    examples=("aliquot profiles", "aliquot profiles 0"),
)
_PLAN = CliCommand(
    "plan",
    "show what would change, and why; touches nothing",
    "commands.plan",
    options=(
        *CHANGE,
        POLICY,
        TIMEOUT,
        out_option("save the plan as JSON for 'aliquot apply PLAN'", metavar="PLAN.json"),
        FORCE,
        EACH,
        *TICKETS,
    ),
    examples=(
        "aliquot plan -f config.yaml -c train",
        "aliquot plan --gpu 0 --mig 3g.20gb,id:19,1g.5gb@6",
        "aliquot plan --add 2g.10gb --remove 1g.5gb",
        "aliquot plan --gpu 0,1 --mig 1g.5gb:9 --total",
    ),
    exits="0 nothing to do, 10 changes pending, 20 blocked",
)
_APPLY = CliCommand(
    "apply",
    "apply a desired state or a saved plan, and verify the result",
    "commands.apply",
    options=(
        CommandOption(
            "plan", help="a plan saved by 'aliquot plan --out'; - for stdin", metavar="PLAN.json", complete="file"
        ),
        *CHANGE,
        POLICY,
        TIMEOUT,
        WAIT_FOR_LOCK,
        HOOKS,
        EACH,
        YES,
        *EVERYWHERE,
    ),
    text="At a terminal, apply shows the plan and asks first, unless --yes is given. If stdin is not a terminal, it "
    "does not ask. A saved plan is planned again: it is applied exactly as saved, or refused (20) if the host or the "
    "file changed. After a change the GPUs are read again and compared with the desired state.",
    examples=(
        "aliquot apply -f config.yaml -c train",
        "aliquot apply plan.json",
        "aliquot apply --gpu 0 --mig 7g.40gb",
    ),
    exits="0 done or nothing to do, 10 the rest needs a reboot, or you answered no, 20 blocked, 40 the hardware "
    "refused (the message lists what was undone)",
)
_VERIFY = CliCommand(
    "verify",
    "check whether the host matches a desired state",
    "commands.verify",
    options=(*DESIRED, *TICKETS),
    examples=("aliquot verify -f config.yaml -c train",),
    exits="0 it matches, 30 drift",
)
_HISTORY = CliCommand(
    "history",
    "list past changes: when, by whom, what was done, and the result",
    "commands.history",
    options=(
        CommandOption(
            "--limit",
            help="show only the newest N changes",
            metavar="N",
            number="int",
            default="20",
            aliases=("--most",),
        ),
        *TICKETS,
    ),
    examples=("aliquot history", "aliquot history --limit 1 -o json"),
)
_GENERATE = CliCommand(
    "generate",
    "write a config file for this host, with the names that mig-manager generates",
    "commands.generate",
    options=(*OUT, *EVERYWHERE),
    examples=("aliquot generate --out config.yaml",),
)
_EXPORT = CliCommand(
    "export",
    "write the geometry of this host as a config file",
    "commands.export",
    options=(
        CommandOption("-l", "--label", help="the name of the config in the file", metavar="NAME", default="current"),
        CommandOption(
            "--native", help="use Aliquot's own format, which has placements, instead of mig-parted's", kind="flag"
        ),
        *OUT,
        *EVERYWHERE,
    ),
    examples=("aliquot export --label now",),
)
_CHECKPOINT = CliCommand(
    "checkpoint",
    "save the exact state, placements included, for 'aliquot restore'",
    "commands.checkpoint",
    options=(*OUT, *EVERYWHERE),
    examples=("aliquot checkpoint --out before.json",),
)
_RESTORE = CliCommand(
    "restore",
    "restore a checkpoint, or after a boot the last requested state",
    "commands.restore",
    options=(
        CommandOption("checkpoint", help="a checkpoint file; - for stdin", metavar="FILE", complete="file"),
        CommandOption(
            "--boot", help="restore the last state requested for each GPU, as apply recorded it", kind="flag"
        ),
        CommandOption(
            "--wait",
            help="the longest wait of --boot for the driver, in seconds; while the host starts, also for the vGPU "
            "manager and the GPUs; 0 to not wait",
            metavar="SECONDS",
            default="120",
            number="float",
        ),
        POLICY,
        TIMEOUT,
        WAIT_FOR_LOCK,
        HOOKS,
        EACH,
        YES,
        *EVERYWHERE,
    ),
    text="--boot never touches a GPU without a record. A GPU that is missing or blocked does not keep the others "
    "from being restored. deploy/systemd/aliquot-restore.service runs this verb at boot.",
    examples=("aliquot restore before.json", "aliquot restore --boot"),
    exits="as apply; 20 also if some recorded state could not be applied",
)
_EXPLAIN = CliCommand(
    "explain",
    "explain why a profile does not fit now, and how to make it fit",
    "commands.explain",
    options=(
        CommandOption(
            "profile", help="a profile, for example 2g.10gb", metavar="PROFILE", complete="profiles", required=True
        ),
        GPU,
        EACH,
        *TICKETS,
    ),
    examples=("aliquot explain 2g.10gb", "aliquot explain 3g.20gb --gpu 0"),
)
_CATALOG = CliCommand(
    "catalog",
    "show and check the tables of MIG profiles",
    children=(
        CliCommand("list", "list the GPU families that have a table", "commands.catalog", options=EVERYWHERE),
        CliCommand(
            "show",
            "show the table of a family",
            "commands.catalog",
            options=(
                CommandOption(
                    "family", help="the name of a family, from 'aliquot catalog list'", metavar="FAMILY", required=True
                ),
                *EVERYWHERE,
            ),
        ),
        CliCommand(
            "check",
            "compare the tables with the driver of this host",
            "commands.catalog",
            options=EVERYWHERE,
            exits="0 the tables match, 30 they differ",
        ),
        CliCommand(
            "record",
            "write a table from the driver of this host",
            "commands.catalog",
            options=(CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus"), *OUT, *EVERYWHERE),
        ),
    ),
    examples=("aliquot catalog show a100-40gb", "aliquot catalog check"),
)
_COMPLETION = CliCommand(
    "completion",
    "print a completion script for your shell",
    "completion",
    options=(
        CommandOption(
            "shell", help="bash, zsh or fish", metavar="SHELL", choices=("bash", "zsh", "fish"), required=True
        ),
        OUTPUT,
    ),
    text="For bash, add  source <(aliquot completion bash)  to ~/.bashrc. For zsh, add the same with zsh to ~/.zshrc, "
    "after compinit. For fish, write the script to ~/.config/fish/completions/aliquot.fish.",
    examples=("aliquot completion bash",),
)
_VERSION = CliCommand(
    "version", "print the versions of Aliquot, Python and the driver", "commands.version", options=EVERYWHERE
)
_COMPLETE = CliCommand(
    "__complete",
    "print words for the completion scripts",
    "completion_words",
    options=(
        CommandOption("what", help="gpus, profiles, configs or nodes", metavar="WHAT", required=True),
        CommandOption("file", help="the config file, for configs", metavar="FILE"),
        NODE,
    ),
    hidden=True,
)

SECTIONS = (
    (
        "GPUs",
        (
            _SHOW,
            metrics_commands.USAGE,
            _PROFILES,
            _PLAN,
            _APPLY,
            _VERIFY,
            _EXPLAIN,
            _HISTORY,
            doctor_commands.DOCTOR,
            _GENERATE,
            _EXPORT,
            _CHECKPOINT,
            _RESTORE,
            _CATALOG,
            migparted_commands.MIG_PARTED,
            vgpu_dm_commands.VGPU_DM,
        ),
    ),
    ("Kubernetes", (agent_commands.AGENT, agent_commands.CONTROLLER, dra_commands.DRA, capacity_commands.CAPACITY)),
    ("VMs", (vgpu_commands.VGPU, passthrough_commands.PASSTHROUGH, libvirt_commands.LIBVIRT)),
    ("Slurm", (slurm_commands.SLURM,)),
    ("containers", (cdi_commands.CDI, docker_commands.DOCKER)),
    ("simulator", (sim_commands.SIM,)),
    ("services", (dashboard_commands.DASHBOARD, metrics_commands.METRICS)),
    ("this program", (_COMPLETION, _VERSION)),
)
"""The verbs by subject, as help lists them."""

ROOT = CliCommand(
    "aliquot",
    "Aliquot partitions NVIDIA GPUs: it plans the least disruptive change, applies and verifies it.",
    children=(*(command for _, commands in SECTIONS for command in commands), _COMPLETE),
    options=(*EVERYWHERE, CommandOption("--version", help="print the version", kind="flag")),
    examples=("aliquot sim start dgx-a100", "aliquot --sim dgx-a100 show"),
)


def ticketed() -> list[str]:
    """Return the verbs that print Markdown."""
    return [command.name for command in ROOT.children if MARKDOWN in command.options]


EXIT_CODES = (
    (0, "done, or nothing to do"),
    (1, "internal error: a defect of Aliquot"),
    (2, "invalid input: usage, syntax, an unknown name"),
    (10, "changes pending (plan)"),
    (20, "blocked: valid, but cannot be applied here or now"),
    (30, "drift: the host does not match the desired state"),
    (40, "the hardware refused; the message lists what was undone"),
    (129, "stopped by SIGHUP (the terminal or connection closed); the change is undone"),
    (130, "stopped by Ctrl-C; the change is undone"),
    (143, "stopped by SIGTERM; the change is undone"),
)
