"""``aliquot docker`` with real Docker and real Podman: each container gets exactly the device that was chosen."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from system.containers.dockerbed import SLEEP, Bed
from system.containers.dockerd import found
from system.containers.podman import Done


def test_each_container_sees_its_own_device_as_gpu_0(bed: Bed, runtime: str) -> None:
    first, second = bed.cut(0, "3g.20gb*2")
    seen = [
        bed.seen(runtime, *bed.arguments(runtime, word), others=(first, second))
        for word in ("3g.20gb", second, "0:1", "0:0")
    ]
    assert [len(s["gpus"]) for s in seen] == [1] * 4
    mine = [[(d["index"], d["uuid"]) for d in s["gpus"][0]["mig"]] for s in seen]
    assert mine == [[(0, first)], [(0, second)], [(0, second)], [(0, first)]]
    assert [s["others"] for s in seen[:2]] == [[0, 6], [6, 0]]


def test_a_nodes_only_image_has_the_nodes_of_one_device(bed: Bed) -> None:
    bed.cut(0, "3g.20gb*2")
    options = ("--network", "none", "--rm", *bed.arguments("docker", "0:1"))
    done = bed.docker.docker("run", *options, "aliquot-test:1", "/bin/sh", "-c", "cd /dev; echo nvidia* nvidia-caps/*")
    expected = (
        "nvidia-caps nvidia-uvm nvidia-uvm-tools nvidia0 nvidiactl nvidia-caps/nvidia-cap21 nvidia-caps/nvidia-cap22"
    )
    assert done.out.strip() == expected, done.err


def test_reserved_until_the_container_is_gone(bed: Bed, runtime: str) -> None:
    first, second = bed.cut(0, "3g.20gb*2")
    ours = bed.start(runtime, *bed.arguments(runtime, "3g.20gb", "--name", "ours"))
    assert bed.taken() == {first: [f"{runtime}:{ours[:12]}"]}
    waiting = bed.arguments(runtime, "3g.20gb")[1].partition("=")[2]
    assert bed.taken()[second] == [f"{runtime}:{waiting}"]
    refused = bed.json("docker", "run-args", "3g.20gb", "--runtime", runtime, "--spec-dir", str(bed.cdi), code=20)
    assert refused["code"] == "NO_FREE_DEVICE"
    assert "(ours)" in refused["details"][0]
    bed.remove(runtime, ours)
    assert set(bed.taken()) == {second}


def test_released_after_a_container_that_was_not_seen(bed: Bed, runtime: str) -> None:
    # The container runs with ``--rm`` and is gone before Aliquot polls: only the runtime's events report it.
    (only,) = bed.cut(0, "7g.40gb")
    done = bed.run(runtime, "--rm", *bed.arguments(runtime, "7g.40gb"), "--", "/bin/busybox", "true")
    assert done.code == 0, done.err
    assert bed.taken() == {}
    assert only in bed.arguments(runtime, "7g.40gb")[-1]


def test_released_after_a_kill(bed: Bed, runtime: str) -> None:
    (only,) = bed.cut(0, "7g.40gb")
    ident = bed.start(runtime, *bed.arguments(runtime, only))
    assert list(bed.taken()) == [only]
    os.kill(_pid(bed, runtime, ident), 9)
    deadline = time.monotonic() + 20
    while _pid(bed, runtime, ident):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # The container has ended but would need its device if it were started again, so it holds the device until removal.
    assert list(bed.taken()) == [only]
    bed.remove(runtime, ident)
    assert bed.taken() == {}


def _pid(bed: Bed, runtime: str, ident: str) -> int:
    ask = ("inspect", "--format", "{{.State.Pid}}", ident)
    done = bed.docker.docker(*ask) if runtime == "docker" else bed.podman.ask(*ask)
    return int(done.out)


def test_an_unreported_container_holds_its_instance(bed: Bed, runtime: str) -> None:
    first, second = bed.cut(0, "3g.20gb*2")
    ident = bed.start(runtime, "--name", "stranger", "--device", f"nvidia.com/gpu={first}")
    assert bed.taken() == {first: [f"{runtime}:{ident[:12]}"]}
    assert second in bed.arguments(runtime, "3g.20gb")[-1]
    bed.aliquot("docker", "release", "--all")
    refused = bed.json("plan", "--gpu", "0", "--mig", "7g.40gb", code=20)
    assert [b["rule"] for b in refused["blockers"]] == ["HELD"]
    assert [h["name"] for h in refused["blockers"][0]["holders"]] == ["stranger"]
    before = bed.destroyed()
    assert "(stranger)" in bed.aliquot("apply", "--gpu", "0", "--mig", "7g.40gb", "--policy", "force", code=20)
    assert bed.destroyed() == before
    bed.remove(runtime, ident)
    bed.aliquot("apply", "--gpu", "0", "--mig", "7g.40gb")


def test_a_container_that_starts_after_the_plan_stops_the_apply(bed: Bed, runtime: str, tmp_path: Path) -> None:
    first, second = bed.cut(0, "3g.20gb*2")
    plan = str(tmp_path / "plan.json")
    bed.call("plan", "--gpu", "0", "--mig", "7g.40gb", "--out", plan)
    bed.start(runtime, "--name", "late", "--device", f"nvidia.com/gpu={second}")
    assert "(late)" in bed.aliquot("apply", plan, code=20)
    assert bed.seen(runtime, "--device", f"nvidia.com/gpu={first}")["gpus"][0]["mig"]


def test_a_reservation_keeps_the_instance_from_being_destroyed(bed: Bed) -> None:
    bed.cut(0, "3g.20gb*2")
    bed.arguments("docker", "0:0")
    refused = bed.json("plan", "--gpu", "0", "--mig", "7g.40gb", code=20)
    assert [h["kind"] for h in refused["blockers"][0]["holders"]] == ["reservation"]
    bed.aliquot("docker", "release", "--all")
    bed.aliquot("plan", "--gpu", "0", "--mig", "7g.40gb", code=10)


def test_one_that_asked_for_everything_holds_nothing_in_particular(bed: Bed) -> None:
    bed.cut(0, "3g.20gb*2")
    bed.start("docker", "--name", "exporter", "--device", "nvidia.com/gpu=all")
    assert bed.taken() == {}
    bed.aliquot("plan", "--gpu", "0", "--mig", "7g.40gb", code=10)


def test_twenty_at_once_for_seven(bed: Bed) -> None:
    uuids = bed.cut(0, "1g.5gb*7")
    with ThreadPoolExecutor(20) as pool:
        words = ("docker", "run-args", "1g.5gb", "--runtime", "docker", "--wait", "100", "-o", "json")
        done = list(pool.map(lambda _: bed.call(*words), range(20)))
    assert sorted(d.code for d in done) == [0] * 7 + [20] * 13, [d.err for d in done]
    given = [msgspec.json.decode(d.out)["devices"][0]["uuid"] for d in done if d.code == 0]
    assert sorted(given) == sorted(uuids)
    assert len(bed.json("docker", "list")["reservations"]) == 7


def test_legacy_forms_of_docker(bed: Bed) -> None:
    first, second = bed.cut(0, "3g.20gb*2")
    gpus = bed.arguments("docker", first, "--form", "legacy", "--no-reserve")
    assert gpus == ["--gpus", f"device={first}"]
    made = bed.docker.docker("create", "--network", "none", *gpus, "aliquot-test:1", *SLEEP)
    (reported,) = msgspec.json.decode(bed.docker.docker("inspect", made.out.strip()).out)
    assert reported["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [first]
    bed.remove("docker", made.out.strip())
    env = bed.arguments("docker", first, second, "--form", "legacy")
    done = bed.run("docker", "--rm", *env, "--", "/bin/sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES")
    assert done.out.strip() == f"{first},{second}", done.err


@pytest.mark.parametrize("form", ["cdi", "gpus", "env"])
def test_compose_takes_what_is_written(bed: Bed, form: str, tmp_path: Path) -> None:
    compose = found("docker-compose")
    if not compose:
        pytest.skip("docker-compose is not installed")
    first, second = bed.cut(0, "3g.20gb*2")
    path, base = tmp_path / "gpus.yaml", tmp_path / "compose.yaml"
    bed.aliquot(
        "docker", "compose", "one=3g.20gb", "two=0:1", "--form", form, "--out", str(path), "--runtime", "docker"
    )
    service = {"image": "aliquot-test:1", "network_mode": "none", "command": list(SLEEP)}
    base.write_bytes(msgspec.json.encode({"services": {"one": service, "two": service}}))

    def call(*words: str) -> Done:
        line = [compose, "-p", "t", "-f", str(base), "-f", str(path), *words]
        env = {**os.environ, **bed.docker.environment}
        done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=60)
        return Done(done.returncode, done.stdout, done.stderr)

    assert call("config", "--quiet") == (0, "", "")
    if form != "cdi":
        return  # NVIDIA's hook is not installed
    started = call("up", "--detach")
    assert started.code == 0, started.err
    caps = [call("exec", "-T", name, "/bin/busybox", "ls", "/dev/nvidia-caps").out.split() for name in ("one", "two")]
    assert caps == [["nvidia-cap12", "nvidia-cap13"], ["nvidia-cap21", "nvidia-cap22"]]
    assert sorted(bed.taken()) == sorted((first, second))
    assert call("down", "-t", "0").code == 0
    assert bed.taken() == {}


def test_a_whole_compose_file(bed: Bed, tmp_path: Path) -> None:
    bed.cut(0, "3g.20gb*2")
    path = tmp_path / "compose.yaml"
    bed.aliquot("docker", "compose", "0:0", "--image", "aliquot-test:1", "--out", str(path), "--runtime", "docker")
    compose = found("docker-compose")
    if not compose:
        pytest.skip("docker-compose is not installed")
    env = {**os.environ, **bed.docker.environment}
    done = subprocess.run([compose, "-f", str(path), "config", "--images"], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "aliquot-test:1", done.stderr
