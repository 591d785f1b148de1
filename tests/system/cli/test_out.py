"""``--out`` means the same on every verb: a folder is not made, ``-`` is stdout, and links and devices are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aliquot.cdi import spec_files
from aliquot.cli.command_table import ROOT
from aliquot.cli.framework.command_model import CliCommand

from .conftest import Run, Sim

VERBS = {
    "plan": "plan --gpu 0 --mig 1g.5gb",
    "generate": "generate",
    "export": "export",
    "checkpoint": "checkpoint",
    "catalog record": "catalog record",
    "metrics": "metrics",
    "cdi generate": "cdi generate",
    "docker compose": "docker compose app=3g.20gb --form legacy --runtime docker --no-reserve",
}
CODES = {"plan": 10}


def with_out(command: CliCommand, path: str = "") -> Iterator[str]:
    for child in command.children:
        yield from with_out(child, f"{path} {child.name}".strip())
    if any("--out" in option.names for option in command.options):
        yield path


@pytest.fixture(autouse=True)
def half(a100: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a 3g.20gb on the GPU, and let every verb read it through NVML."""
    a100.node.set_mode(0, True)
    a100.node.create(0, "3g.20gb", start=4)
    monkeypatch.setenv("ALIQUOT_BACKEND", "shim")


def unmarked(text: str) -> str:
    return text.partition("\n")[2] if text.startswith("# Written by Aliquot") else text


def test_every_verb_with_that_option_is_tested_here() -> None:
    # "slurm types" needs a Slurm: test_slurm_types.py.
    assert sorted(with_out(ROOT)) == sorted([*VERBS, "slurm types"])


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_folder_is_refused_with_the_command_that_makes_it(verb: str, run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "mis spelt"
    result = run(*VERBS[verb].split(), "--out", str(folder / "file"))
    assert (result.code, result.out) == (20, ""), result.err
    assert f"blocked[STORAGE]: cannot write {folder}/file: the folder {folder} does not exist" in result.err
    assert f"next     mkdir -p '{folder}'" in result.err
    assert not folder.exists()


@pytest.mark.parametrize("verb", VERBS)
def test_a_dash_is_stdout(verb: str, run: Run, tmp_path: Path) -> None:
    code = CODES.get(verb, 0)
    saved = run(*VERBS[verb].split(), "--out", "file")
    printed = run(*VERBS[verb].split(), "--out", "-")
    assert (saved.code, printed.code) == (code, code), printed.err
    assert os.listdir(tmp_path) == ["file"]
    kept = [unmarked(text) for text in ((tmp_path / "file").read_text(), printed.out)]
    if verb == "metrics":  # they have the time
        kept = [text.partition("\n")[0] for text in kept]
    assert kept[0].strip() == kept[1].strip() != ""


@pytest.mark.parametrize("verb", VERBS)
def test_links_and_devices_are_written_to_and_not_replaced(verb: str, run: Run, tmp_path: Path) -> None:
    for name, target in (("null", Path("/dev/null")), ("link", tmp_path / "file")):
        link = tmp_path / name
        link.symlink_to(target)
        result = run(*VERBS[verb].split(), "--out", str(link), "--force")
        assert result.code == CODES.get(verb, 0), result.err
        assert link.is_symlink()
    assert Path("/dev/null").is_char_device()
    assert (tmp_path / "file").stat().st_size


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_name_is_a_usage_error(verb: str, run: Run) -> None:
    result = run(*VERBS[verb].split(), "--out", "")
    assert (result.code, result.out) == (2, "")
    assert "error[USAGE]: --out is empty: name a file, or - for stdout" in result.err


def test_a_plan_on_stdout_has_no_second_form_there(run: Run) -> None:
    words = ("plan", "--gpu", "0", "--mig", "1g.5gb", "--out", "-")
    assert run(*words, "-o", "json").document["kind"] == "Plan"
    result = run(*words, "-o", "markdown")
    assert (result.code, result.out) == (2, "")
    assert "--out - prints the plan as JSON: -o markdown is not possible beside it" in result.err


def test_a_plan_on_stdout_can_be_applied_from_stdin(run: Run, program: Run) -> None:
    made = run("plan", "--gpu", "0", "--mig", "1g.5gb", "--out", "-")
    assert "next" not in made.err
    assert program("apply", "-", stdin=made.out).code == 0


def test_the_folders_of_container_runtimes_are_made_for_a_cdi_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # /var/run/cdi is missing after each boot until a program makes it.
    folder = tmp_path / "run/cdi"
    monkeypatch.setattr(spec_files, "DIRECTORIES", (str(folder),))
    assert run("cdi", "generate", "--out", str(folder / "gpu.yaml")).code == 0
    assert yaml.safe_load((folder / "gpu.yaml").read_text())["kind"] == "nvidia.com/gpu"
