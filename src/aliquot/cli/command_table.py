"""The table of commands. A new verb is a row here and a file beside this one."""

from __future__ import annotations

from aliquot.cli.cdi import table as cdi_commands
from aliquot.cli.containers import docker_table as docker_commands
from aliquot.cli.framework.command_model import (
    DESIRED,
    EVERYWHERE,
    FORCE,
    GPU,
    HOOKS,
    MARKDOWN,
    NODE,
    OUT,
    OUTPUT,
    POLICY,
    TICKETS,
    TIMEOUT,
    WATCH,
    YES,
    CliCommand,
    CommandOption,
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

_SHOW = CliCommand(
    "show",
    "the GPUs, their geometry drawn to the slice, and who holds what",
    "commands.show",
    options=(WATCH, *TICKETS, CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus")),
    examples=("aliquot show", "aliquot show 0 -o json", "aliquot show --watch"),
)
_PROFILES = CliCommand(
    "profiles",
    "what each GPU can be cut into, where, and what still fits now",
    "commands.profiles",
    options=(*EVERYWHERE, CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus")),
    examples=("aliquot profiles", "aliquot profiles 0"),
)
_PLAN = CliCommand(
    "plan",
    "what would change, drawn, with a reason for every action; touches nothing",
    "commands.plan",
    options=(
        *DESIRED,
        POLICY,
        TIMEOUT,
        CommandOption("--out", help="save the plan for 'aliquot apply PLAN'", metavar="PLAN.json", complete="file"),
        FORCE,
        *TICKETS,
    ),
    examples=("aliquot plan -f wish.yaml -c train", "aliquot plan --gpu 0 --mig 3g.20gb,id:19,1g.5gb@6"),
    exits="0 nothing to do, 10 changes pending, 20 blocked",
)
_APPLY = CliCommand(
    "apply",
    "carry out a wish or a saved plan, and prove by a fresh read that it happened",
    "commands.apply",
    options=(
        CommandOption("plan", help="a plan saved by 'aliquot plan --out'", metavar="PLAN.json", complete="file"),
        *DESIRED,
        POLICY,
        TIMEOUT,
        HOOKS,
        YES,
        *EVERYWHERE,
    ),
    text="At a terminal it shows the plan and asks first; --yes, or a stdin that is not a terminal, is not asked. A "
    "saved plan is planned again: it is applied exactly, or refused (20) if the machine or the file changed.",
    examples=("aliquot apply -f wish.yaml -c train", "aliquot apply plan.json", "aliquot apply --gpu 0 --mig 7g.40gb"),
    exits="0 done or nothing to do, 10 the rest needs a reboot, or you answered no, 20 blocked, 40 hardware refused "
    "(and what was undone)",
)
_VERIFY = CliCommand(
    "verify",
    "does the machine match the wish?",
    "commands.verify",
    options=(*DESIRED, *TICKETS),
    examples=("aliquot verify -f wish.yaml -c train",),
    exits="0 it does, 30 drift",
)
_HISTORY = CliCommand(
    "history",
    "past changes: when, for whom, what was done, and how it ended",
    "commands.history",
    options=(
        CommandOption("--most", help="show at most that many, the newest", metavar="N", number="int", default="20"),
        *TICKETS,
    ),
    examples=("aliquot history", "aliquot history --most 1 -o json"),
)
_GENERATE = CliCommand(
    "generate",
    "a config file for this machine, with the names that mig-manager generates",
    "commands.generate",
    options=(*OUT, *EVERYWHERE),
    examples=("aliquot generate --out wish.yaml",),
)
_EXPORT = CliCommand(
    "export",
    "the geometry of this machine as a config file",
    "commands.export",
    options=(
        CommandOption("-l", "--label", help="name of the config in the file", metavar="NAME", default="current"),
        CommandOption(
            "--native", help="in Aliquot's own format, with placements, instead of mig-parted's", kind="flag"
        ),
        *OUT,
        *EVERYWHERE,
    ),
    examples=("aliquot export --label now",),
)
_CHECKPOINT = CliCommand(
    "checkpoint",
    "the exact state, placements included, for 'aliquot restore'",
    "commands.checkpoint",
    options=(*OUT, *EVERYWHERE),
    examples=("aliquot checkpoint --out before.json",),
)
_RESTORE = CliCommand(
    "restore",
    "bring back the state of a checkpoint, or after a boot what was asked last",
    "commands.restore",
    options=(
        CommandOption("checkpoint", help="a checkpoint file, - for stdin", metavar="FILE", complete="file"),
        CommandOption("--boot", help="the last wish for each GPU, as recorded by apply", kind="flag"),
        CommandOption(
            "--wait",
            help="seconds that --boot waits at most for the driver; while the machine starts also for its vGPU manager "
            "and GPUs; 0: not at all",
            metavar="SECONDS",
            default="120",
            number="float",
        ),
        POLICY,
        TIMEOUT,
        HOOKS,
        YES,
        *EVERYWHERE,
    ),
    text="A GPU without a record is never touched by --boot; one that is gone or blocked does not keep the others from "
    "theirs. deploy/systemd/aliquot-restore.service runs it at boot.",
    examples=("aliquot restore before.json", "aliquot restore --boot"),
    exits="as apply; 20 also where some recorded wish could not be asked",
)
_EXPLAIN = CliCommand(
    "explain",
    "why a profile does not fit now, and the cheapest plan that would make it fit",
    "commands.explain",
    options=(
        CommandOption("profile", help="for example 2g.10gb", metavar="PROFILE", complete="profiles", required=True),
        GPU,
        *TICKETS,
    ),
    examples=("aliquot explain 2g.10gb", "aliquot explain 3g.20gb --gpu 0"),
)
_CATALOG = CliCommand(
    "catalog",
    "the tables of what GPUs can be cut into",
    children=(
        CliCommand("list", "the families of GPUs that the tables know", "commands.catalog", options=EVERYWHERE),
        CliCommand(
            "show",
            "one family's table",
            "commands.catalog",
            options=(
                CommandOption("family", help="a name from 'catalog list'", metavar="FAMILY", required=True),
                *EVERYWHERE,
            ),
        ),
        CliCommand(
            "check",
            "compare the tables with this machine's driver",
            "commands.catalog",
            options=EVERYWHERE,
            exits="0 they agree, 30 they differ",
        ),
        CliCommand(
            "record",
            "write a table from this machine's driver",
            "commands.catalog",
            options=(CommandOption("gpu", help="only this GPU", metavar="GPU", complete="gpus"), *OUT, *EVERYWHERE),
        ),
    ),
    examples=("aliquot catalog show a100-40gb", "aliquot catalog check"),
)
_COMPLETION = CliCommand(
    "completion",
    "a completion script for your shell",
    "completion",
    options=(
        CommandOption(
            "shell", help="bash, zsh or fish", metavar="SHELL", choices=("bash", "zsh", "fish"), required=True
        ),
        OUTPUT,
    ),
    text="bash: add  source <(aliquot completion bash)  to ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. "
    "fish: write it to ~/.config/fish/completions/aliquot.fish.",
    examples=("aliquot completion bash",),
)
_VERSION = CliCommand(
    "version", "the versions of Aliquot, Python and the driver", "commands.version", options=EVERYWHERE
)
_COMPLETE = CliCommand(
    "__complete",
    "what the completion scripts ask",
    "completion_words",
    options=(
        CommandOption("what", help="gpus, profiles, configs or nodes", metavar="WHAT", required=True),
        CommandOption("file", help="for configs", metavar="FILE"),
        NODE,
    ),
    hidden=True,
)

ROOT = CliCommand(
    "aliquot",
    "Aliquot divides NVIDIA GPUs: it plans the least disruptive change, shows it, does it and proves it.",
    children=(
        _SHOW,
        metrics_commands.USAGE,
        _PROFILES,
        _PLAN,
        _APPLY,
        _VERIFY,
        _EXPLAIN,
        _HISTORY,
        _GENERATE,
        _EXPORT,
        _CHECKPOINT,
        _RESTORE,
        _CATALOG,
        dashboard_commands.DASHBOARD,
        agent_commands.AGENT,
        agent_commands.CONTROLLER,
        capacity_commands.CAPACITY,
        vgpu_commands.VGPU,
        passthrough_commands.PASSTHROUGH,
        libvirt_commands.LIBVIRT,
        cdi_commands.CDI,
        slurm_commands.SLURM,
        docker_commands.DOCKER,
        sim_commands.SIM,
        metrics_commands.METRICS,
        migparted_commands.MIG_PARTED,
        _COMPLETION,
        _VERSION,
        _COMPLETE,
    ),
    options=(*EVERYWHERE, CommandOption("--version", help="print the version", kind="flag")),
    examples=("aliquot sim start dgx-a100", "aliquot --node dgx-a100 show"),
)


def ticketed() -> list[str]:
    """The verbs that can answer in Markdown."""
    return [command.name for command in ROOT.children if MARKDOWN in command.options]


EXIT_CODES = (
    (0, "done, or nothing to do"),
    (1, "internal fault: a defect of Aliquot itself"),
    (2, "wrong on every machine: usage, syntax, a name that is in no table"),
    (10, "changes pending (plan)"),
    (20, "blocked: valid, but not on this machine or not now"),
    (30, "drift: the machine does not match the wish"),
    (40, "the hardware refused; what was undone is said"),
    (129, "stopped by SIGHUP: the terminal or the connection is gone; what was begun is undone"),
    (130, "interrupted from the keyboard; what was begun is undone"),
    (143, "stopped by SIGTERM; what was begun is undone"),
)
