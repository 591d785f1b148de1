"""``aliquot docker`` on a host without any container runtime: arguments, refusals, and commands that need no daemon.

Tests with real runtimes are in tests/system/containers.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from .conftest import Run, Sim

PICK = ("--runtime", "docker", "--no-reserve")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove every runtime from PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "CONTAINER_HOST"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def halves(a100: Sim) -> list[str]:
    """Partition one A100 into two 3g.20gb and return the UUIDs of their MIG devices."""
    a100.node.set_mode(0, True)
    a100.node.create(0, "3g.20gb", start=0)
    a100.node.create(0, "3g.20gb", start=4)
    return []


@pytest.fixture
def uuids(run: Run, halves: list[str]) -> list[str]:
    found = run("show", "-o", "json").document["gpus"][0]["instances"]
    return [c["uuid"] for i in sorted(found, key=lambda i: i["id"]) for c in i["compute_instances"]]


def test_legacy_words(run: Run, uuids: list[str]) -> None:
    first, second = uuids
    assert run("docker", "run-args", "0:1", "--form", "gpus", *PICK).out == f"--gpus device={second}\n"
    made = run("docker", "run-args", first, "--form", "env", "--name", "web", *PICK).out
    assert made == f"--name web --runtime nvidia --env NVIDIA_VISIBLE_DEVICES={first}\n"
    document = run("docker", "run-args", "3g.20gb", "--form", "legacy", *PICK, "-o", "json").document
    assert (document["kind"], document["form"], document["reservation"]) == ("ContainerArguments", "gpus", None)
    assert document["devices"] == [
        {
            "uuid": document["args"][1].removeprefix("device="),
            "index": "0:0",
            "profile": "3g.20gb",
            "gpu": "0000:01:00.0",
        }
    ]


def test_a_cdi_name_where_a_file_has_it(
    run: Run, uuids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cdi").mkdir()
    with monkeypatch.context() as compiler:  # the simulated node's library is not built yet
        compiler.setenv("PATH", os.defpath)
        assert run("cdi", "generate", "--out", str(tmp_path / "cdi/nvidia.com-gpu.yaml")).code == 0
    words = ("docker", "run-args", uuids[1], *PICK, "--spec-dir", str(tmp_path / "cdi"))
    assert run(*words).out == f"--device nvidia.com/gpu={uuids[1]}\n"
    (tmp_path / "none").mkdir()
    refused = run("docker", "run-args", uuids[1], *PICK, "--spec-dir", str(tmp_path / "none"))
    assert refused.code == 20
    assert "blocked[NO_CDI_NAME]" in refused.err


def test_several_devices_are_warned_of(run: Run, uuids: list[str]) -> None:
    result = run("docker", "run-args", "3g.20gb*2", "--form", "legacy", *PICK)
    assert result.out.split()[-1] == f"NVIDIA_VISIBLE_DEVICES={','.join(uuids)}"
    assert "one MIG device at most" in result.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("0",), 20, "BARE_INDEX"),
        (("7g.40gb",), 20, "NO_FREE_DEVICE"),
        (("0:9",), 20, "NO_FREE_DEVICE"),
        (("huge",), 2, "invalid device"),
        (("MIG-1",), 2, "not a valid UUID"),
        (("3g.20gb*2", "--form", "gpus"), 2, "several devices"),
        (("3g.20gb", "--name", "-x y"), 2, "invalid container name"),
        (("3g.20gb", "--hold", "soon"), 2, "--hold"),
        (("3g.20gb", "--hold", "-1"), 2, "--hold"),
        (("3g.20gb", "--form", "pigeon"), 2, "pigeon"),
        ((), 2, "DEVICE"),
    ],
)
def test_refusals(run: Run, halves: list[str], words: tuple[str, ...], code: int, says: str) -> None:
    given = words if "--form" in words else (*words, "--form", "legacy")
    result = run("docker", "run-args", *given, *PICK)
    assert (result.code, result.out) == (code, "")
    assert says in result.err


def test_nothing_is_reserved_for_a_runtime_that_is_not_there(run: Run, halves: list[str]) -> None:
    for words in (("--form", "legacy"), ()):
        result = run("docker", "run-args", "3g.20gb", "--runtime", "docker", *words)
        assert (result.code, result.out) == (20, "")
        assert "docker is not installed" in result.err
        assert "--runtime" not in result.err
    assert "no container runtime is installed" in run("docker", "run-args", "3g.20gb").err
    assert run("docker", "list", "-o", "json").document["reservations"] == []


def test_a_runtime_that_can_be_asked_is_named_where_the_first_cannot(
    run: Run, halves: list[str], tmp_path: Path
) -> None:
    (tmp_path / "podman").write_text("#!/bin/sh\n")
    (tmp_path / "podman").chmod(0o755)
    result = run("docker", "run-args", "3g.20gb", "--runtime", "docker")
    assert (result.code, result.out) == (20, "")
    assert "--runtime podman is available" in result.err


@pytest.mark.parametrize(
    ("answer", "form", "chosen"),
    [
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", "env", "podman"),
        ('echo \'{"CDISpecDirs": [], "ServerVersion": "26.1"}\'', "cdi", "podman"),
        ('echo \'{"CDISpecDirs": [], "ServerVersion": "26.1"}\'', "env", "docker"),
        ('echo \'{"CDISpecDirs": ["DIR"], "ServerVersion": "28.2"}\'', "cdi", "docker"),
        ("exit 1", "gpus", "docker"),  # Podman does not have it: docker reports what is missing
    ],
)
def test_the_first_runtime_that_is_ready_is_chosen(
    run: Run, halves: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, form: str, chosen: str
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    cdi = tmp_path / "cdi"
    cdi.mkdir()
    for name, script in (("docker", answer.replace("DIR", str(cdi))), ("podman", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    assert run("cdi", "generate", "--out", f"{cdi}/nvidia.json").code == 0
    words = ("docker", "run-args", "3g.20gb", "--form", form, "--no-reserve", "--spec-dir", str(cdi))
    assert run(*words, "-o", "json").document["runtime"] == chosen


def test_a_compose_file(run: Run, uuids: list[str], tmp_path: Path) -> None:
    words = ("docker", "compose", "one=3g.20gb", "two=0:0", "--form", "legacy", "--image", "img", *PICK)
    found = yaml.safe_load(run(*words).out)["services"]
    devices = [found[n]["deploy"]["resources"]["reservations"]["devices"][0] for n in ("one", "two")]
    assert [d["device_ids"] for d in devices] == [[uuids[1]], [uuids[0]]]
    path = tmp_path / "compose.yaml"
    assert run(*words, "--out", str(path)).out == f"wrote {path}: one, two\n"
    assert yaml.safe_load(path.read_text())["services"] == found
    path.write_text("services: {}\n")
    refused = run("docker", "compose", "one=3g.20gb", "--form", "legacy", "--runtime", "docker", "--out", str(path))
    assert (refused.code, path.read_text()) == (20, "services: {}\n")
    assert run("docker", "release", "--all").out == "nothing is reserved\n"
    for wrong in (("a=3g.20gb", "a=0:0"), ()):
        assert run("docker", "compose", *wrong, *PICK).code == 2


def test_list_and_release(run: Run, uuids: list[str]) -> None:
    lines = run("docker", "list").out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["0:0", uuids[0]], ["0:1", uuids[1]]]
    assert all(line.endswith("free") for line in lines[1:])
    assert run("docker", "release", "--all").out == "nothing is reserved\n"
    refused = run("docker", "release", "web")
    assert (refused.code, "no reservation web" in refused.err) == (2, True)
    assert run("docker", "release").code == 2


def test_check_says_what_to_install(run: Run, halves: list[str]) -> None:
    result = run("docker", "check")
    assert result.code == 20
    assert "error[NO_RUNTIME]" in result.out
    assert result.out.splitlines()[-1] == "verdict: not ready"


def test_without_root_nothing_is_reserved_and_nothing_released(
    run: Run, uuids: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\necho podman version 5.0\n")
    podman.chmod(0o755)
    opened = os.open

    def refused(path: str, *rest: int, **more: int) -> int:
        if str(path).endswith("reservations.lock"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refused)  # root may write everywhere
    picked = run("docker", "run-args", uuids[0], "--runtime", "podman", "--form", "legacy")
    assert picked.code == 20
    assert "--no-reserve picks a device without reserving it" in picked.err
    released = run("docker", "release", "--all")
    assert released.code == 20
    assert "--no-reserve" not in released.err
    assert "next     run it as root" in released.err


def test_check_without_a_driver_still_says_what_else_is_missing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIQUOT_SIM", raising=False)
    result = run("docker", "check")
    assert result.code == 20
    assert "error[NO_DRIVER]" in result.out
    assert "error[NO_RUNTIME]" in result.out


def test_a_record_of_reservations_that_is_broken_stops_no_plan(
    run: Run, a100: Sim, halves: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    from aliquot.foundation import state_store
    from aliquot.sim import lifecycle as control

    state_store.unreadable.clear()  # another test in this process may have used this path
    path = Path(control.folder(a100.node.state_dir, a100.name)) / "container-reservations.json"
    path.write_text("{")
    result = run("plan", "--gpu", "0", "--mig", "7g.40gb")
    assert result.code == 10
    assert f"{path} cannot be understood" in caplog.text
    assert run("docker", "list").code == 0
