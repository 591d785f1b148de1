"""State files: another version, invalid bytes and older releases lose at most the last write, and never stop a
program.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from aliquot.errors import PermissionDeniedError, StorageError
from aliquot.foundation import state_store
from aliquot.foundation.state_store import StateFile


class Part(msgspec.Struct, frozen=True):
    name: str
    count: int = 0


class Value(msgspec.Struct, frozen=True):
    parts: tuple[Part, ...] = ()
    note: str = ""


class NewerPart(Part, frozen=True):
    colour: str = ""


class Newer(msgspec.Struct, frozen=True):
    parts: tuple[NewerPart, ...] = ()
    note: str = ""
    size: int = 0


ONE, TWO = Value((Part("a", 1),), "one"), Value((Part("a", 1), Part("b", 2)), "two")
BAD = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 5000,
    b"7",
    b'{"kind":"other","format":1,"writer":"x","checksum":"","content":{}}',
    b'{"kind":"test","format":2,"writer":"9.9","checksum":"","content":{}}',
    b'{"kind":"test","format":1,"writer":"x","checksum":"00000000","content":{}}',
    b'{"kind":"test","format":1,"writer":"x","checksum":"%08x","content":{"note":7}}' % crc32(b'{"note":7}'),
    b'{"kind":"test","format":1,"writer":"x","checksum":"' + b"9" * 5000 + b'","content":' + b"9" * 5000 + b"}",
]


def stored(folder: Path, shape: Any = Value, **more: Any) -> StateFile[Any]:
    return StateFile(str(folder / "value.json"), "test", shape, shape(), **more)


@pytest.fixture(autouse=True)
def _nothing_logged_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


def test_nothing_is_stored_at_first(tmp_path: Path) -> None:
    assert stored(tmp_path / "absent").load() == Value()
    assert state_store.unreadable == {}


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    stored(tmp_path / "new" / "folder").save(ONE)
    assert stored(tmp_path / "new" / "folder").load() == ONE
    assert os.listdir(tmp_path / "new" / "folder") == ["value.json"]
    found = msgspec.json.decode((tmp_path / "new" / "folder" / "value.json").read_bytes())
    assert {"kind", "format", "writer", "checksum", "content"} == set(found)


@pytest.mark.parametrize("body", BAD)
def test_bad_bytes_cost_the_last_write_only(tmp_path: Path, body: bytes) -> None:
    store = stored(tmp_path)
    store.save(ONE)
    store.save(TWO)
    (tmp_path / "value.json").write_bytes(body)
    assert store.load() == ONE
    assert list(state_store.unreadable) == [store.path]
    store.save(TWO)
    assert store.load() == TWO
    assert (tmp_path / "value.json.unreadable").read_bytes() == body


@pytest.mark.parametrize("body", BAD)
def test_bad_bytes_everywhere_are_an_empty_state(tmp_path: Path, body: bytes) -> None:
    store = stored(tmp_path, legacy_name="older.json")
    for name in ("value.json", "value.json.previous"):
        (tmp_path / name).write_bytes(body)
    assert store.load() == Value()


def test_each_byte_that_may_flip(tmp_path: Path) -> None:
    store = stored(tmp_path)
    store.save(ONE)
    store.save(TWO)
    whole = (tmp_path / "value.json").read_bytes()
    for place in range(len(whole) - 1):
        for value in (0xFF, whole[place] ^ 1):
            (tmp_path / "value.json").write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            assert store.load() in (ONE, TWO)


def test_each_place_where_it_may_be_cut(tmp_path: Path) -> None:
    store = stored(tmp_path)
    store.save(ONE)
    store.save(TWO)
    whole = (tmp_path / "value.json").read_bytes()
    for end in range(len(whole) - 1):
        (tmp_path / "value.json").write_bytes(whole[:end])
        assert store.load() == ONE


def test_it_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "value.json").write_bytes(b"{")
    for _ in range(3):
        stored(tmp_path).load()
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert str(tmp_path / "value.json") in caplog.text


def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "value.json").write_bytes(b"{")
    (tmp_path / "older.json").write_bytes(b'{"note":"x"}')
    assert stored(tmp_path, legacy_name="older.json").load() == Value((), "x")
    assert sorted(os.listdir(tmp_path)) == ["older.json", "value.json"]


def test_fields_of_a_newer_version_outlive_an_older_one(tmp_path: Path) -> None:
    newer = Newer((NewerPart("a", 1, "red"), NewerPart("b", 2, "blue")), "new", 7)
    stored(tmp_path, Newer).save(newer)
    old = stored(tmp_path)
    value = old.load()
    assert value == Value((Part("a", 1), Part("b", 2)), "new")
    old.save(Value((*value.parts, Part("c", 3)), "old"))
    assert stored(tmp_path, Newer).load() == Newer(
        (NewerPart("a", 1, "red"), NewerPart("b", 2, "blue"), NewerPart("c", 3)), "old", 7
    )
    old.save(Value((Part("b", 2),), "old"))
    assert stored(tmp_path, Newer).load() == Newer((NewerPart("b", 2, "blue"),), "old", 7)


def test_fields_of_a_newer_version_outlive_bad_bytes_in_the_last_write(tmp_path: Path) -> None:
    newer = Newer((NewerPart("a", 1, "red"),), "new", 7)
    stored(tmp_path, Newer).save(newer)
    stored(tmp_path, Newer).save(newer)
    (tmp_path / "value.json").write_bytes(b"\xff")
    old = stored(tmp_path)
    old.save(Value(old.load().parts, "old"))
    assert stored(tmp_path, Newer).load() == Newer((NewerPart("a", 1, "red"),), "old", 7)


def test_the_empty_value_is_stored_too(tmp_path: Path) -> None:
    for body in (b"\xff", b""):
        (tmp_path / "value.json").write_bytes(body)
        stored(tmp_path).save(Value())
        assert stored(tmp_path).load() == Value()
        assert state_store.unreadable == {}


def test_what_another_process_has_set_aside_is_unreadable_no_more(tmp_path: Path) -> None:
    store = stored(tmp_path, legacy_name="older.json")
    for path in ("value.json", "older.json"):
        (tmp_path / path).write_bytes(b"\xff")
    store.load()
    assert sorted(map(os.path.basename, state_store.unreadable)) == ["older.json", "value.json"]
    (tmp_path / "older.json").rename(tmp_path / "older.json.unreadable")
    store.load()
    assert list(map(os.path.basename, state_store.unreadable)) == ["value.json"]
    (tmp_path / "value.json").rename(tmp_path / "value.json.unreadable")
    stored(tmp_path / "elsewhere").save(ONE)
    (tmp_path / "elsewhere" / "value.json").rename(tmp_path / "value.json")
    assert store.load() == ONE
    assert state_store.unreadable == {}


def test_the_file_of_an_older_release_is_imported_once(tmp_path: Path) -> None:
    (tmp_path / "older.json").write_bytes(msgspec.json.encode(ONE))
    store = stored(tmp_path, legacy_name="older.json")
    assert store.load() == ONE
    store.save(TWO)
    assert sorted(os.listdir(tmp_path)) == ["older.json.imported", "value.json", "value.json.previous"]
    assert store.load() == TWO


def test_the_file_of_an_older_release_that_ran_since_counts(tmp_path: Path) -> None:
    store = stored(tmp_path, legacy_name="older.json")
    store.save(ONE)
    (tmp_path / "older.json").write_bytes(msgspec.json.encode(TWO))
    assert store.load() == TWO
    store.save(Value((), "after"))
    assert store.load() == Value((), "after")


def test_a_kill_while_it_is_imported_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kill at each write and rename is followed by the next run.
    for stop in range(20):
        folder = tmp_path / str(stop)
        folder.mkdir()
        (folder / "older.json").write_bytes(msgspec.json.encode(ONE))
        left = [stop]

        def killed(old: str, new: str, left: list[int] = left, real: Any = os.replace) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            real(old, new)

        store = stored(folder, legacy_name="older.json")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", killed)
            try:
                store.save(TWO)
            except KeyboardInterrupt:
                assert store.load() == ONE
                continue
        assert store.load() == TWO
        return
    pytest.fail("it never finished")


def test_what_an_older_release_wrote_is_merged_with_ours(tmp_path: Path) -> None:
    def both(ours: Value, older: Value) -> Value:
        return Value(ours.parts + older.parts, older.note)

    store = stored(tmp_path, legacy_name="older.json", merge=both)
    store.save(ONE)
    (tmp_path / "older.json").write_bytes(msgspec.json.encode(Value((Part("z"),), "older")))
    merged = Value((Part("a", 1), Part("z")), "older")
    assert store.load() == merged
    store.save(store.load())
    assert store.load() == merged


def test_bad_bytes_are_set_aside_when_an_older_file_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / "value.json").write_bytes(b"{")
    (tmp_path / "older.json").write_bytes(msgspec.json.encode(ONE))
    stored(tmp_path, legacy_name="older.json").save(TWO)
    assert (tmp_path / "value.json.unreadable").read_bytes() == b"{"


def test_more_than_is_ever_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The next start could not read it.
    store = stored(tmp_path)
    store.save(ONE)
    monkeypatch.setattr(state_store, "MOST_BYTES", 200)
    with pytest.raises(StorageError, match=r"value\.json"):
        store.save(Value((), "x" * 200))
    assert store.load() == ONE


def test_what_is_unreadable_is_found_until_it_is_removed(tmp_path: Path) -> None:
    def found() -> list[tuple[str, str]]:
        return [(os.path.basename(u.path), u.kind) for u in state_store.found_unreadable(str(tmp_path))]

    assert found() == []
    assert state_store.found_unreadable(str(tmp_path / "absent")) == ()
    (tmp_path / "value.json").write_bytes(b"{")
    stored(tmp_path).load()
    assert found() == [("value.json", "test")]
    stored(tmp_path).save(ONE)
    assert found() == [("value.json.unreadable", "value")]
    (tmp_path / "value.json.unreadable").unlink()
    assert found() == []


def test_what_cannot_be_written_leaves_what_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(tmp_path)
    store.save(ONE)

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        store.save(TWO)
    monkeypatch.undo()
    assert store.load() == ONE


def test_a_path_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "value.json").mkdir()
    with pytest.raises((StorageError, PermissionDeniedError), match=r"value\.json"):
        stored(tmp_path).load()


def test_what_is_removed_is_gone(tmp_path: Path) -> None:
    store = stored(tmp_path, legacy_name="older.json")
    (tmp_path / "older.json").write_bytes(msgspec.json.encode(ONE))
    store.save(ONE)
    store.save(TWO)
    store.remove()
    assert store.load() == Value()
    store.remove()


@pytest.mark.parametrize("name", ["value.json", "older.json"])
def test_what_cannot_be_understood_is_not_removed(tmp_path: Path, name: str) -> None:
    store = stored(tmp_path, legacy_name="older.json")
    store.save(ONE)
    (tmp_path / name).write_bytes(b"\xff")
    store.load()
    assert store.load_error is not None
    assert store.load_error.path == str(tmp_path / name)
    store.remove()
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.unreadable"]
    assert store.load() == Value()
    assert state_store.unreadable == {}


class Sparse(msgspec.Struct, frozen=True, omit_defaults=True):
    note: str = ""
    size: int = 0


def test_a_default_that_another_version_wrote_out_may_change(tmp_path: Path) -> None:
    # A version that omits defaults and one that writes them have the same fields.
    stored(tmp_path, Newer).save(Newer(note="one"))
    sparse = stored(tmp_path, Sparse)
    assert sparse.load() == Sparse(note="one")
    sparse.save(Sparse(note="one", size=3))
    assert sparse.load() == Sparse(note="one", size=3)
    assert stored(tmp_path, Newer).load() == Newer(note="one", size=3)
