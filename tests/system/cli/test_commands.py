"""The table of commands: complete, consistent, and the source of argparse, help, docs and completion."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from aliquot.cli import command_table as commands
from aliquot.cli.completion import leaves
from aliquot.cli.framework import parser as parse
from aliquot.cli.framework.command_model import MARKDOWN, OUTPUT, CliCommand
from aliquot.cli.framework.error_output import COMPATIBLE
from aliquot.errors import UsageError

from .conftest import Run

ROOT = Path(__file__).resolve().parents[3]
VERBS = [(path, command) for path, command in leaves() if not command.children]
IDS = [" ".join(path) for path, _ in VERBS]


@pytest.mark.parametrize(("path", "command"), VERBS, ids=IDS)
def test_every_verb_has_a_file_that_runs_it(path: tuple[str, ...], command: CliCommand) -> None:
    module = import_module(f"aliquot.cli.{command.module}")
    assert callable(module.run)
    assert module.__doc__


@pytest.mark.parametrize(("path", "command"), VERBS, ids=IDS)
def test_every_verb_has_its_help(path: tuple[str, ...], command: CliCommand, run: Run) -> None:
    result = run(*path, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: aliquot {' '.join(path)}")
    assert result.err == ""


def test_every_verb_takes_an_output_format() -> None:
    # The command lines of other tools keep their flags.
    some = {OUTPUT, MARKDOWN}
    without = [path for path, command in VERBS if not some & {*command.options} and path[0] not in COMPATIBLE]
    without.remove(("cdi", "generate"))  # has its own row: the file name chooses a format, too
    without.remove(("metrics",))  # prints only Prometheus's format
    # They run until they are stopped and print no result.
    assert {*without} == {("agent",), ("controller",), ("dashboard",)}


def test_every_example_is_a_command_of_ours() -> None:
    examples = [line for _, command in leaves() for line in command.examples]
    assert len(examples) > 20
    for line in examples:
        words = shlex.split(line.partition("$(")[0] if "$(" in line else line)
        if words[0] == "aliquot":
            found = parse.find(commands.ROOT, words[1:])
            assert found.command.module, line
            parse.typed_options(found)


def test_names_are_unique_among_siblings() -> None:
    for path, command in leaves():
        names = [child.name for child in command.children]
        assert len(names) == len(set(names)), path
        options = [name for option in command.options for name in option.names]
        assert len(options) == len(set(options)), path


@pytest.mark.parametrize(
    "words", [["--help"], ["-h"], ["sim", "--help"], ["catalog", "-h"], ["mig-parted", "--help"], ["vgpu-dm", "-h"]]
)
def test_help_of_a_group_lists_its_verbs(words: list[str], run: Run) -> None:
    result = run(*words)
    assert result.code == 0
    group = parse.find(commands.ROOT, words).command
    for child in group.children:
        assert (f"  {child.name} " in result.out) == (not child.hidden)


@pytest.mark.parametrize("words", [[], ["sim"], ["catalog"]])
def test_a_group_without_a_verb_is_a_usage_error(words: list[str], run: Run) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert "COMMAND" in result.err


def test_exit_codes_are_in_the_help_of_all(run: Run) -> None:
    out = run("--help").out
    assert [str(code) for code, _ in commands.EXIT_CODES] == [
        line.split()[0] for line in out.partition("exit codes:\n")[2].splitlines() if line.startswith("  ")
    ]


@pytest.mark.parametrize(
    ("words", "following"),
    [
        (["plna"], "aliquot plan --help"),
        (["sim", "strat"], "aliquot sim start --help"),
        (["zzz"], "aliquot --help"),
        (["plan", "--polcy", "wait"], "aliquot plan --help"),
        (["plan", "--policy", "maybe"], "aliquot plan --help"),
        (["plan", "--timeout", "soon"], "aliquot plan --help"),
        (["--si", "x", "show"], "aliquot --help"),
        (["--sim"], "aliquot --help"),
        (["sim", "start"], "aliquot sim start --help"),
        (["plan", "--file"], "aliquot plan --help"),
    ],
)
def test_usage_errors_name_the_next_command(words: list[str], following: str, run: Run) -> None:
    result = run(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error[")
    assert f"  next     {following}\n" in result.err


def test_options_of_all_verbs_may_stand_before_the_verb() -> None:
    spellings = ["--sim n show", "--sim=n show", "show --sim n", "-o json --sim=n show", "show --sim n -ojson"]
    for spelling in spellings:
        found = parse.find(commands.ROOT, spelling.split())
        args = parse.arguments(found)
        assert (found.path, args.sim, args.verb) == (("aliquot", "show"), "n", "show")
        assert args.output == ("json" if "json" in spelling else "text")


def test_an_option_is_never_guessed_from_its_beginning(run: Run) -> None:
    assert run("plan", "--pol", "wait").code == 2


@pytest.mark.parametrize("words", [["--version"], ["-V"], ["mig-parted", "--version"], ["-o", "json", "--version"]])
def test_the_version_needs_no_machine(words: list[str], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "no-such-node")
    from aliquot import __version__

    assert run(*words) == (0, f"aliquot {__version__}\n", "")


def test_environment_variables_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "from-env")
    assert parse.arguments(parse.find(commands.ROOT, ["show"])).sim == "from-env"
    assert parse.arguments(parse.find(commands.ROOT, ["show", "--sim", "typed"])).sim == "typed"
    monkeypatch.setenv("MIG_PARTED_MODE_CHANGE_ONLY", "true")
    monkeypatch.setenv("MIG_PARTED_OUTPUT_FORMAT", "json")
    assert parse.arguments(parse.find(commands.ROOT, ["mig-parted", "apply"])).mode_only is True
    assert parse.arguments(parse.find(commands.ROOT, ["mig-parted", "export"])).output_format == "json"
    for name, value in (("MIG_PARTED_MODE_CHANGE_ONLY", "perhaps"), ("MIG_PARTED_OUTPUT_FORMAT", "toml")):
        monkeypatch.setenv(name, value)
        with pytest.raises(UsageError, match=value):
            parse.arguments(parse.find(commands.ROOT, ["mig-parted", "apply" if "MODE" in name else "export"]))


def test_the_page_of_the_docs_is_current() -> None:
    tool = ROOT / "tools/build_docs.py"
    done = subprocess.run([sys.executable, str(tool), "--check", "docs/cli.md"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout  # the other pages: tests/system/docs/test_reference.py


@pytest.mark.parametrize(("word", "expected"), [("shwo", "show"), ("aply", "apply"), ("get", None)])
def test_a_mistyped_verb(word: str, expected: str | None, run: Run) -> None:
    answer = run(word).err
    assert ("did you mean" in answer) == (expected is not None)
    assert f"next     aliquot {expected} --help" in answer if expected else "it has show, usage" in answer


def test_help_is_a_verb_everywhere(run: Run) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "show").out == run("show", "--help").out
    assert run("sim", "help", "start").out == run("help", "sim", "start").out == run("sim", "start", "--help").out


def test_help_lists_the_verbs_by_what_they_are_about(run: Run) -> None:
    out = run("--help").out
    titles = re.findall(r"^(\w.*):$", out, re.MULTILINE)
    known = ["GPUs", "Kubernetes", "VMs", "Slurm", "containers", "simulator", "services", "this program"]
    assert titles == [*known, "examples", "exit codes"]
    vms = out.partition("\nVMs:\n")[2].partition("\n\n")[0]
    assert [line.split()[0] for line in vms.splitlines()] == ["vgpu", "passthrough", "libvirt"]


def test_every_help_says_what_its_verb_does(run: Run) -> None:
    # Each help is one line that begins with a verb, perhaps after the place: ``on the host: start ...``.
    known = {word.lower() for word in (ROOT / "tools/prose/verbs.txt").read_text().split()}
    for path, command in leaves():
        if path:
            first = [part.split()[0] for part in command.help.split(": ")[:2]]
            assert known & {*first}, path
            assert not command.help.endswith((".", "?")), path
    assert max(map(len, run("--help").out.splitlines())) <= 100


def test_help_names_the_extra_that_a_verb_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    named = {extra for _, command in leaves() for extra in command.extra.split(",") if extra}
    assert named == {"agent", "dashboard", "metrics", "mount"}
    assert named <= extras.keys()
    assert extras["all"] == [f"aliquot[{','.join(extra for extra in extras if extra not in ('all', 'libvirt'))}]"]
    assert "pip install 'aliquot[agent]'" in run("help", "controller").out
    assert "pip install" not in run("help", "show").out
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    refused = run("metrics", "--listen", "127.0.0.1:0")
    assert (refused.code, "pip install 'aliquot[metrics]'" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("show --node n", "show --sim n"),
        ("--node=n show", "show --sim=n"),
        ("mig-parted -node n assert", "mig-parted assert --sim n"),
        ("history --most 3", "history --limit 3"),
        ("capacity --ask a/b", "capacity --request a/b"),
        ("slurm apply --offers 0 --offers=1", "slurm apply --capacity 0 --capacity=1"),
        ("slurm controller -f x --withdraw", "slurm controller -f x --remove"),
        ("cdi generate --output a.yaml", "cdi generate --out a.yaml"),
        ("cdi generate --output=a.yaml --format json", "cdi generate --out a.yaml -o json"),
        ("cdi generate --output json", "cdi generate -o json"),
    ],
)
def test_a_previous_spelling_is_an_alias(old: str, new: str) -> None:
    # Kept for one release, for scripts of users and for clusters whose hosts run different releases.
    given = [vars(parse.arguments(parse.find(commands.ROOT, shlex.split(line)))) for line in (old, new)]
    for arguments in given:
        del arguments["recorded_words"]  # as typed
    assert given[0] == given[1]


def test_a_previous_spelling_is_shown_nowhere(run: Run) -> None:
    previous = {alias for _, command in leaves() for option in command.options for alias in option.aliases}
    assert {"--node", "--offers", "--most", "--withdraw", "--ask"} <= previous
    texts = [run(*path, "--help").out for path, _ in leaves()] + [run("completion", "bash").out]
    texts.append((ROOT / "docs/cli.md").read_text())
    known = {name for _, command in leaves() for option in command.options for name in option.names}
    for text in texts:
        assert not set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) & (previous - known)


def test_words_after_a_double_dash_stay() -> None:
    found = parse.find(commands.ROOT, ["slurm", "render", "--node", "n", "--", "--node"])
    assert found.rest == ["--sim", "n", "--", "--node"]
