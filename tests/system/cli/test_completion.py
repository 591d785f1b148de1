"""Shell completion: run in a real bash, and each script contains every verb."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.cli import completion

from .conftest import SOURCE, Run, Sim

Tab = Callable[..., list[str]]
BASH = shutil.which("bash") or ""


@pytest.fixture
def tab(tmp_path: Path) -> Tab:
    """Return what bash offers after some words. The last word is still being typed."""
    wrapper = tmp_path / "bin/aliquot"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aliquot "$@"\n')
    wrapper.chmod(0o755)

    def offered(*words: str) -> list[str]:
        if not BASH:
            pytest.skip("no bash here")
        script = completion.script("bash")
        script += f"COMP_WORDS=(aliquot {' '.join(repr(w) for w in words)})\nCOMP_CWORD={len(words)}\n"
        script += '_aliquot\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
        env = {**os.environ, "PYTHONPATH": SOURCE, "PATH": f"{wrapper.parent}:{os.environ['PATH']}"}
        done = subprocess.run([BASH, "-c", script], capture_output=True, text=True, env=env)
        assert done.stderr == ""
        return done.stdout.split()

    return offered


def test_verbs_and_options(tab: Tab) -> None:
    assert "plan" in tab("")
    assert "__complete" not in tab("")
    assert tab("pl") == ["plan"]
    assert {"start", "stop", "hold"} <= set(tab("sim", ""))
    assert tab("sim", "rel") == ["release"]
    assert {"--file", "--policy", "--mig"} <= set(tab("plan", "--"))
    assert tab("plan", "--policy", "") == ["refuse", "wait", "force"]
    assert tab("show", "-o", "j") == ["json"]
    assert tab("--sim", "n", "pl") == ["plan"]


def test_words_of_this_machine(tab: Tab, mixed: Sim) -> None:
    assert {"0", "3"} <= set(tab("plan", "--gpu", ""))
    assert tab("show", "GPU-")[0].startswith("GPU-")
    assert {"1g.6gb", "3g.40gb", "4g.96gb+gfx"} <= set(tab("explain", ""))
    assert tab("plan", "--sim", "m") == ["mixed"]
    assert "dgx-a100" in tab("sim", "start", "")
    assert "busy" in tab("sim", "fault", "")


def test_named_configs_of_the_file_that_was_typed(tab: Tab, run: Run, mixed: Sim) -> None:
    assert run("generate", "--out", "config.yaml").code == 0
    assert {"all-disabled", "all-enabled", "all-1g.6gb"} <= set(tab("plan", "-f", "config.yaml", "-c", ""))
    assert tab("plan", "-f", "config.yaml", "-c", "all-dis") == ["all-disabled"]
    assert tab("plan", "-f", "missing.yaml", "-c", "") == []


def test_asking_never_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "no-such-node")
    for what in ("gpus", "profiles"):
        assert run("__complete", what) == (0, "", "")
    assert run("__complete", "configs", "/no/such/file") == (0, "", "")
    assert run("__complete", "configs") == (0, "", "")


FISH = shutil.which("fish") or ""


@pytest.mark.skipif(not FISH, reason="no fish here")
def test_fish_offers_the_same(run: Run, mixed: Sim, tab: Tab, tmp_path: Path) -> None:
    (tmp_path / "aliquot.fish").write_text(completion.script("fish"))

    def offered(line: str) -> list[str]:
        env = {**os.environ, "PYTHONPATH": SOURCE, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
        script = f"source {tmp_path}/aliquot.fish; complete -C '{line}'"
        done = subprocess.run([FISH, "--no-config", "-c", script], capture_output=True, text=True, env=env)
        assert done.stderr == ""
        return [line.partition("\t")[0] for line in done.stdout.splitlines()]

    assert run("generate", "--out", "config.yaml").code == 0
    assert offered("aliquot pl") == ["plan"]
    assert offered("aliquot --sim n pl") == ["plan"]
    assert offered("aliquot sim rel") == ["release"]
    assert sorted(offered("aliquot plan --policy ")) == ["force", "refuse", "wait"]
    assert offered("aliquot explain 4g.96gb+g") == ["4g.96gb+gfx"]
    assert offered("aliquot plan -f config.yaml -c all-dis") == ["all-disabled"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_is_in_every_script(shell: str, run: Run) -> None:
    script = run("completion", shell).out
    for path, _ in completion.leaves():
        assert " ".join(path) in script
    for name in ("CASES", "AFTER", "VALUED", "GROUPS"):
        assert f"@{name}@" not in script
    program = shutil.which(shell)
    if program:
        check = subprocess.run([program, "-n"], input=script, capture_output=True, text=True)
        assert (check.returncode, check.stderr) == (0, "")
