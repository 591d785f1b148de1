"""``aliquot docker check`` predicts what real Docker and real Podman then do."""

from __future__ import annotations

import json
import time
from typing import Any

from system.containers.dockerbed import Bed
from system.containers.dockerd import Dockerd


def _check(bed: Bed, *words: str, code: int = 0) -> tuple[dict[str, Any], set[str]]:
    report = bed.json("docker", "check", *words, code=code)
    found = [f["rule"] for v in report["runtimes"] for f in v["findings"]] + [f["rule"] for f in report["findings"]]
    return report, set(found)


def test_check_finds_nothing_where_it_works(bed: Bed, runtime: str) -> None:
    bed.cut(0, "3g.20gb*2")
    report, rules = _check(bed, "--runtime", runtime, "--spec-dir", str(bed.cdi))
    assert rules == {"TOOLKIT"}
    assert [(v["cdi"], v["legacy"]) for v in report["runtimes"]] == [(True, False)]


def test_check_finds_a_file_that_is_behind_and_the_runtime_agrees(bed: Bed, runtime: str) -> None:
    first, _ = bed.cut(0, "3g.20gb*2")
    bed.aliquot("apply", "--gpu", "0", "--mig", "7g.40gb")
    _, rules = _check(bed, "--runtime", runtime, "--spec-dir", str(bed.cdi), code=20)
    assert rules == {"NOT_NAMED", "STALE", "TOOLKIT"}
    refused = bed.json("docker", "run-args", "7g.40gb", "--runtime", runtime, "--spec-dir", str(bed.cdi), code=20)
    assert refused["code"] == "NO_CDI_NAME"
    assert refused["next"].startswith("aliquot cdi generate --out")
    assert bed.seen(runtime, "--device", f"nvidia.com/gpu={first}")["gpus"][0]["mig"] == []


def test_check_knows_which_versions_podman_reads(bed: Bed) -> None:
    first, _ = bed.cut(0, "3g.20gb*2")
    path = bed.cdi / "nvidia.com-gpu.yaml"
    path.write_text(path.read_text().replace("cdiVersion: 0.5.0", "cdiVersion: 0.6.0"))
    done = bed.run("podman", "--rm", "--device", f"nvidia.com/gpu={first}", "--", "/bin/busybox", "true")
    _, rules = _check(bed, "--runtime", "podman", "--spec-dir", str(bed.cdi), code=20 if done.code else 0)
    assert ("SPEC_TOO_NEW" in rules) == (done.code != 0), done.err


def test_check_finds_cdi_switched_off(bed: Bed) -> None:
    bed.cut(0, "3g.20gb*2")
    without = Dockerd(bed.cdi, features={"cdi": False})
    try:
        env = {"DOCKER_HOST": without.environment["DOCKER_HOST"]}
        done = bed.call("docker", "check", "--runtime", "docker", "-o", "json", **env)
        assert done.code == 20
        assert [f["rule"] for v in json.loads(done.out)["runtimes"] for f in v["findings"]][:1] == ["CDI_OFF"]
        refused = bed.aliquot("docker", "run-args", "3g.20gb", "--runtime", "docker", code=20, **env)
        assert "CDI_OFF" in refused
    finally:
        without.close()


def test_a_daemon_that_is_unavailable(bed: Bed) -> None:
    bed.cut(0, "3g.20gb*2")
    env = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    started = time.monotonic()
    assert "RUNTIME_AWAY" in bed.aliquot("docker", "run-args", "3g.20gb", "--runtime", "docker", code=20, **env)
    assert "SILENT" in bed.call("docker", "check", "--runtime", "docker", **env).out
    assert time.monotonic() - started < 30
    env = {"DOCKER_HOST": "tcp://192.0.2.1:2375"}
    assert "another host" in bed.aliquot("docker", "run-args", "3g.20gb", "--runtime", "docker", code=20, **env)
