"""CDI files on disk: complete, owned by Aliquot, and without duplicate devices."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.cdi import spec_files as write
from aliquot.cdi.api import refresh, retract
from aliquot.cdi.options import CdiHost, CdiOptions, Majors
from aliquot.cdi.spec import document
from aliquot.errors import AliquotError, BlockedError, ForeignFileError, StorageError
from support import factory

OPTIONS = CdiOptions(host=CdiHost(majors=Majors(195, 511, 238)))
NODE = factory.inventory("a100-sxm4-40gb*2")


def made(**options: Any) -> dict[str, Any]:
    return document(NODE, msgspec.structs.replace(OPTIONS, **options))


def foreign(path: Path, document: dict[str, Any]) -> None:
    """Write a file as nvidia-ctk would."""
    plain = document | {"containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}}
    path.write_text(yaml.safe_dump(plain))


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_both_forms_say_the_same(tmp_path: Path, name: str) -> None:
    write.write(str(tmp_path / "sub" / name), made())
    assert stat.S_IMODE((tmp_path / "sub" / name).stat().st_mode) == 0o644
    assert [found for _, found in write.read(str(tmp_path / "sub"))] == [made()]
    assert os.listdir(tmp_path / "sub") == [name]


def test_a_write_that_fails_leaves_the_previous_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "a.yaml")
    write.write(path, made())
    before = (tmp_path / "a.yaml").read_bytes()

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        write.write(path, made(names=("uuid",)))
    assert (tmp_path / "a.yaml").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write.write(str(tmp_path / "file/a.yaml"), made())


def test_a_foreign_file_is_kept_unless_forced(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.com-gpu.yaml"
    foreign(path, made())
    with pytest.raises(BlockedError, match="Aliquot did not write it"):
        refresh(NODE, OPTIONS, str(tmp_path))
    with pytest.raises(BlockedError, match="Aliquot did not write it"):
        write.remove(str(path))
    assert retract(str(tmp_path)) == ()
    refresh(NODE, OPTIONS, str(tmp_path), force=True)
    assert retract(str(tmp_path)) == (str(path),)
    assert os.listdir(tmp_path) == []


def test_two_files_never_name_the_same_device(tmp_path: Path) -> None:
    foreign(tmp_path / "nvidia.yaml", made(names=("index",)))
    with pytest.raises(BlockedError, match="same names") as caught:
        refresh(NODE, OPTIONS, str(tmp_path))
    assert (caught.value.next_step or "").endswith(f"nvidia-cdi-refresh.service; rm {tmp_path}/nvidia.yaml")
    assert "names in both files: 0, 1, all" in caught.value.details
    refresh(NODE, msgspec.structs.replace(OPTIONS, vendor="aliquot.dev"), str(tmp_path))
    refresh(NODE, msgspec.structs.replace(OPTIONS, names=("uuid",), all_device=False), str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["aliquot.dev-gpu.yaml", "nvidia.com-gpu.yaml", "nvidia.yaml"]


def test_a_file_of_another_program_is_not_blamed_on_the_toolkit(tmp_path: Path) -> None:
    foreign(tmp_path / "site.yaml", made(names=("index",)))
    with pytest.raises(BlockedError, match="same names") as caught:
        refresh(NODE, OPTIONS, str(tmp_path))
    assert caught.value.next_step == f"cat {tmp_path}/site.yaml"
    assert "toolkit" not in str(caught.value.details)


def test_what_is_no_document_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("kind: nvidia.com/gpu\n  devices: [")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "folder.yaml").mkdir()
    refresh(NODE, OPTIONS, str(tmp_path))
    assert [path for path, _ in write.read(str(tmp_path))] == [str(tmp_path / "nvidia.com-gpu.yaml")]


def test_a_refresh_follows_the_node_and_ends_with_its_last_device(tmp_path: Path) -> None:
    path = Path(refresh(NODE, OPTIONS, str(tmp_path)))
    assert NODE.gpus[0].uuid in path.read_text()
    empty = factory.inventory("a100-sxm4-40gb*2", enabled=True)
    assert refresh(empty, OPTIONS, str(tmp_path)) == str(path)
    assert not path.exists()
    foreign(path, made())
    refresh(empty, OPTIONS, str(tmp_path))
    assert path.exists()  # Aliquot does not own it


def test_the_management_document_has_a_file_of_its_own(tmp_path: Path) -> None:
    path = refresh(NODE, msgspec.structs.replace(OPTIONS, mode="management"), str(tmp_path))
    assert os.path.basename(path) == "management.nvidia.com-gpu.yaml"


def test_the_management_file_is_handed_from_tool_to_tool(tmp_path: Path) -> None:
    # NVIDIA's toolkit writes the same file. A second file next to it would make both unusable.
    managing = msgspec.structs.replace(OPTIONS, mode="management")
    path = tmp_path / "management.nvidia.com-gpu.yaml"
    foreign(path, made(mode="management"))
    refresh(NODE, managing, str(tmp_path))
    assert write.own_files(str(tmp_path)) == [str(path)]
    foreign(tmp_path / "management-nvidia.yaml", made(mode="management"))
    with pytest.raises(BlockedError, match="same names"):
        refresh(NODE, managing, str(tmp_path))


def test_a_document_that_runtimes_would_refuse_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(AliquotError, match="not a valid CDI document") as caught:
        write.write(str(tmp_path / "a.yaml"), made() | {"cdiVersion": "0.3.0"})
    assert caught.value.details == ("version 0.3.0 is too low: its fields need 0.5.0",)
    assert os.listdir(tmp_path) == []


def test_json_and_yaml_are_read_alike(tmp_path: Path) -> None:
    spec = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0:1", "containerEdits": {}}]}
    for form in ("json", "yaml"):
        (tmp_path / f"a.{form}").write_text(write.encoded(spec, form))
    # A JSON file may also contain text that only YAML readers accept.
    (tmp_path / "b.json").write_text("{kind: nvidia.com/gpu, devices: [], # a comment\n}")
    (tmp_path / "c.json").write_text('{"kind": 7}')
    assert [found for _, found in write.read(str(tmp_path))] == [spec, spec, {"kind": "nvidia.com/gpu", "devices": []}]


OTHERS = "notes of another program\n"


def test_a_resting_foreign_file_is_neither_removed_nor_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "a.yaml", tmp_path / "a.yaml.resting"
    other.write_text(OTHERS)
    (tmp_path / "b.yaml.resting").write_text(write.encoded({"kind": "a.b/c", "devices": []}, "json"))
    (tmp_path / "b.yaml").write_text("b")
    assert list(write.suspended(str(tmp_path))) == []
    write.write(str(path), made())
    assert list(write.suspended(str(tmp_path))) == []
    with pytest.raises(ForeignFileError, match=r"a\.yaml\.resting exists"):
        write.suspend(str(path))
    write.forget_suspended(str(path))
    assert (other.read_text(), path.exists()) == (OTHERS, True)
    assert sorted(os.listdir(tmp_path)) == ["a.yaml", "a.yaml.resting", "b.yaml", "b.yaml.resting"]


def test_a_resting_file_of_ours_that_cannot_be_read_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    write.write(str(path), made())
    write.suspend(str(path))

    def fails(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("builtins.open", fails)
        assert list(write.suspended(str(tmp_path))) == []
    assert list(write.suspended(str(tmp_path))) == [(str(path), made())]
    (tmp_path / "a.yaml.resting").write_text("{ # ALIQUOT_CDI=v1, cut off")
    assert list(write.suspended(str(tmp_path))) == []
    assert os.listdir(tmp_path) == ["a.yaml.resting"]


@pytest.mark.parametrize("text", ['{"a":' * 100_000, "[" * 10_000, "a: 2024-13-45\n"], ids=["json", "yaml", "date"])
def test_a_document_that_breaks_its_reader_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "nvidia.yaml").write_text(text)
    write.write(str(tmp_path / "a.yaml"), made())
    assert [path for path, _ in write.read(str(tmp_path))] == [str(tmp_path / "a.yaml")]
