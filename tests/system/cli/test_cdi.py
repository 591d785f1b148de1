"""``aliquot cdi``: specs for container runtimes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from aliquot.cdi import rules, spec_files
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .conftest import Run, Sim

RECORDED = Path(__file__).resolve().parents[2] / "recorded/cdi"


@pytest.fixture
def sliced(a100: Sim, monkeypatch: pytest.MonkeyPatch) -> Sim:
    """Create an A100 with a 3g.20gb in its upper half. Its library comes from the shim, which needs a compiler."""
    a100.node.set_mode(0, True)
    a100.node.create(0, "3g.20gb", start=4)
    return a100


def test_a_spec_on_stdout_is_one_that_runtimes_take(run: Run, sliced: Sim) -> None:
    result = run("cdi", "generate")
    assert (result.code, result.err) == (0, "")
    document = yaml.safe_load(result.out)
    assert rules.document_errors(document) == ()
    names = [d["name"] for d in document["devices"]]
    assert names[0].startswith("MIG-")
    assert names[1:] == ["0:0", "0000:01:00.0-3g.20gb-4", "all"]
    assert run("cdi", "generate", "-o", "json").document == document


def test_flags_of_nvidia_ctk(run: Run, sliced: Sim) -> None:
    words = ("--vendor", "example.com", "--class", "mig", "--device-name-strategy", "type-index", "--no-all-device")
    document = run("cdi", "generate", "-o", "json", *words).document
    assert document["kind"] == "example.com/mig"
    assert [d["name"] for d in document["devices"]] == ["mig0:0"]
    management = run("cdi", "generate", "-o", "json", "--mode", "management").document
    assert (management["kind"], [d["name"] for d in management["devices"]]) == ("management.nvidia.com/gpu", ["all"])
    whole = run("cdi", "generate", "-o", "json", "--whole-mig-gpus", "--device-name-strategy", "index").document
    assert [d["name"] for d in whole["devices"]] == ["0", "0:0", "all"]


def test_names_and_nodes_are_those_of_nvidia_ctk(run: Run, state: str) -> None:
    control.start(state, "a100-sxm4-40gb*2", "n")
    node = SimClient(state, "n")
    node.set_mode(0, True)
    for profile, start in (("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb+me", 1)):
        node.create(0, profile, start)
    node.close()
    strategies = [w for s in ("uuid", "index", "type-index") for w in ("--device-name-strategy", s)]
    document = run("cdi", "generate", "-o", "json", "--sim", "n", *strategies).document
    control.stop(state, "n")
    nodes = {d["name"]: sorted(n["path"] for n in d["containerEdits"]["deviceNodes"]) for d in document["devices"]}
    assert nodes == yaml.safe_load((RECORDED / "nvidia-ctk.yaml").read_text())


def test_a_file_follows_the_node(run: Run, sliced: Sim, tmp_path: Path) -> None:
    path = tmp_path / "nvidia.com-gpu.yaml"
    result = run("cdi", "generate", "--out", str(path))
    assert (result.code, result.out) == (0, "")
    assert "4 names of nvidia.com/gpu" in result.err
    listing = run("cdi", "list", "--spec-dir", str(tmp_path))
    assert listing.code == 0
    assert listing.out.splitlines()[1].split()[1:] == ["0:0", "0000:01:00.0-3g.20gb-4", str(path)]
    sliced.node.create(0, "1g.5gb")
    behind = run("cdi", "list", "--spec-dir", str(tmp_path))
    assert behind.code == 30
    assert f"aliquot cdi generate --out {path}" in behind.err
    assert run("cdi", "generate", "--out", str(path)).code == 0
    assert run("cdi", "list", "--spec-dir", str(tmp_path)).code == 0


def test_a_device_that_is_gone_is_named(run: Run, sliced: Sim, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    run("cdi", "generate", "--out", str(path))
    sliced.node.destroy(0, sliced.node.show()["gpus"][0]["instances"][0]["id"])
    listing = run("cdi", "list", "--spec-dir", str(tmp_path), "-o", "json")
    assert listing.code == 30
    assert {s["name"] for s in listing.document["stale"]} >= {"0:0", "0000:01:00.0-3g.20gb-4"}
    assert run("cdi", "generate").code == 20  # nothing to offer
    gone = run("cdi", "generate", "--out", str(path))
    assert (gone.code, path.exists()) == (0, False)
    assert f"removed {path}" in gone.err


def test_a_foreign_file_is_not_replaced(run: Run, sliced: Sim, tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text("kind: nvidia.com/gpu\ndevices: []\n")
    result = run("cdi", "generate", "--out", str(path))
    assert result.code == 20
    assert "Aliquot did not write it" in result.err
    assert run("cdi", "generate", "--out", str(path), "--force").code == 0
    assert run("cdi", "list", "--spec-dir", str(tmp_path)).code == 0


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("--vendor", "nvidia com"), "'nvidia com' is not a CDI vendor"),
        (("--class", "-"), "'-' is not a CDI class"),
        (("--device-name-strategy", "serial"), "invalid choice: 'serial'"),
        (("--mode", "csv"), "invalid choice: 'csv'"),
        (("--format", "toml"), "invalid choice: 'toml'"),
    ],
)
def test_bad_words_get_a_sentence(run: Run, sliced: Sim, words: tuple[str, ...], output: str) -> None:
    result = run("cdi", "generate", *words)
    assert result.code == 2
    assert output in result.err
    assert result.out == ""


def test_a_place_that_cannot_be_written_is_named(run: Run, sliced: Sim, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("cdi", "generate", "--out", str(tmp_path / "file/a.yaml"))
    assert result.code == 20
    assert f"cannot write {tmp_path}/file/a.yaml" in result.err


def test_roots_that_are_not_there_are_named(run: Run, tmp_path: Path) -> None:
    for option in ("--driver-root", "--dev-root", "--driver-root-ctr-path"):
        result = run("cdi", "generate", option, str(tmp_path / "none"))
        assert (result.code, result.out) == (2, "")
        assert f"{tmp_path}/none is not a directory" in result.err
    result = run("cdi", "generate", "--nvidia-cdi-hook-path", "nvidia-cdi-hook")
    assert result.code == 2
    assert "not an absolute path" in result.err


def test_a_file_follows_every_change(run: Run, a100: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # This includes a failed change: the instances that are created again have other UUIDs.
    monkeypatch.setattr(spec_files, "DIRECTORIES", (str(tmp_path),))
    path = str(tmp_path / "nvidia.yaml")
    assert run("cdi", "generate", "--out", path, "--device-name-strategy", "place").code == 0

    def names() -> list[str]:
        found = dict(spec_files.read(str(tmp_path)))
        return [each["name"].rpartition("-")[0] or each["name"] for each in found[path]["devices"]] if found else []

    before = names()
    done = run("apply", "--gpu", "0", "--mig", "3g.20gb*2")
    assert (done.code, f"updated {path}" in done.err) == (0, True), done
    assert names() == ["0000:01:00.0-3g.20gb"] * 2 + ["all"]
    run("sim", "fault", "fail", "call=DeviceCreateGpuInstanceWithPlacement", "code=999", "calls=1")
    assert run("apply", "--gpu", "0", "--mig", "1g.5gb*7").code != 0
    assert names() == ["0000:01:00.0-3g.20gb"] * 2 + ["all"]
    assert run("cdi", "list", "--spec-dir", str(tmp_path)).code == 0
    assert run("apply", "--gpu", "0", "--mig", "empty").code == 0
    assert names() == []
    assert run("apply", "--gpu", "0", "--mig", "disabled").code == 0
    assert names() == before
