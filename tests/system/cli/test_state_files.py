"""State files with bad bytes or of a newer version: every command works, reports it once and moves the file aside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from aliquot.containers.runtime.models import ContainerReservation
from aliquot.foundation import state_store
from aliquot.node.holders.reservations import ReservationFile
from aliquot.sim import lifecycle as control

from .conftest import Run

NODE = "node"
KINDS = ("boot-record", "container-reservations", "usage-record", "vgpu-owners")
WHERE = {"DOCKER_HOST": "unix:///run/docker.sock"}
JOURNAL = "change-journal.jsonl"


def newer(body: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body) | {"format": state_store.FORMAT + 1, "writer": "9.9"})


BAD: dict[str, Callable[[bytes], bytes]] = {
    "not UTF-8": lambda body: body[:-9] + b"\xff" + body[-8:],
    "empty": lambda body: b"",
    "cut off": lambda body: body[: len(body) // 2],
    "another checksum": lambda body: body.replace(b'"checksum":"', b'"checksum":"0', 1),
    "a newer format": newer,
}


def first(every: Iterable[Any]) -> list[Any]:
    """Return the first case as it is and mark the others as long."""
    return [each if n == 0 else pytest.param(each, marks=pytest.mark.long) for n, each in enumerate(every)]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[Path]:
    """Create the directory of a simulated node in which each state file also has previous content."""
    monkeypatch.setattr(state_store, "unreadable", {})
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("ALIQUOT_SIM", NODE)
    folder = tmp_path / "state/sim" / NODE
    assert run("sim", "start", "a100-sxm4-40gb,a2:vfio", "--name", NODE).code == 0
    for count in (1, 2):
        write_each(run, folder, count)
    yield folder
    control.stop(str(tmp_path / "state"))


def write_each(run: Run, folder: Path, count: int) -> None:
    """Write each state file."""
    assert run("apply", "--gpu", "0", "--mig", f"1g.5gb*{count}").code == 0
    assert run("apply", "--gpu", "1", "--vgpu", f"A2-4Q:{count}").code == 0
    ReservationFile(str(folder)).save(
        [
            ContainerReservation(f"r{n}", "docker", (f"MIG-{n}",), (), 1.0, None, connection_env=WHERE)
            for n in range(count)
        ]
    )
    assert run("metrics").code == 0


def damage(folder: Path, bad: Callable[[bytes], bytes], *, also_previous: bool = False) -> dict[str, bytes]:
    """Break each file and return the current contents."""
    found = {}
    for path in (folder / f"{kind}.json" for kind in KINDS):
        found[f"{path.name}.unreadable"] = body = bad(path.read_bytes())
        path.write_bytes(body)
        if also_previous:
            path.with_name(f"{path.name}.previous").write_bytes(body)
    return found


def aside(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.unreadable")}


@pytest.mark.parametrize("also_previous", first([False, True]))
@pytest.mark.parametrize("bad", first(BAD))
def test_no_command_fails_and_each_file_is_set_aside(
    bad: str, also_previous: bool, node: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = damage(node, BAD[bad], also_previous=also_previous)
    for words in ("show", "history", "usage", "metrics", "docker list", "plan --gpu 0 --mig 7g.40gb"):
        assert run(*words.split()).code in (0, 10), words
    for kind in KINDS:
        (message,) = [m for m in caplog.messages if f"/{kind}.json cannot be understood" in m]
        assert f"{node}/{kind}.json.unreadable" in message
        assert "docs/upgrade.md" in message
    write_each(run, node, 3)
    assert aside(node) == damaged
    assert state_store.unreadable == {}
    assert len(ReservationFile(str(node)).load()) == 3
    shown = run("show", "-o", "json").document["notes"]
    for text in ("\n".join(shown), run("history").err):
        assert all(f"{node}/{kind}.json.unreadable was set aside" in text for kind in KINDS)
    page = run("metrics").out
    assert re.findall(r'files_unreadable\{kind="(.*?)",node="node"\} (\S+)', page) == [(kind, "1.0") for kind in KINDS]
    for path in node.glob("*.unreadable"):
        path.unlink()
    assert "set aside" not in run("history").err
    assert "files_unreadable{" not in run("metrics").out


@pytest.mark.parametrize("bad", first(reversed(BAD)))
def test_a_boot_restores_the_record_before(bad: str, node: Path, run: Run) -> None:
    damage(node, BAD[bad])
    assert run("sim", "reboot").code == 0
    assert run("restore", "--boot").code == 0
    instances, vgpus = (len(gpu[what]) for gpu, what in zip(gpus(run), ("instances", "vgpus"), strict=True))
    assert (instances, vgpus) == (2, 1), "the last change before the damage was that of the second GPU"


def gpus(run: Run) -> list[dict[str, list[object]]]:
    found: list[dict[str, list[object]]] = run("show", "-o", "json").document["gpus"]
    return found


def test_a_newer_version_of_the_same_format_loses_nothing_by_a_downgrade(node: Path, run: Run) -> None:
    # Each level of each file contains fields that this version does not know.
    for kind in KINDS:
        path = node / f"{kind}.json"
        file = msgspec.json.decode(path.read_bytes())
        content = msgspec.json.encode(extended(file["content"]))
        checksum = f"{crc32(content):08x}"
        path.write_bytes(
            msgspec.json.encode(file | {"content": msgspec.Raw(content), "checksum": checksum, "writer": "9.9"})
        )
    assert run("sim", "reboot").code == 0
    assert run("restore", "--boot").code == 0
    assert [len(gpus(run)[0]["instances"]), len(gpus(run)[1]["vgpus"])] == [2, 2]
    write_each(run, node, 1)
    assert aside(node) == {}
    for kind in KINDS:
        content = msgspec.json.decode((node / f"{kind}.json").read_bytes())["content"]
        assert content["from_9_9"] == 7, kind
        assert "9.9" not in (node / f"{kind}.json").read_text().partition('"content"')[0]
    kept = msgspec.json.decode((node / "container-reservations.json").read_bytes())["content"]["reservations"]
    assert kept[0]["from_9_9"] == 7


def extended(content: Any) -> Any:
    """Return the content with an extra field in each object that a version could extend."""
    if isinstance(content, dict):
        more = {"from_9_9": 7} if "DOCKER_HOST" not in content else {}
        return {name: extended(value) for name, value in content.items()} | more
    return [extended(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("body", first([b"\xff\n", b"\xff", b"\0\0{\n", b"0" * 5000 + b"\n"]))
def test_bad_bytes_in_the_journal(body: bytes, node: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    path = node / JOURNAL
    good = path.read_bytes()
    for damaged in (body, body + good, good + body, good[: len(good) // 2] + body + good[len(good) // 2 :]):
        path.write_bytes(damaged)
        caplog.clear()
        assert run("history").code == 0
        assert run("apply", "--gpu", "0", "--mig", "2g.10gb").code == 0
        assert run("apply", "--gpu", "0", "--mig", "1g.5gb").code == 0
        assert [m for m in caplog.messages if f"{path} cannot be understood" in m]
        assert body.strip(b"\n") in (node / f"{JOURNAL}.unreadable").read_bytes()
        assert [change["outcome"] for change in run("history", "-o", "json").document["changes"]][:2] == ["done"] * 2
        (node / f"{JOURNAL}.unreadable").unlink()


def test_bad_bytes_in_the_record_of_a_slurm_node(node: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    folder = node / "slurm-changes"
    folder.mkdir()
    (folder / "n1.json").write_bytes(b"\xff")
    assert run("slurm", "apply", "--boot").code == 0
    assert [m for m in caplog.messages if f"{folder}/n1.json cannot be understood" in m]


@pytest.mark.parametrize("name", ["boot-record.json", "wishes.json"])
def test_a_boot_record_of_which_nothing_is_left_is_no_empty_one(name: str, node: Path, run: Run) -> None:
    for path in node.glob("boot-record.json*"):
        path.unlink()
    (node / name).write_bytes(b"garbage\xff")
    found = run("restore", "--boot", "-o", "json")
    error = msgspec.json.decode(found.err)
    assert (found.code, error["code"]) == (20, "STORAGE"), found
    assert str(node / name) in error["message"]
