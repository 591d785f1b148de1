"""What a command and an option are, as data: argparse, shell completion and docs/cli.md are all made from it.

argparse parses; the table is ours, so that only the parser of the verb that was typed is built. Importing
argparse takes 10 ms of CPU, click 40 and typer 70.
"""

from __future__ import annotations


def capital(text: str) -> str:
    """A sentence's first letter made large, unless it begins a name: vGPUs."""
    return text if text[1:2].isupper() else text[:1].upper() + text[1:]


class CommandOption:
    """One option or positional word. ``kind`` is ``value``, ``flag``, ``repeat`` (a list), ``many`` (the rest) or
    ``optional``: a flag that may have a value behind ``=``, ``implied`` where it has none.

    ``complete`` says what the shell offers: ``file``, ``gpus``, ``profiles``, ``types``, ``configs``, ``nodes``, or
    nothing.
    ``env`` names a variable that stands in where the option is not given.
    """

    __slots__ = (
        "choices",
        "complete",
        "default",
        "env",
        "help",
        "hidden",
        "implied",
        "kind",
        "metavar",
        "names",
        "number",
        "required",
    )

    def __init__(
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
        hidden: bool = False,
        implied: str = "",
    ) -> None:
        self.names = names
        self.help = help
        self.kind = kind
        self.metavar = metavar
        self.choices = choices
        self.default = default
        self.complete = complete
        self.env = env
        self.number = number
        self.required = required
        self.hidden = hidden
        self.implied = implied

    @property
    def positional(self) -> bool:
        return not self.names[0].startswith("-")

    @property
    def destination(self) -> str:
        """The name of the attribute that holds the value."""
        name = next((n for n in self.names if n.startswith("--")), self.names[0])
        return name.lstrip("-").replace("-", "_")

    @property
    def takes_value(self) -> bool:
        """Whether the next word is its value."""
        return self.kind not in ("flag", "optional")

    @property
    def shown(self) -> str:
        """How help and docs write it: ``-f, --file FILE``."""
        value = self.metavar or self.destination.upper()
        if self.positional:
            word = f"{value}..." if self.kind == "many" else value
            return word if self.required else f"[{word}]"
        more = f" [{value}]" if self.kind == "optional" else f" {value}" if self.takes_value else ""
        return ", ".join(self.names) + more


class CliCommand:
    """A verb (``module`` runs it) or a group of verbs (``children``). ``exits`` are codes worth documenting. One dash
    is enough for the long options of a group with ``go_flags``, as for those of a program in Go.
    """

    __slots__ = ("children", "examples", "exits", "go_flags", "help", "hidden", "module", "name", "options", "text")

    def __init__(
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
        hidden: bool = False,
        go_flags: bool = False,
    ) -> None:
        self.name = name
        self.go_flags = go_flags
        self.help = help
        self.module = module
        self.options = options
        self.children = children
        self.text = text
        self.examples = examples
        self.exits = exits
        self.hidden = hidden

    def child(self, name: str) -> CliCommand | None:
        return next((c for c in self.children if c.name == name), None)


OUTPUT = CommandOption(
    "-o",
    "--output",
    help="text for people, json or yaml for programs",
    choices=("text", "json", "yaml"),
    default="text",
)
MARKDOWN = CommandOption(
    "-o",
    "--output",
    help="text for people, json or yaml for programs, markdown for tickets",
    choices=(*OUTPUT.choices, "markdown"),
    default="text",
)
NODE = CommandOption(
    "--node", help="a simulated node instead of this machine", metavar="SIM", complete="nodes", env="ALIQUOT_SIM"
)
EVERYWHERE = (OUTPUT, NODE)
TICKETS = (MARKDOWN, NODE)
"""As ``EVERYWHERE``, of verbs whose answer can be pasted into a ticket."""

FILE = CommandOption(
    "-f",
    "--file",
    help="the wish: a native file, or one of mig-parted or vgpu-device-manager; - for stdin",
    metavar="FILE",
    complete="file",
)
CONFIG = CommandOption(
    "-c", "--config", help="the named config; not needed if the file has one", metavar="NAME", complete="configs"
)
GPU = CommandOption(
    "--gpu",
    help="a GPU by index, PCI address, UUID or product; repeatable",
    kind="repeat",
    metavar="GPU",
    complete="gpus",
)
MIG = CommandOption(
    "--mig",
    help="what those GPUs should hold: 3g.20gb*2,id:19,1g.5gb@6; 'empty' for MIG without instances, 'disabled'",
    kind="repeat",
    metavar="WISH",
    complete="profiles",
)
VGPU = CommandOption(
    "--vgpu",
    help="the vGPUs that those GPUs should have: 'NVIDIA A2-4Q:4', A2-4Q:2,A2-4C:1; 'none' for none",
    kind="repeat",
    metavar="TYPES",
    complete="types",
)
MIXED_SIZE = CommandOption("--mixed-size", help="in mixed-size mode: vGPUs of different sizes on one GPU", kind="flag")
PASSTHROUGH = CommandOption(
    "--passthrough",
    help="hand those GPUs out whole, each for one virtual machine, or take them back",
    choices=("on", "off"),
)
COMPAT = CommandOption("--compat", help="accept in files of other tools what those tools accept silently", kind="flag")
MODE_ONLY = CommandOption("--mode-only", help="change MIG mode only, leave instances alone", kind="flag")
DESIRED = (FILE, CONFIG, GPU, MIG, VGPU, MIXED_SIZE, PASSTHROUGH, COMPAT, MODE_ONLY)

POLICY = CommandOption(
    "--policy",
    help="held instances that are in the way: refuse, wait for them, or force (ends their processes)",
    choices=("refuse", "wait", "force"),
    default="refuse",
)
TIMEOUT = CommandOption(
    "--timeout", help="seconds that --policy wait waits at most", metavar="SECONDS", default="60", number="float"
)
YES = CommandOption("-y", "--yes", help="do not ask; without a terminal at stdin nothing is asked", kind="flag")
HOOKS = CommandOption(
    "--hooks", help="a mig-parted hooks file: commands to run around the apply", metavar="FILE", complete="file"
)
WATCH = CommandOption(
    "--watch",
    help="look again every so many seconds (2 by itself) until Ctrl-C or q, which is exit code 0: in place on a "
    "terminal, a line per change elsewhere, with -o json one document per change",
    kind="optional",
    metavar="SECONDS",
    number="float",
    implied="2",
)
FORCE = CommandOption("--force", help="replace a file of that name also where Aliquot did not write it", kind="flag")
OUT = (
    CommandOption("--out", help="write the document to a file instead of stdout", metavar="FILE", complete="file"),
    FORCE,
)
