"""Two versions on one state directory: leftovers of a killed release, and a release that ignores newer files."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sysconfig
import tarfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from aliquot import __version__
from aliquot.containers.runtime.models import ContainerReservation
from aliquot.core.engine.history import past_runs
from aliquot.core.engine.recorded_change import change_of
from aliquot.core.planner.usage_tracking import UsageHistory
from aliquot.foundation import state_store
from aliquot.hardware.kernel.vgpu_owners import OwnerMapFile
from aliquot.hardware.state.boot_record_file import BootRecordFile
from aliquot.hardware.state.journal_reader import JOURNAL, last_run, read
from aliquot.kubernetes.label_agent.agent.observation import Durable
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile as AgentState
from aliquot.node.holders.reservations import ReservationFile
from aliquot.node.usage_tracker import UsageRecord as UsageRecord
from aliquot.sim import lifecycle as control
from aliquot.slurm.controller import history
from aliquot.slurm.node import change_record

from .conftest import Run

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/state"
PREVIOUS = "a5dd785"
"""The previous release."""
NODE = "node"
SPEC = importlib.util.spec_from_file_location("golden_state", ROOT / "tools/golden_state.py")
assert SPEC is not None
assert SPEC.loader is not None
golden_state = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(golden_state)


class Story(msgspec.Struct, frozen=True):
    """Directories of a node, and the commands that created them."""

    texts: tuple[str, ...]
    directories: tuple[dict[str, tuple[int, int]], ...]
    before: tuple[str, ...] = ()
    command: str = ""

    def write(self, number: int, folder: Path) -> None:
        for name, (text, size) in self.directories[number].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.texts[text][:size])


def story(release: str, name: str) -> Story:
    return msgspec.json.decode((GOLDEN / release / f"{name}.json").read_bytes(), type=Story)


STORIES = [(release.name, name) for release in sorted(GOLDEN.iterdir()) for name in golden_state.STORIES]
DIRECTORIES = [(*each, n) for each in STORIES for n in range(len(story(*each).directories))]
OURS = [(name, n) for release, name, n in DIRECTORIES if release == __version__]


@pytest.fixture(autouse=True)
def _nothing_reported_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_store, "unreadable", {})


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create the directory of a simulated node. The first command that connects to the node starts it."""
    state = tmp_path / "state"
    folder = state / "sim" / NODE
    folder.mkdir(parents=True)
    (folder / "calls.jsonl").touch()
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(state))
    monkeypatch.setenv("ALIQUOT_SIM", NODE)
    yield folder
    control.stop(str(state))


def test_this_release_and_the_one_before_are_there() -> None:
    assert {PREVIOUS, __version__} <= {release for release, _ in STORIES}


@pytest.mark.parametrize(("release", "name"), STORIES)
def test_every_directory_is_understood(release: str, name: str, tmp_path: Path) -> None:
    found = story(release, name)
    kinds = set()
    for number in range(len(found.directories)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.write(number, folder)
        records = last_run(str(folder / JOURNAL))
        assert records[0].kind == "begin"
        change = change_of(records[0])
        assert change is not None, number
        assert change.gpus
        assert change.desired
        kinds.add(records[-1].kind)
        assert len(past_runs(read(str(folder / JOURNAL)))) == len(found.before) + 1
        assert BootRecordFile(str(folder)).load()
        assert OwnerMapFile(str(folder)).load()[1] == ""
    assert kinds == {"begin", "intent", "done", "end"}
    assert state_store.unreadable == {}


@pytest.mark.parametrize("release", sorted({release for release, _ in STORIES}))
def test_the_other_state_files_are_understood(release: str, tmp_path: Path) -> None:
    story(release, "others").write(0, tmp_path)
    wanted, folder = golden_state.VALUES, str(tmp_path)
    assert AgentState(folder).value == msgspec.convert(wanted["agent"], Durable)
    assert ReservationFile(folder).load() == (msgspec.convert(wanted["reservations"], ContainerReservation),)
    assert UsageRecord(folder, folder).load() == msgspec.convert(wanted["usage"], UsageHistory)
    change = change_record.ChangeRecordFile(folder, "n1").read()
    assert change == msgspec.convert(wanted["change"], change_record.ChangeRecord)
    kept = msgspec.convert(wanted["history"], history.SlurmHistory, strict=False)
    assert history.read(os.path.join(folder, "slurm-controller.json")) == (kept, "")
    assert state_store.unreadable == {}


@pytest.mark.long
@pytest.mark.parametrize(("release", "name", "number"), DIRECTORIES)
def test_an_apply_continues_from_it(release: str, name: str, number: int, node: Path, run: Run) -> None:
    found = story(release, name)
    found.write(number, node)
    past = run("history", "-o", "json")
    assert past.code == 0, past.err
    outcomes = [change["outcome"] for change in past.document["changes"]]
    assert outcomes[0] == ("done" if number == len(found.directories) - 1 else outcomes[0])
    assert outcomes[0] in ("done", "cut off")
    assert outcomes[1:] == ["done"] * len(found.before)
    for command in (found.command, *found.before, found.command):
        done = run(*shlex.split(command))
        assert done.code == 0, done.err
        assert "internal error" not in done.err
    assert "done" in run("history", "--limit", "1").out
    assert not list(node.glob("*.unreadable"))


ANOTHER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a field of another type": lambda content: content | {"fingerprint": 60.0},
    "an action without its profile": lambda content: without_profiles(content),
    "nothing": lambda content: {},
    "another type": lambda content: "mig",
    "a field less": lambda content: {k: v for k, v in content.items() if k not in ("desired", "before")},
    "a field more": lambda content: content | {"colour": "red"},
    "another action": lambda content: content | {"actions": [{"type": "melt", "gpu": "0000:01:00.0"}]},
    "another placement": lambda content: json.loads(json.dumps(content).replace('"4:4"', '"a:b"')),
}
"""Contents that another version may have written for an interrupted change."""


def without_profiles(content: Any) -> Any:
    if isinstance(content, dict):
        return {k: without_profiles(v) for k, v in content.items() if k != "profile_id"}
    return [without_profiles(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("release", [__version__, PREVIOUS])
@pytest.mark.parametrize(
    "another", [each if n < 2 else pytest.param(each, marks=pytest.mark.long) for n, each in enumerate(ANOTHER)]
)
def test_an_interrupted_change_of_another_version_stops_nothing(
    another: str, release: str, node: Path, run: Run
) -> None:
    found = story(release, "mig")
    found.write(len(found.directories) - 4, node)
    (journal,) = node.glob("*journal.jsonl")
    for more in ({}, {"format": 99, "writer": "9.9"}, {"text": 7}):
        rewrite(journal, ANOTHER[another], more)
        assert run("history").code == 0
        for words in (found.command, "apply --gpu 0 --mig 7g.40gb", "restore --boot"):
            done = run(*shlex.split(words))
            assert done.code == 0, done.err
            assert "internal error" not in done.err
            if release == __version__ and more.get("format") and words == found.command:
                assert "an apply by another version of Aliquot was interrupted" in done.err
        (node / JOURNAL).unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
        found.write(len(found.directories) - 4, node)


def rewrite(journal: Path, another: Callable[[dict[str, Any]], Any], more: dict[str, Any]) -> None:
    """Rewrite the change of the last run as another version would. Its checksum is valid."""
    lines = journal.read_bytes().splitlines()
    number = max(n for n, line in enumerate(lines) if b'"kind":"begin"' in line)
    record = json.loads(lines[number][9:])
    (name,) = {"change", "plan"} & set(record)
    body = json.dumps(record | {name: another(record[name])} | more).encode()
    lines[number] = b"%08x %s" % (crc32(body), body)
    journal.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.mark.long
@pytest.mark.parametrize(("release", "name", "number"), DIRECTORIES)
def test_a_boot_restores_what_was_recorded_last(release: str, name: str, number: int, node: Path, run: Run) -> None:
    found = story(release, name)
    found.write(number, node)
    assert run("sim", "reboot").code == 0
    kept = BootRecordFile(str(node)).load()
    done = run("restore", "--boot")
    assert done.code == 0, done.err
    shown = run("show", "-o", "json").document
    for each in kept:
        gpu = next(g for g in shown["gpus"] if g["pci"] == each.desired.pci)
        assert len(gpu["instances"]) == len(each.desired.instances or ())
        assert len(gpu["vgpus"]) == len(each.desired.vgpus or ())


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an environment with the previous release and the libraries of this one. Returns its Python."""
    folder = tmp_path_factory.mktemp("previous")
    venv.create(folder, symlinks=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    with tarfile.open(GOLDEN / PREVIOUS / "program.tar.xz") as archive:
        archive.extractall(site, filter="data")
    (site / "libraries.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return folder / "bin/python"


@pytest.fixture
def old(previous: Path) -> Callable[..., str]:
    """Return a function that runs a command of the previous release, which must succeed, and returns its stderr."""

    def call(*words: str) -> str:
        done = subprocess.run(
            [previous, "-P", "-m", "aliquot", *words],
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    return call


def test_the_old_program_is_whole_and_not_this_one(previous: Path) -> None:
    # The modules that a command loads depend on what runs on the host.
    words = [str(previous), "-P", "-c", "import aliquot; print(aliquot.__file__)"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    source = Path(done.stdout.strip()).parents[1]
    assert source.is_relative_to(previous.parents[1])
    every = {path: path.read_text() for path in source.rglob("aliquot/**/*.py")}
    assert len(every) > 200
    missing = {name for text in every.values() for name in imported(text) if not there(source / name.replace(".", "/"))}
    assert not missing


def imported(text: str) -> set[str]:
    """Return the names below ``aliquot`` that a module imports, also within functions."""
    nodes = list(ast.walk(ast.parse(text)))
    found = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    found |= {f"{n.module}.{each.name}" for n in nodes if isinstance(n, ast.ImportFrom) for each in n.names}
    return {name for name in found if name.startswith("aliquot.")}


def there(place: Path) -> bool:
    """Report whether this is a module, a package, or a name in one."""
    if place.with_suffix(".py").exists() or (place / "__init__.py").exists():
        return True
    parents = (place.parent.with_suffix(".py"), place.parent / "__init__.py")
    return any(place.name in parent.read_text() for parent in parents if parent.exists())


def ours(node: Path) -> dict[str, bytes]:
    """Return the files that the previous release does not know."""
    names = [f"{name}{more}" for name in ("boot-record.json", "vgpu-owners.json") for more in ("", ".previous")]
    names.append("change-journal.jsonl")
    return {name: (node / name).read_bytes() for name in names if (node / name).exists()}


def test_up_down_and_up_again(node: Path, old: Callable[..., str], run: Run) -> None:
    shutil.rmtree(node)
    old("sim", "start", "a100-sxm4-40gb,a100-sxm4-40gb", "--name", NODE)
    old("apply", "--gpu", "0", "--mig", "3g.20gb,1g.5gb")
    assert run("apply", "--gpu", "1", "--mig", "2g.10gb").code == 0
    before = ours(node)
    assert len(before) == 3
    old("apply", "--gpu", "0", "--mig", "1g.5gb")
    assert ours(node) == before
    assert [kept.desired.pci for kept in BootRecordFile(str(node)).load()] == ["0000:01:00.0", "0000:02:00.0"]
    assert run("restore", "--boot").code == 0
    assert "nothing" in run("restore", "--boot", "-o", "json").out
    assert run("apply", "--gpu", "1", "--mig", "7g.40gb").code == 0
    found = run("history", "-o", "json").document["changes"]
    assert [each["gpus"] for each in found] == [[f"0000:0{n}:00.0"] for n in (2, 1, 2, 1)]
    old("apply", "--gpu", "0", "--mig", "3g.20gb")
    old("restore", "--boot")
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    assert not list(node.glob("*.unreadable"))


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), OURS)
def test_the_release_before_goes_on_from_ours_and_leaves_it(
    name: str, number: int, node: Path, old: Callable[..., str], run: Run
) -> None:
    found = story(__version__, name)
    found.write(number, node)
    before = ours(node)
    for command in (found.command, *found.before):
        old(*shlex.split(command))
    assert ours(node) == before
    assert run(*shlex.split(found.command)).code == 0
    assert run("history").code == 0
    assert not list(node.glob("*.unreadable"))
