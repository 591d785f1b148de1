"""Reports of failures. A user never sees a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from aliquot import errors
from aliquot.cli.framework import error_output as failure
from aliquot.cli.framework import next_command as following
from aliquot.cli.framework import target_node as node
from aliquot.cli.framework.parser import Args, typed_node
from aliquot.cli.main import main
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .conftest import SOURCE, Run, Sim


def every_error(base: type[errors.AliquotError] = errors.AliquotError) -> list[type[errors.AliquotError]]:
    ours = [kind for kind in base.__subclasses__() if kind.__module__ == "aliquot.errors"]
    return [base, *(kind for child in ours for kind in every_error(child))]


@pytest.mark.parametrize("kind", every_error())
def test_every_error_is_reported_with_its_code_details_and_next_step(
    kind: type[errors.AliquotError], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: Args) -> None:
        raise kind("it went wrong", details=("first", "second"), next_step="aliquot show")

    monkeypatch.setattr(node, "inventory", fail)
    result = run("show")
    assert (result.code, result.out) == (kind.exit_code, "")
    head, *rest = result.err.splitlines()
    assert head.endswith(f"[{kind.code}]: it went wrong")
    assert rest == ["  first", "  second", "  next     aliquot show"]
    reported = msgspec.json.decode(run("show", "-o", "json").err)
    assert reported == {
        "apiVersion": "aliquot/v1",
        "kind": "Error",
        "code": kind.code,
        "message": "it went wrong",
        "details": ["first", "second"],
        "next": "aliquot show",
        "exit_code": kind.exit_code,
    }
    assert yaml.safe_load(run("show", "-o", "yaml").err) == reported


def test_exit_codes_are_those_of_the_table() -> None:
    from aliquot.cli.command_table import EXIT_CODES

    assert {kind.exit_code for kind in every_error()} <= {code for code, _ in EXIT_CODES}


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_defect_of_ours_is_one_sentence(form: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: Args) -> None:
        raise KeyError("surprise\nwith two lines")

    monkeypatch.setattr(node, "inventory", fail)
    result = run("show", "-o", form)
    assert (result.code, result.out) == (1, "")
    assert "Traceback" not in result.err
    assert "KeyError" in result.err
    assert "ALIQUOT_DEBUG=1" in result.err
    if form == "text":
        assert result.err.startswith("internal error[INTERNAL]: KeyError:")
        assert len(result.err.splitlines()) == 2
    else:
        assert msgspec.json.decode(result.err)["exit_code"] == 1
    monkeypatch.setenv("ALIQUOT_DEBUG", "1")
    assert "Traceback" in run("show").err


def test_ctrl_c_is_a_sentence_and_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(args: Args) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(node, "inventory", fail)
    assert run("show") == (130, "", "interrupted\n")


def test_a_reader_that_disappeared_is_not_an_error() -> None:
    words = [sys.executable, "-m", "aliquot", "catalog", "show", "rtx-pro-6000-96gb"]
    env = {**os.environ, "PYTHONPATH": SOURCE}
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() == 141


def test_closed_streams_do_no_harm() -> None:
    command = f"{sys.executable} -m aliquot catalog list >&- 2>&-"
    assert subprocess.run(["sh", "-c", command], env={**os.environ, "PYTHONPATH": SOURCE}).returncode == 0


def test_a_full_disk_under_stdout_is_reported() -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("this kernel has no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "aliquot", "catalog", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )
    assert done.returncode == 20
    assert done.stderr.startswith("blocked[STORAGE]: cannot write the result: No space left on device")
    assert "Traceback" not in done.stderr


def test_a_file_that_cannot_be_written_says_what_to_type(run: Run, mixed: Sim, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    result = run("generate", "--out", str(gone / "c.yaml"))
    assert result.code == 20
    assert f"next     mkdir -p {gone}" in result.err
    file = tmp_path / "file"
    file.touch()
    assert f"next     ls -ld {file}" in run("generate", "--out", str(file / "c.yaml")).err


@pytest.mark.parametrize("output", ["full", "closed"])
def test_a_change_that_failed_keeps_its_exit_code_where_its_result_cannot_be_written(state: str, output: str) -> None:
    # The disk is full, or the reader or the terminal went away: the result of the GPU change counts.
    node = SimClient(state, control.start(state, "a30"))
    node.set_mode(0, True)
    node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
    reader, writer = os.pipe()
    os.close(reader)
    with open("/dev/full", "w") as full, os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "aliquot", "apply", "--gpu", "0", "--mig", "1g.6gb", "--sim", node.name],
            stdout=full if output == "full" else closed,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )
    assert done.returncode == 40, done.stderr
    assert "undone: the former state is back" in done.stderr
    assert "hardware[HARDWARE]" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (["show", "-o", "json"], "json"),
        (["show", "-ojson"], "json"),
        (["show", "--output=yaml"], "yaml"),
        (["show", "--output", "yaml"], "yaml"),
        (["-o", "json", "show"], "json"),
        (["plan", "--out", "json"], "text"),
        (["show", "-o"], "text"),
        (["show", "-o", "xml"], "text"),
        (["mig-parted", "export", "-o", "json"], "text"),
    ],
)
def test_the_format_is_known_even_if_parsing_fails(words: list[str], form: str) -> None:
    assert failure.wanted_format(words) == form


def test_a_json_usage_error(run: Run) -> None:
    reported = msgspec.json.decode(run("show", "--nope", "-o", "json").err)
    assert (reported["code"], reported["exit_code"], reported["next"]) == ("USAGE", 2, "aliquot show --help")


def test_the_next_command_reaches_the_same_node(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = typed_node
    assert typed(["show", "--sim", "n"]) == typed(["--sim=n", "show"]) == "n"
    assert typed(["show"]) == typed(["show", "--sim"]) == ""
    monkeypatch.setenv("ALIQUOT_SIM", "n")
    assert typed(["show", "--sim", "n"]) == ""
    report = following.addressed
    assert report("aliquot show", "n") == "aliquot show --sim n"
    assert report("aliquot plan --gpu 0 --mig 1g.5gb*7", "n") == "aliquot plan --gpu 0 --mig '1g.5gb*7' --sim n"
    assert report("aliquot plan --gpu 0 --mig 1g.5gb*7", "") == "aliquot plan --gpu 0 --mig '1g.5gb*7'"
    assert report("aliquot catalog list", "n") == "aliquot catalog list --sim n"
    assert report("aliquot sim list", "n") == "aliquot sim list"
    assert report("aliquot plan --help", "n") == "aliquot plan --help"
    assert report("end the holders, or use --policy wait", "n") == "end the holders, or use --policy wait"
    assert report("aliquot no-such-verb", "n") == "aliquot no-such-verb"


def test_main_takes_the_words_of_the_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["aliquot", "--version"])
    assert main() == 0
    assert capsys.readouterr().out.startswith("aliquot ")
