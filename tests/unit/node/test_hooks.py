"""Hooks run as in mig-parted: a replaced environment, and the first failure ends the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from aliquot.core.engine.ports import Hooks
from aliquot.errors import AliquotError
from aliquot.node.hooks import CommandHooks, NoHooks


class Entry(msgspec.Struct, frozen=True):
    command: str
    args: Sequence[str] = ()
    envs: Mapping[str, str] = {}
    workdir: str = ""


def shell(script: str, **envs: str) -> Entry:
    return Entry("/bin/sh", ("-c", script), envs)


def test_no_hooks_do_nothing() -> None:
    hooks: Hooks = NoHooks()
    hooks.fire("apply-start")


def test_the_environment_is_replaced_and_ours_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "not to be inherited")
    out = tmp_path / "env"
    script = shell(f"/usr/bin/env > {out}", A="1", MIG_PARTED_SELECTED_CONFIG="theirs")
    hooks: Hooks = CommandHooks({"apply-start": [script]}, {"MIG_PARTED_SELECTED_CONFIG": "ours"})
    hooks.fire("apply-start")
    found = dict(line.split("=", 1) for line in out.read_text().splitlines())
    assert found["A"] == "1"
    assert found["MIG_PARTED_SELECTED_CONFIG"] == "ours"
    assert "SECRET" not in found
    assert "HOME" not in found


def test_only_the_named_list_runs_in_order_in_its_folder(tmp_path: Path) -> None:
    entries = [Entry("/bin/sh", ("-c", f"echo {n} >> log"), {}, str(tmp_path)) for n in (1, 2)]
    CommandHooks({"apply-start": entries, "apply-exit": [shell("exit 9")]}, {}).fire("apply-start")
    assert (tmp_path / "log").read_text() == "1\n2\n"


def test_the_first_failure_ends_the_list_and_tells_its_output(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    hooks = CommandHooks({"x": [shell("echo stopped kubelet; echo badly >&2; exit 3"), shell(f"touch {mark}")]}, {})
    with pytest.raises(AliquotError) as caught:
        hooks.fire("x")
    assert "status 3" in caught.value.brief
    assert caught.value.details == ("stopped kubelet", "badly")
    assert caught.value.next_step
    assert not mark.exists()


def test_a_command_that_is_not_there() -> None:
    with pytest.raises(AliquotError) as caught:
        CommandHooks({"x": [Entry("/nonexistent/hook")]}, {}).fire("x")
    assert "/nonexistent/hook" in caught.value.brief


def test_a_command_that_hangs() -> None:
    with pytest.raises(AliquotError) as caught:
        CommandHooks({"x": [Entry("/bin/sleep", ("30",))]}, {}, timeout_s=0.1).fire("x")
    assert "did not end" in caught.value.brief


def test_output_shows_with_debug_only(capfd: pytest.CaptureFixture[str]) -> None:
    entries = {"x": [shell("echo to stdout; echo to stderr >&2")]}
    CommandHooks(entries, {}).fire("x")
    assert capfd.readouterr() == ("", "")
    CommandHooks(entries, {}, debug=True).fire("x")
    shown = capfd.readouterr()
    assert shown.out == ""
    assert sorted(shown.err.splitlines()) == ["to stderr", "to stdout"]
