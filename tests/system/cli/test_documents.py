"""Documents: the inventory's schema, config files, the catalog, versions, each in text, JSON and YAML."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.core.model import catalog
from aliquot.errors import AliquotError
from aliquot.sim import lifecycle as control

from .conftest import Run, Sim

VERBS = (
    "show",
    "profiles",
    "plan --gpu 0 --mig 1g.6gb",
    "verify --gpu 0 --mig 1g.6gb",
    "explain 1g.6gb",
    "generate",
    "export",
    "export --native",
    "checkpoint",
    "catalog list",
    "catalog show a30-24gb",
    "sim list",
    "sim show",
    "sim show --calls",
    "version",
    "completion bash",
)


@pytest.mark.parametrize("verb", VERBS)
def test_json_and_yaml_say_the_same(verb: str, mixed: Sim, run: Run) -> None:
    reported = run(*verb.split(), "-o", "json")
    assert reported.code in (0, 10, 30)
    assert (
        msgspec.json.decode(reported.out) == yaml.safe_load(run(*verb.split(), "-o", "yaml").out) or "--calls" in verb
    )
    if verb.split()[0] not in ("generate", "export", "checkpoint"):
        assert list(reported.document)[:2] == ["apiVersion", "kind"]
        assert reported.document["apiVersion"] == "aliquot/v1"


def test_the_inventory_has_the_published_shape(mixed: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "2g.12gb").code == 0
    mixed.node.hold(0, 1, pid=5)
    document = run("show", "-o", "json").document
    assert (document["kind"], document["node"], len(document["gpus"])) == ("Inventory", "mixed", 4)
    gpu: dict[str, Any] = document["gpus"][0]
    assert gpu["mig"] == {"capable": True, "current": "enabled", "pending": "enabled"}
    assert (gpu["index"], gpu["product"], gpu["family"]) == (0, "NVIDIA A30", "a30-24gb")
    assert (gpu["vgpus"], gpu["passthrough"]) == ([], False)
    (instance,) = gpu["instances"]
    assert (instance["profile"], instance["placement"], instance["held"]) == ("2g.12gb", "0:2", True)
    assert instance["holders"] == [{"kind": "process", "id": "5", "name": "python3"}]
    (compute,) = instance["compute_instances"]
    assert compute["profile"] == "2g.12gb"
    assert compute["uuid"].startswith("MIG-")
    assert run("show", "3", "-o", "json").document["gpus"][0]["mig"]["capable"] is False


def test_profiles_say_what_still_fits(mixed: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "2g.12gb@0").code == 0
    (gpu,) = run("profiles", "0", "-o", "json").document["gpus"]
    table = {p["name"]: p for p in gpu["profiles"]}
    assert table["1g.6gb"]["placements"] == ["0:1", "1:1", "2:1", "3:1"]
    assert table["1g.6gb"]["fits_now"] == ["2:1", "3:1"]
    assert table["4g.24gb"]["fits_now"] == []
    assert table["1g.6gb"]["id"] == 14
    assert table["1g.6gb"]["memory_mib"] == 5952
    assert run("profiles", "3").out == "GPU 3  0000:04:00.0  Tesla T4: no MIG\n"
    assert "Tesla T4" not in run("profiles").out


def test_estimates_are_marked(state: str, run: Run) -> None:
    # ``profiles`` and ``catalog show`` mark the values that a table estimates.
    guessed = [
        (name, p.name)
        for name in catalog.family_names()
        for p in catalog.family(name).profiles
        if "estimate" in p.confidence.values()
    ]
    assert guessed
    family, profile = guessed[0]
    text = run("catalog", "show", family).out
    assert any(line.split()[0] == profile and "estimate" in line for line in text.splitlines() if line.strip())


def written(path: Path) -> str:
    """Return a file without the line that names its writer."""
    text = path.read_text()
    return text.partition("\n")[2] if text.startswith("# Written by Aliquot") else text


OURS = (
    ("generate",),
    ("export", "--native"),
    ("checkpoint",),
    ("plan", "--gpu", "0", "--mig", "1g.6gb"),
    ("metrics",),
)


@pytest.mark.parametrize("verb", OURS, ids=lambda verb: verb[0])
def test_a_file_that_aliquot_did_not_write_is_replaced_only_by_force(
    verb: tuple[str, ...], mixed: Sim, run: Run, tmp_path: Path
) -> None:
    good = (0, 10)
    path = tmp_path / "file"
    path.write_text("")  # as mktemp creates it
    for _ in range(2):
        assert run(*verb, "--out", str(path)).code in good, "Aliquot recognizes what it wrote"
    ours = path.read_text()
    for theirs in ("version: v1\nmig-configs: {}\n", '{\n  "a": 1\n}\n', "all of it\n", ours.replace("a", "b", 1)):
        path.write_text(theirs)
        refused = run(*verb, "--out", str(path))
        assert (refused.code, path.read_text()) == (20, theirs)
        assert f"blocked[NOT_OURS]: {path} " in refused.err
        assert "add --force" in refused.err
    assert run(*verb, "--out", str(path), "--force").code in good
    assert path.read_text().partition(" ")[0] == ours.partition(" ")[0]


def test_an_edited_file_is_no_longer_aliquots_and_the_same_text_may_be_written_again(
    mixed: Sim, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "wish.yaml"
    assert run("generate", "--out", str(path)).code == 0
    path.write_text(path.read_text() + "# mine\n")
    assert "was edited after Aliquot wrote it" in run("generate", "--out", str(path)).err
    path.write_text(run("generate").out)
    assert run("generate", "--out", str(path)).code == 0


def test_json_of_our_own_formats_says_who_wrote_it_and_an_edit_is_kept(mixed: Sim, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    verb = ("export", "--native", "-o", "json", "--out", str(path))
    assert run(*verb).code == 0
    written = msgspec.json.decode(path.read_bytes())
    assert {k: v for k, v in written.items() if k != "x-aliquot"} == run("export", "--native", "-o", "json").document
    assert run(*verb, "--label", "other").code == 0, "other content that Aliquot wrote is replaced"
    ours = path.read_text()
    assert '"other"' in ours
    assert run("verify", "-f", str(path), "-c", "other").code == 0
    for edited in (ours.replace('"other"', '"mine"'), ours.replace("\n", "\n\n", 1), ours.replace("x-al", "y-al")):
        path.write_text(edited)
        assert run(*verb).code == 20
        assert path.read_text() == edited
    path.write_text(run("export", "--native", "-o", "json").out)
    assert run(*verb).code == 0, "the same text may be written again"


def test_json_of_mig_parted_has_no_place_for_a_mark_and_needs_force(mixed: Sim, run: Run, tmp_path: Path) -> None:
    verb = ("export", "-o", "json", "--out", str(tmp_path / "now.json"))
    assert run(*verb).code == run(*verb).code == 0, "the same text"
    assert msgspec.json.decode((tmp_path / "now.json").read_bytes()).keys() == {"version", "mig-configs"}
    refused = run(*verb, "--label", "other")
    assert refused.code == 20
    assert "JSON of mig-parted's format, unlike YAML, cannot show that Aliquot wrote it" in refused.err
    assert run(*verb, "--label", "other", "--force").code == 0
    assert run("mig-parted", "generate-config", "-o", "json", "-f", "now.json").code == 0, "as the original does"


def test_files_are_written_whole_or_not_at_all(mixed: Sim, run: Run, tmp_path: Path) -> None:
    for verb in ("generate", "export", "checkpoint"):
        assert run(verb, "--out", f"{verb}.out").out == ""
        assert written(tmp_path / f"{verb}.out") == run(verb).out
        refused = run(verb, "--out", "/no/such/directory/file")
        assert (refused.code, refused.out) == (20, "")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint.out", "export.out", "generate.out"]
    assert run("export", "--out", "/dev/null").code == 0


def test_an_exported_node_is_as_it_says(mixed: Sim, run: Run) -> None:
    request = "--gpu 0 --gpu 1 --gpu 2 --mig 1g.6gb:2,2g.12gb --mig 1c.3g.40gb,3g.40gb --mig 2g.48gb,1g.24gb"
    assert run("apply", *request.split()).code == 0
    for words in ([], ["--native"]):
        assert run("export", *words, "--label", "now", "--out", "now.yaml").code == 0
        assert run("verify", "-f", "now.yaml", "-c", "now").code == 0
        assert run("plan", "-f", "now.yaml").code == 0


def test_the_catalog_of_a_machine(mixed: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = run("catalog", "check")
    assert (refused.code, refused.out) == (20, "")
    try:
        control.library(mixed.node.state_dir, mixed.name)
    except AliquotError as error:
        pytest.skip(error.brief)
    monkeypatch.setenv("ALIQUOT_BACKEND", "shim")
    report = run("catalog", "check", "-o", "json")
    assert report.code == 0
    assert report.document["agrees"] is True
    assert [line.partition(":")[0] for line in report.document["checked"]] == [
        "a30-24gb",
        "h100-80gb-sxm",
        "rtx-pro-6000-96gb",
    ]
    for gpu in "0", "1":
        assert run("catalog", "record", gpu, "-o", "json", "--out", "table.json").code == 0
    assert "agrees: a30-24gb" in run("catalog", "check").out
    text = run("catalog", "record", "0")
    assert yaml.safe_load(text.out)["family"] == "a30-24gb"
    assert msgspec.json.decode(run("catalog", "record", "0", "-o", "json").out) == yaml.safe_load(text.out)
    assert run("catalog", "record", "0", "--out", "a30.yaml").code == 0
    assert written(Path("a30.yaml")) == text.out
    assert run("catalog", "record", "3").code == 20


def test_every_family_can_be_shown(run: Run) -> None:
    names = [f["name"] for f in run("catalog", "list", "-o", "json").document["families"]]
    assert names == list(catalog.family_names())
    for name in names:
        out = run("catalog", "show", name).out
        assert all(p.name in out for p in catalog.family(name).profiles)
    missing = run("catalog", "show", "a100-41gb")
    assert missing.code == 2
    assert "a100-40gb" in missing.err


def test_a_bug_report_says_everything(mixed: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = run("version", "-o", "json").document
    assert (facts["node"], len(facts["gpus"])) == ("mixed", 4)
    assert facts["driver"] in run("version").out
    monkeypatch.setenv("ALIQUOT_SIM", "gone")
    reported = run("version")
    assert reported.code == 0
    assert "gone" in reported.out
    assert "'unset ALIQUOT_SIM' returns to the GPUs of this host" in run("show").err


def test_a_file_keeps_its_permissions_and_a_new_one_has_the_usual(mixed: Sim, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    previous = os.umask(0o027)
    try:
        for mode in (0o640, 0o600):
            assert run("export", "--out", str(path)).code == 0
            assert path.stat().st_mode & 0o777 == mode
            path.chmod(0o600)
    finally:
        os.umask(previous)
