"""Commands and options as data. argparse, shell completion, help and docs/cli.md are made from them.

Only the parser of the verb that was typed is built: importing argparse takes 10 ms of CPU, click 40 and typer 70.
"""

from __future__ import annotations


def capital(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


class CommandOption:
    """An option, or a positional word.

    ``kind`` is ``value``, ``flag``, ``repeat`` (a list), ``many`` (the remaining words) or ``optional``: a flag that
    may have a value after ``=``, and has the value ``implied`` without one.
    ``complete`` names the words that the shell offers: ``file``, ``gpus``, ``profiles``, ``types``, ``configs`` or
    ``nodes``.
    ``env`` names the environment variable that is read if the option is not given.
    ``aliases`` are former names: accepted, but in no help, completion or page.
    """

    __slots__ = (
        "aliases",
        "choices",
        "complete",
        "default",
        "env",
        "help",
        "implied",
        "kind",
        "metavar",
        "names",
        "number",
        "required",
    )

    def __init__(  # noqa: PLR0913 -- the fields of a value
        self,
        *names: str,
        help: str,
        kind: str = "value",
        metavar: str = "",
        choices: tuple[str, ...] = (),
        default: str | None = None,
        complete: str = "",
        env: str = "",
        number: str = "",
        required: bool = False,
        implied: str = "",
        aliases: tuple[str, ...] = (),
    ) -> None:
        self.names = names
        self.aliases = aliases
        self.help = help
        self.kind = kind
        self.metavar = metavar
        self.choices = choices
        self.default = default
        self.complete = complete
        self.env = env
        self.number = number
        self.required = required
        self.implied = implied

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every accepted name, aliases included."""
        return self.names + self.aliases

    @property
    def long_name(self) -> str:
        """The name to print in a command: ``--sim``."""
        return next((name for name in self.names if name.startswith("--")), self.names[0])

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def destination(self) -> str:
        """The name of the attribute that holds the value."""
        return self.long_name.lstrip("-").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """True if the next word is the value."""
        return self.kind not in ("flag", "optional")

    @property
    def shown(self) -> str:
        """The option as help and docs write it: ``-f, --file FILE``."""
        value = self.metavar or self.destination.upper()
        if self.positional:
            word = f"{value}..." if self.kind == "many" else value
            return word if self.required else f"[{word}]"
        more = f" [{value}]" if self.kind == "optional" else f" {value}" if self.takes_value else ""
        return ", ".join(self.names) + more


class CliCommand:
    """A verb (``module`` runs it) or a group of verbs (``children``). ``exits`` are exit codes worth documenting.
    ``extra`` names the extras of the package that it needs, as pip takes them.

    ``accepted`` are the options of the verb and those that every verb has. With ``go_flags`` the command line is that
    of a program in Go: one dash is enough for a long option of a group, and there are no options but its own.
    """

    __slots__ = (
        "accepted",
        "children",
        "examples",
        "exits",
        "extra",
        "go_flags",
        "help",
        "hidden",
        "module",
        "name",
        "options",
        "text",
    )

    def __init__(  # noqa: PLR0913 -- the fields of a value
        self,
        name: str,
        help: str,
        module: str = "",
        *,
        options: tuple[CommandOption, ...] = (),
        children: tuple[CliCommand, ...] = (),
        text: str = "",
        examples: tuple[str, ...] = (),
        exits: str = "",
        extra: str = "",
        hidden: bool = False,
        go_flags: bool = False,
    ) -> None:
        self.name = name
        self.go_flags = go_flags
        self.help = help
        self.module = module
        self.options = options
        self.accepted = options if go_flags else options + COMMON
        self.children = children
        self.text = text
        self.examples = examples
        self.exits = exits
        self.extra = extra
        self.hidden = hidden

    @property
    def needs(self) -> str:
        """The sentence about the extras that the verb needs, empty if it needs none."""
        return f"Needs an extra: pip install 'aliquot[{self.extra}]'." if self.extra else ""

    def child(self, name: str) -> CliCommand | None:
        return next((c for c in self.children if c.name == name), None)


VERBOSE = CommandOption(
    "-v", "--verbose", help="also print the time of driver calls and of the steps of a change", kind="flag"
)
QUIET = CommandOption("-q", "--quiet", help="print only results and errors", kind="flag")
COLOR = CommandOption(
    "--color",
    help="auto: color on a terminal, unless NO_COLOR is set; always; never",
    metavar="WHEN",
    choices=("auto", "always", "never"),
    default="auto",
)
COMMON = (VERBOSE, QUIET, COLOR)
"""The options of every verb."""

OUTPUT = CommandOption(
    "-o",
    "--output",
    help="text for people, json or yaml for programs",
    metavar="FORMAT",
    choices=("text", "json", "yaml"),
    default="text",
)
MARKDOWN = CommandOption(
    "-o",
    "--output",
    help="text for people, json or yaml for programs, markdown for tickets",
    metavar="FORMAT",
    choices=(*OUTPUT.choices, "markdown"),
    default="text",
)
NODE = CommandOption(
    "--sim",
    help="a simulated node instead of this host",
    metavar="NAME",
    complete="nodes",
    env="ALIQUOT_SIM",
    aliases=("--node",),
)
EVERYWHERE = (OUTPUT, NODE)
TICKETS = (MARKDOWN, NODE)
"""As ``EVERYWHERE``, for verbs that can also print Markdown for a ticket."""

FILE = CommandOption(
    "-f",
    "--file",
    help="the desired state: a native file, or one of mig-parted or vgpu-device-manager; - for stdin",
    metavar="FILE",
    complete="file",
)
CONFIG = CommandOption(
    "-c", "--config", help="the named config; not needed if the file has only one", metavar="NAME", complete="configs"
)
GPU = CommandOption(
    "--gpu",
    help="GPUs by index, index range (0-3), PCI address, UUID or product; several with commas; repeatable",
    kind="repeat",
    metavar="GPU",
    complete="gpus",
)
GPUS = (
    CommandOption("gpus", help="only these GPUs, named as by --gpu", kind="many", metavar="GPU", complete="gpus"),
    GPU,
)
"""Options of verbs that take GPUs without an option as well."""
EACH = CommandOption("--each", help="draw every GPU, also those that look the same (text only)", kind="flag")
MIG = CommandOption(
    "--mig",
    help="the MIG instances of those GPUs: 3g.20gb*2,id:19,1g.5gb@6; 'empty' for MIG mode without instances, "
    "'disabled' for no MIG mode",
    kind="repeat",
    metavar="PROFILES",
    complete="profiles",
)
TOTAL = CommandOption(
    "--total", help="the counts of --mig are for those GPUs together, not for each; the plan places them", kind="flag"
)
ADD = CommandOption(
    "--add",
    help="add instances to what those GPUs hold together: 2g.20gb, 1g.10gb*2; without --gpu, to any GPU in MIG mode",
    kind="repeat",
    metavar="PROFILES",
    complete="profiles",
)
REMOVE = CommandOption(
    "--remove",
    help="remove instances from those GPUs, idle ones first: 1g.10gb*2; 1g.10gb@4 for the one at memory slice 4",
    kind="repeat",
    metavar="PROFILES",
    complete="profiles",
)
VGPU = CommandOption(
    "--vgpu",
    help="the vGPUs of those GPUs: 'NVIDIA A2-4Q:4', A2-4Q:2,A2-4C:1; 'none' for none",
    kind="repeat",
    metavar="TYPES",
    complete="types",
)
MIXED_SIZE = CommandOption("--mixed-size", help="use mixed-size mode: vGPUs of different sizes on one GPU", kind="flag")
PASSTHROUGH = CommandOption(
    "--passthrough",
    help="pass those GPUs through whole, each to one VM, or stop doing so",
    choices=("on", "off"),
)
COMPAT = CommandOption("--compat", help="accept in files of other tools what those tools accept silently", kind="flag")
MODE_ONLY = CommandOption("--mode-only", help="change MIG mode only, and leave instances as they are", kind="flag")
DESIRED = (FILE, CONFIG, GPU, MIG, TOTAL, VGPU, MIXED_SIZE, PASSTHROUGH, COMPAT, MODE_ONLY)
CHANGE = (*DESIRED[:4], ADD, REMOVE, *DESIRED[4:])
"""As ``DESIRED``, of verbs that also take a request relative to what is there."""

POLICY = CommandOption(
    "--policy",
    help="what to do about held instances that block a change: refuse, wait for them, or force (ends their processes)",
    choices=("refuse", "wait", "force"),
    default="refuse",
)
TIMEOUT = CommandOption(
    "--timeout", help="the longest wait of --policy wait, in seconds", metavar="SECONDS", default="60", number="float"
)
WAIT_FOR_LOCK = CommandOption(
    "--wait-for-lock",
    help="seconds to wait at most while another process changes this node's GPUs, then exit code 20; 0 if not given",
    metavar="SECONDS",
    number="float",
)
YES = CommandOption("-y", "--yes", help="do not ask; without a terminal at stdin, Aliquot never asks", kind="flag")
HOOKS = CommandOption(
    "--hooks",
    help="a mig-parted hooks file: commands to run before and after the change",
    metavar="FILE",
    complete="file",
)
WATCH = CommandOption(
    "--watch",
    help="refresh every SECONDS (2 by default) until Ctrl-C or q, which exits with 0: in place on a terminal, else "
    "one line for each change, with -o json one document for each change",
    kind="optional",
    metavar="SECONDS",
    number="float",
    implied="2",
)
FORCE = CommandOption("--force", help="replace the file even if Aliquot did not write it", kind="flag")


def out_option(
    text: str, *, metavar: str = "FILE", env: str = "", aliases: tuple[str, ...] = (), folders: str = "its folder"
) -> CommandOption:
    """Return the option ``--out``, which means the same on every verb (``file_output``). ``text`` says what it does."""
    return CommandOption(
        "--out",
        help=f"{text}; {folders} must exist; - for stdout",
        metavar=metavar,
        complete="file",
        env=env,
        aliases=aliases,
    )


OUT = (out_option("write the document to a file instead of stdout"), FORCE)
