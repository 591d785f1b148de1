"""Real containers see exactly the devices that they were given, through an unmodified NVML client."""

from __future__ import annotations

from typing import Any

import msgspec

from system.containers.conftest import Site
from system.containers.dockerbed import INSIDE
from system.containers.podman import python

KIND = "nvidia.com/gpu"
NOT_FOUND = 6
NO_PERMISSION = 4
ADMINISTRATION = {"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"}


def uuids(site: Site, gpu: int) -> list[str]:
    return [c.uuid for i in site.read().gpus[gpu].instances for c in i.compute_instances]


def test_each_container_sees_its_own_mig_device_and_no_other(site: Site) -> None:
    inventory = site.refresh()
    first, second = uuids(site, 0)
    whole = inventory.gpus[2].uuid
    for mine, other in ((first, second), (second, first)):
        seen = site.seen(f"{KIND}={mine}", others=(mine, other, whole, inventory.gpus[0].uuid))
        assert [g["uuid"] for g in seen["gpus"]] == [inventory.gpus[0].uuid]
        (device,) = seen["gpus"][0]["mig"]
        assert (device["index"], device["uuid"]) == (0, mine)
        assert device["name"].endswith("MIG 3g.20gb")
        assert seen["others"] == [0, NOT_FOUND, NOT_FOUND, 0]
        assert seen["past"] == 2
        assert seen["gpus"][0]["listing"] == NO_PERMISSION
        assert not ADMINISTRATION & set(seen["nodes"])
        assert seen["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_slice_of_the_second_gpu_is_on_the_containers_gpu_0(site: Site) -> None:
    inventory = site.refresh()
    (mine,) = uuids(site, 1)
    (gpu,) = site.seen(f"{KIND}={mine}")["gpus"]
    assert (gpu["index"], gpu["minor"], gpu["uuid"]) == (0, 1, inventory.gpus[1].uuid)
    assert [d["uuid"] for d in gpu["mig"]] == [mine]


def test_every_name_of_a_device_means_the_same(site: Site) -> None:
    site.refresh(names=("uuid", "index", "type-index", "place"))
    mine = uuids(site, 0)[1]
    names = (mine, "0:1", "mig0:1", "0000:01:00.0-3g.20gb-4")
    seen = [site.seen(f"{KIND}={name}") for name in names]
    assert [s["gpus"][0]["mig"][0]["uuid"] for s in seen] == [mine] * 4


def test_a_whole_gpu_has_no_mig_devices(site: Site) -> None:
    inventory = site.refresh()
    seen = site.seen(f"{KIND}={inventory.gpus[2].uuid}")
    assert [(g["uuid"], g["mig"]) for g in seen["gpus"]] == [(inventory.gpus[2].uuid, [])]
    assert [n for n in seen["nodes"] if "caps" in n] == []


def test_two_devices_add_up(site: Site) -> None:
    inventory = site.refresh()
    seen = site.seen(f"{KIND}={uuids(site, 0)[1]}", f"{KIND}={uuids(site, 1)[0]}", f"{KIND}=2")
    assert [g["uuid"] for g in seen["gpus"]] == [g.uuid for g in inventory.gpus]
    assert [[d["uuid"] for d in g["mig"]] for g in seen["gpus"]] == [[uuids(site, 0)[1]], uuids(site, 1), []]


def test_all_is_everything_but_administration(site: Site) -> None:
    site.refresh()
    seen = site.seen(f"{KIND}=all")
    assert [len(g["mig"]) for g in seen["gpus"]] == [2, 1, 0]
    assert not ADMINISTRATION & set(seen["nodes"])


def test_the_management_document_opens_administration(site: Site) -> None:
    site.refresh(mode="management")
    seen = site.seen("management.nvidia.com/gpu=all")
    assert set(seen["nodes"]) >= ADMINISTRATION
    assert [len(g["mig"]) for g in seen["gpus"]] == [2, 1, 0]
    assert [g["listing"] for g in seen["gpus"]] == [0, 0, 3]  # the third is not in MIG mode


def test_a_container_that_was_given_nothing_has_no_driver(site: Site) -> None:
    site.refresh()
    seen = site.seen()
    assert seen["init"] == 12  # the library is missing
    assert seen["nodes"] == []


def test_the_library_alone_shows_no_gpu(site: Site) -> None:
    # A user mounts the driver's folder without a device. The device nodes decide what is visible, not the library.
    site.refresh()
    mount = ("--volume", f"{site.options.simulated}:/run/aliquot-sim:ro")
    env = ("--env", "LD_LIBRARY_PATH=/run/aliquot-sim")
    seen = site.seen(options=(*mount, *env), others=(uuids(site, 0)[0],))
    assert (seen["init"], seen["gpus"], seen["others"]) == (0, [], [NOT_FOUND])


def test_a_node_that_a_container_makes_itself_opens_nothing(site: Site) -> None:
    # Root in a container may create any node, but the runtime's device cgroup refuses to open it.
    site.refresh()
    mine, other = uuids(site, 0)
    forged = next(c for i in site.read().gpus[0].instances for c in i.compute_instances if c.uuid == other)
    owner = next(i for i in site.read().gpus[0].instances if forged in i.compute_instances)
    minors = (owner.capability_minor, forged.capability_minor)
    make = "; ".join(f"busybox mknod /dev/nvidia-caps/nvidia-cap{m} c 122 {m}" for m in minors)
    done = site.start(f"{KIND}={mine}", before=make, options=("--cap-add", "MKNOD"))
    seen = msgspec.json.decode(done.out, type=dict[str, Any])
    assert f"/dev/nvidia-caps/nvidia-cap{forged.capability_minor}" in seen["nodes"], done.err
    assert [d["uuid"] for g in seen["gpus"] for d in g["mig"]] == [mine]


def test_a_user_of_the_container_sees_what_root_sees(site: Site) -> None:
    site.refresh()
    mine = uuids(site, 0)[0]
    seen = site.seen(f"{KIND}={mine}", options=("--user", "65534:65534"))
    assert [d["uuid"] for g in seen["gpus"] for d in g["mig"]] == [mine]


def test_a_name_that_no_device_has_starts_no_container(site: Site) -> None:
    site.refresh()
    done = site.start(f"{KIND}=MIG-00000000-0000-0000-0000-000000000000")
    assert done.code != 0
    assert "unresolvable CDI devices" in done.err


def test_a_destroyed_device_is_refused_after_the_refresh(site: Site) -> None:
    # Without the refresh the container starts and its client finds nothing. With it the runtime refuses to start.
    site.refresh()
    (mine,) = uuids(site, 1)
    inside = site.read().gpus[1].instances[0]
    site.node.destroy(1, inside.id)
    assert [g["mig"] for g in site.seen(f"{KIND}={mine}")["gpus"]] == [[]]
    site.refresh()
    done = site.start(f"{KIND}={mine}")
    assert done.code != 0
    assert "unresolvable CDI devices" in done.err


def test_a_running_container_loses_what_is_destroyed_under_it(site: Site) -> None:
    # As with the driver, the node stays in the container but no device is behind it. Podman's exec does not pass on the
    # variables that CDI added to the environment.
    site.refresh()
    (mine,) = uuids(site, 1)
    mounts = {"/opt/nvml/inside.py": str(INSIDE)}
    env = {"PYTHONPATH": "/opt/nvml", "LD_LIBRARY_PATH": "/run/aliquot-sim"}
    started = site.engine.start(
        "holder", "/bin/busybox", "sleep", "600", devices=(f"{KIND}={mine}",), env=env, mounts=mounts
    )
    assert started.code == 0, started.err
    try:
        observation = (python(), "/opt/nvml/inside.py")
        before = msgspec.json.decode(site.engine.execute("holder", *observation).out, type=dict[str, Any])
        assert [d["uuid"] for g in before["gpus"] for d in g["mig"]] == [mine]
        site.node.destroy(1, site.read().gpus[1].instances[0].id)
        after = msgspec.json.decode(site.engine.execute("holder", *observation).out, type=dict[str, Any])
        assert [g["mig"] for g in after["gpus"]] == [[]]
        assert after["nodes"] == before["nodes"]
    finally:
        assert site.engine.stop("holder").code == 0
    assert site.engine.execute("holder", "true").code != 0


def test_a_place_names_the_device_that_is_created_there_again(site: Site) -> None:
    site.refresh()
    place = "0000:01:00.0-3g.20gb-4"
    before = site.seen(f"{KIND}={place}")["gpus"][0]["mig"][0]["uuid"]
    instance = next(i for i in site.read().gpus[0].instances if i.place.start == 4)
    site.node.destroy(0, instance.id)
    site.node.create(0, "1g.5gb", start=4)
    site.refresh()
    assert site.start(f"{KIND}={place}").code != 0  # another profile has another name
    site.node.destroy(0, next(i.id for i in site.read().gpus[0].instances if i.place.start == 4))
    site.node.create(0, "3g.20gb", start=4)
    site.refresh()
    assert site.seen(f"{KIND}={place}")["gpus"][0]["mig"][0]["uuid"] == before
