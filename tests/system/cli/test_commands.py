"""The table of commands: whole, consistent, and what argparse, help, docs and completion are made from."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from aliquot.cli import command_table as commands
from aliquot.cli.completion import leaves
from aliquot.cli.framework import parser as parse
from aliquot.cli.framework.command_model import MARKDOWN, OUTPUT, CliCommand
from aliquot.errors import UsageError

from .conftest import Run

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
    """mig-parted's verbs keep mig-parted's flags."""
    some = {OUTPUT, MARKDOWN}
    without = [path for path, command in VERBS if not some & {*command.options} and path[0] != "mig-parted"]
    without.remove(("cdi", "generate"))  # its --output is a file and -o its --format, as nvidia-ctk has it
    without.remove(("metrics",))  # what it prints has the one format that Prometheus reads
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
            parse.parser(found.command, found.prog).parse_args(found.rest)


def test_names_are_unique_among_siblings() -> None:
    for path, command in leaves():
        names = [child.name for child in command.children]
        assert len(names) == len(set(names)), path
        options = [name for option in command.options for name in option.names]
        assert len(options) == len(set(options)), path


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["sim", "--help"], ["catalog", "-h"], ["mig-parted", "--help"]])
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
        (["--nod", "x", "show"], "aliquot --help"),
        (["--node"], "aliquot --help"),
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
    spellings = ["--node n show", "--node=n show", "show --node n", "-o json --node=n show", "show --node n -ojson"]
    for spelling in spellings:
        found = parse.find(commands.ROOT, spelling.split())
        args = parse.arguments(found)
        assert (found.path, args.node, args.verb) == (("aliquot", "show"), "n", "show")
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
    assert parse.arguments(parse.find(commands.ROOT, ["show"])).node == "from-env"
    assert parse.arguments(parse.find(commands.ROOT, ["show", "--node", "typed"])).node == "typed"
    monkeypatch.setenv("MIG_PARTED_MODE_CHANGE_ONLY", "true")
    monkeypatch.setenv("MIG_PARTED_OUTPUT_FORMAT", "json")
    assert parse.arguments(parse.find(commands.ROOT, ["mig-parted", "apply"])).mode_only is True
    assert parse.arguments(parse.find(commands.ROOT, ["mig-parted", "export"])).output_format == "json"
    for name, value in (("MIG_PARTED_MODE_CHANGE_ONLY", "perhaps"), ("MIG_PARTED_OUTPUT_FORMAT", "toml")):
        monkeypatch.setenv(name, value)
        with pytest.raises(UsageError, match=value):
            parse.arguments(parse.find(commands.ROOT, ["mig-parted", "apply" if "MODE" in name else "export"]))


def test_the_page_of_the_docs_is_current() -> None:
    tool = Path(__file__).resolve().parents[3] / "tools/build_docs.py"
    done = subprocess.run([sys.executable, str(tool), "--check", "docs/cli.md"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout  # the other pages: tests/system/docs/test_reference.py


@pytest.mark.parametrize(("word", "meant"), [("shwo", "show"), ("aply", "apply"), ("get", None)])
def test_a_mistyped_verb(word: str, meant: str | None, run: Run) -> None:
    said = run(word).err
    assert ("did you mean" in said) == (meant is not None)
    assert f"next     aliquot {meant} --help" in said if meant else "it has show, usage" in said


def test_help_is_a_verb_everywhere(run: Run) -> None:
    assert run("help").out == run("--help").out
    assert run("help", "show").out == run("show", "--help").out
    assert run("sim", "help", "start").out == run("sim", "start", "--help").out
