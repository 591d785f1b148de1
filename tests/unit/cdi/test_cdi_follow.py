"""CDI files of Aliquot that follow the GPUs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.cdi import spec_files, spec_updates
from aliquot.cdi.options import SIMULATED_MAJORS, CdiHost, CdiMount, CdiOptions
from aliquot.cdi.rules import document_errors
from aliquot.cdi.spec import document
from aliquot.core.model.inventory import Inventory
from support import factory
from support.slurmstate import sliced
from unit.cdi.test_cdi_write import foreign

MARKED = "ALIQUOT_CDI=v1"
MACHINE = CdiHost(majors=SIMULATED_MAJORS)
WHOLE, CUT = factory.inventory("a100-sxm4-40gb*2"), sliced("3g.20gb@4", "1g.5gb@0", gpu=1)
EMPTY = msgspec.structs.replace(
    sliced("3g.20gb@4"),
    gpus=tuple(msgspec.structs.replace(gpu, instances=()) for gpu in sliced("3g.20gb@4").gpus[:1]),
)
"""One GPU in MIG mode without instances."""


def made(inventory: Inventory, **options: Any) -> dict[str, Any]:
    return document(inventory, CdiOptions(host=MACHINE, simulated="/sim/n1/lib", **options))


def followed(folder: Path, inventory: Inventory, simulated: str = "/sim/n1") -> list[str]:
    messages: list[str] = []
    spec_updates.update_specs(inventory, messages.append, simulated, (str(folder),))
    return messages


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"names": ("place",)},
        {"names": ("type-index", "uuid")},
        {"names": ("index",), "all_device": False},
        {"vendor": "example.com", "class_name": "slice"},
        {"mode": "management"},
        {"dev_root": "/run/driver"},
    ],
)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_file_says_by_itself_how_it_is_made_again(tmp_path: Path, options: dict[str, Any], form: str) -> None:
    path = tmp_path / "odd.yaml"
    spec_files.write(str(path), made(WHOLE, **options), form=form)
    answer = followed(tmp_path, CUT)
    assert dict(spec_files.read(str(tmp_path)))[str(path)] == made(CUT, **options)
    assert path.read_text().startswith("{") is (form == "json")
    if options.get("mode") != "management":
        assert answer == [f"updated {path}"]
    assert followed(tmp_path, CUT) == []


def test_gpus_that_are_offered_whole_although_they_are_cut_stay_so(tmp_path: Path) -> None:
    spec_files.write(str(tmp_path / "a.yaml"), made(CUT, whole_mig=True))
    followed(tmp_path, sliced("7g.40gb@0", gpu=1))
    found = dict(spec_files.read(str(tmp_path)))[str(tmp_path / "a.yaml")]
    assert found == made(sliced("7g.40gb@0", gpu=1), whole_mig=True)


def test_a_file_says_that_gpus_are_offered_whole_also_while_none_is_cut(tmp_path: Path) -> None:
    path = str(tmp_path / "a.yaml")
    spec_files.write(path, made(WHOLE, whole_mig=True))
    for inventory in (CUT, EMPTY, WHOLE, CUT):
        followed(tmp_path, inventory)
        assert dict(spec_files.read(str(tmp_path)))[path] == made(inventory, whole_mig=True)
    assert document_errors(made(WHOLE, whole_mig=True)) == ()
    assert "whole" not in str(made(CUT)["containerEdits"]["env"])


@pytest.mark.parametrize("odd", [{"name": "x"}, "x", {"name": "x", "containerEdits": {"deviceNodes": [{}]}}])
def test_an_odd_document_does_not_stop_the_others(tmp_path: Path, odd: object) -> None:
    first = made(WHOLE)
    (tmp_path / "a.yaml").write_text(spec_files.encoded({**first, "kind": "a.b/c", "devices": [odd]}, "json"))
    (tmp_path / "b.yaml").write_text(spec_files.encoded({**first, "kind": "a.b/d", "containerEdits": [MARKED]}, "json"))
    spec_files.write(str(tmp_path / "c.yaml"), first)
    answer = followed(tmp_path, CUT)
    assert dict(spec_files.read(str(tmp_path)))[str(tmp_path / "c.yaml")] == made(CUT)
    for line, name in zip(answer, "ab", strict=False):
        assert line.startswith(f"note: {tmp_path / name}.yaml was not updated: ")
        assert line.endswith("repeat the 'aliquot cdi generate' command that wrote it")
    assert answer[2:] == [f"updated {tmp_path / 'c.yaml'}"]


def test_what_every_container_gets_stays_as_it_was(tmp_path: Path) -> None:
    machine = msgspec.structs.replace(MACHINE, mounts=(CdiMount("/lib/a", "/lib/a"),), hook="/usr/bin/nvidia-cdi-hook")
    first = document(WHOLE, CdiOptions(host=machine))
    assert spec_updates.with_current_devices(first, CUT, MACHINE)["containerEdits"] == first["containerEdits"]


def test_a_file_without_devices_rests_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    spec_files.write(str(path), made(WHOLE, names=("place",)))
    assert followed(tmp_path, EMPTY)[0].startswith(f"suspended {path}")
    assert not path.exists()
    assert followed(tmp_path, EMPTY) == []
    assert followed(tmp_path, CUT) == [f"updated {path}"]
    assert os.listdir(tmp_path) == ["a.yaml"]
    assert dict(spec_files.read(str(tmp_path)))[str(path)] == made(CUT, names=("place",))


def test_a_file_that_was_written_again_is_not_replaced_by_the_one_that_rests(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    spec_files.write(str(path), made(WHOLE, names=("place",)))
    followed(tmp_path, EMPTY)
    spec_files.write(str(path), made(CUT, names=("uuid",)))
    followed(tmp_path, WHOLE)
    assert dict(spec_files.read(str(tmp_path)))[str(path)] == made(WHOLE, names=("uuid",))
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_files_of_others_and_of_other_nodes_are_left_alone(tmp_path: Path) -> None:
    foreign(tmp_path / "nvidia.yaml", made(WHOLE))
    spec_files.write(str(tmp_path / "mine.yaml"), made(WHOLE, vendor="example.com"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for node in ("", "/sim/n2", "/sim/n"):
        assert followed(tmp_path, CUT, node) == []
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    followed(tmp_path, CUT)
    assert yaml.safe_load((tmp_path / "nvidia.yaml").read_text())["devices"] == made(WHOLE)["devices"]


def test_what_cannot_be_written_is_reported_and_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    spec_files.write(str(path), made(WHOLE))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (answer,) = followed(tmp_path, CUT)
    assert answer.startswith(f"note: {path} was not updated: cannot write {path}: No space left on device")
    assert answer.endswith("; repeat the 'aliquot cdi generate' command that wrote it")
    assert followed(tmp_path / "none", CUT) == []
