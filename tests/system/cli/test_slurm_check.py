"""``aliquot slurm check`` for users and programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run, Sim

GOOD = {
    "slurm.conf": "GresTypes=gpu\nSelectType=select/cons_tres\nTaskPlugin=task/cgroup\nInclude nodes.conf\n",
    "nodes.conf": "NodeName=n1 Gres=gpu:a100:1\n",
    "gres.conf": "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n",
    "cgroup.conf": "ConstrainDevices=yes\n",
}


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "etc"
    folder.mkdir()
    for name, text in GOOD.items():
        (folder / name).write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    return folder


def test_right_files_of_a_node(run: Run, etc: Path, a100: Sim) -> None:
    result = run("slurm", "check", "--node-name", "n1")
    assert (result.code, result.out, result.err) == (0, f"{etc}: no problems found\n", "")
    document = run("slurm", "check", "--node-name", "n1", "-o", "json").document
    assert (document["kind"], document["fine"], document["compared"]) == ("SlurmCheck", True, ["n1"])


def test_findings_have_a_place_and_what_to_do(run: Run, etc: Path, a100: Sim) -> None:
    (etc / "nodes.conf").write_text("NodeName=n1 Gres=gpu:a100:2\n")
    result = run("slurm", "check", "--node-name", "n1")
    assert result.code == 30
    assert result.out.splitlines() == [
        f"{etc}/nodes.conf:1: error COUNT_MISMATCH [n1]",
        "  Gres=gpu:a100:2 says 2 a100, gres.conf has 1 of them: the node will be INVALID and drained",
        "  fix      count the lines of gres.conf",
        "  next     aliquot slurm apply",
        "",
        "1 error, 0 warnings",
    ]
    assert run("slurm", "check", "--node-name", "n1", "--fix").out == "aliquot slurm apply\n"
    (finding,) = run("slurm", "check", "--node-name", "n1", "-o", "json").document["findings"]
    assert (finding["rule"], finding["line"], finding["nodes"]) == ("COUNT_MISMATCH", 1, ["n1"])


def test_warnings_are_no_drift_unless_asked(run: Run, etc: Path) -> None:
    (etc / "nodes.conf").write_text("NodeName=n1 Gres=gpu:a100:1 State=DRAIN\n")
    assert run("slurm", "check", "--files-only").code == 0
    result = run("slurm", "check", "--files-only", "--strict")
    assert result.code == 30
    assert "warning NO_REASON" in result.out


def test_files_that_differ_from_the_machine(run: Run, etc: Path, a100: Sim) -> None:
    a100.node.set_mode(0, True)
    a100.node.create(0, "3g.20gb", start=4)
    rules = {f["rule"] for f in run("slurm", "check", "--node-name", "n1", "-o", "json").document["findings"]}
    assert rules == {"NOT_WHOLE", "NOT_OFFERED", "ADMIN_NOT_FENCED"}
    result = run("slurm", "check", "--node-name", "n9")
    assert result.code == 0
    assert "the files do not name n9" in result.err


def test_inventories_of_other_nodes(run: Run, etc: Path, a100: Sim, tmp_path: Path) -> None:
    (tmp_path / "n1.json").write_text(run("show", "-o", "json").out)
    (etc / "gres.conf").write_text("NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia4\n")
    document = run("slurm", "check", "--inventory", "n1=n1.json", "-o", "json").document
    assert [f["rule"] for f in document["findings"]] == ["NO_SUCH_GPU", "NOT_FENCED", "NOT_OFFERED"]
    assert run("slurm", "check", "--inventory", "gone.json").code == 2


def test_device_files_are_looked_for_in_the_given_place(run: Run, etc: Path, a100: Sim, tmp_path: Path) -> None:
    words = ("slurm", "check", "--node-name", "n1", "--dev-root", str(tmp_path / "root"))
    assert "error FILE_MISSING" in run(*words).out
    (tmp_path / "root/dev").mkdir(parents=True)
    (tmp_path / "root/dev/nvidia0").touch()
    assert run(*words).code == 0


def test_a_script_by_itself(run: Run, etc: Path, tmp_path: Path) -> None:
    (tmp_path / "change.sh").write_text("scontrol update nodename=n1 state=drain\n")
    result = run("slurm", "check", "--script", "change.sh")
    assert result.code == 30
    assert result.out.startswith("change.sh:1: error NO_REASON\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--conf-dir", "nowhere"), "the directory nowhere does not exist"),
        (("--conf-dir", "empty"), "empty has neither slurm.conf nor gres.conf"),
        (("--conf-dir", "odd"), "cannot read odd/slurm.conf: it is not a regular file"),
        (("--slurm-version", "new"), "invalid release 'new'"),
        (("--script", "gone.sh"), "cannot read the script gone.sh"),
    ],
)
def test_what_cannot_be_read(run: Run, etc: Path, words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "odd/slurm.conf").mkdir(parents=True)
    result = run("slurm", "check", *words, "--files-only")
    assert result.code == 2
    assert says in result.err


@pytest.mark.parametrize(
    "text", ["\x00\x01", "NodeName=n[1-\n", "NodeName=n[9-1] Gres=,\n", "Include slurm.conf\n", '"=="\n']
)
def test_rubbish_is_a_finding(run: Run, etc: Path, text: str) -> None:
    (etc / "nodes.conf").write_text(text)
    (etc / "gres.conf").write_bytes(
        b"\xff\xfe\n" + text.encode() + b"NodeName=n[1-99999999] Name=gpu File=/dev/nvidia[0-9999999]\n"
    )
    result = run("slurm", "check", "--files-only")
    assert result.code in (0, 30)
    assert "INTERNAL" not in result.err
