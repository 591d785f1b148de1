"""CDI documents from inventories: which names they contain, and what a container may open through each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.cdi import rules, spec
from aliquot.cdi import spec_files as write
from aliquot.cdi.options import CdiDeviceNode, CdiHost, CdiMount, CdiOptions, Majors
from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.errors import BlockedError
from support import factory

GOLDEN = Path(__file__).resolve().parents[2] / "golden/cdi"
MACHINE = CdiHost(majors=Majors(gpu=195, uvm=511, caps=238))


def caps(gpu: Gpu) -> Gpu:
    """Return the GPU with the capability minors that the kernel would assign (see ``nvml.capability_minors``)."""

    def filled(i: GpuInstance) -> GpuInstance:
        base = 3 + 135 * gpu.minor + 9 * i.id
        inside = tuple(
            msgspec.structs.replace(c, capability_minor=base + 1 + c.id, uuid=f"MIG-{gpu.index}-{i.id}-{c.id}")
            for c in i.compute_instances
        )
        return msgspec.structs.replace(i, capability_minor=base, compute_instances=inside)

    return msgspec.structs.replace(gpu, instances=tuple(filled(i) for i in gpu.instances))


def node(*instances: str, product: str = "a100-sxm4-40gb*2") -> Inventory:
    """Build a node whose first GPU has these instances."""
    made = factory.with_instances(factory.inventory(product), 0, *instances)
    return msgspec.structs.replace(made, gpus=tuple(caps(g) for g in made.gpus))


def document(inventory: Inventory, **options: Any) -> dict[str, Any]:
    machine = options.pop("machine", MACHINE)
    made = spec.document(inventory, CdiOptions(host=machine, **options))
    assert rules.document_errors(made) == ()
    return made


def opened(made: dict[str, Any], name: str) -> list[str]:
    """Return the device nodes of one device."""
    edits = next(d["containerEdits"] for d in made["devices"] if d["name"] == name)
    return [n["path"] for n in edits["deviceNodes"]]


def names(made: dict[str, Any]) -> list[str]:
    return [d["name"] for d in made["devices"]]


@pytest.mark.parametrize("case", ["a100-mixed", "h100-compute-instances", "simulated", "management", "host"])
def test_documents_stay_as_reviewed(case: str) -> None:
    a100 = node("3g.20gb@4", "1g.5gb@0", "1g.5gb+me@1")
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.172.08"
    host = CdiHost(
        majors=MACHINE.majors,
        mounts=(CdiMount(f"/run/nvidia/driver{library}", library),),
        links=(("libcuda.so.570.172.08", "/usr/lib/x86_64-linux-gnu/libcuda.so.1"),),
        folders=("/usr/lib/x86_64-linux-gnu",),
        drm={"0000:0f:00.0": (CdiDeviceNode("/dev/dri/card1", 226, 1, 0o660),)},
        hook="/usr/bin/nvidia-cdi-hook",
        modeset=True,
    )
    made = {
        "a100-mixed": lambda: document(a100),
        "h100-compute-instances": lambda: document(
            node("3g.40gb@4:1c.3g.40gb;1c.3g.40gb", product="h100-80gb-hbm3"), names=("place", "type-index")
        ),
        "simulated": lambda: document(a100, simulated="/home/u/.local/state/aliquot/sim/n", names=("uuid",)),
        "management": lambda: document(a100, mode="management"),
        "host": lambda: document(a100, machine=host, driver_root="/run/nvidia/driver", dev_root="/run/nvidia/driver"),
    }[case]()
    assert write.encoded(made, "yaml") == (GOLDEN / f"{case}.yaml").read_text()


def test_a_mig_device_opens_its_gpu_and_its_own_two_capabilities() -> None:
    made = document(node("1g.5gb@0", "1g.5gb@1"))
    assert opened(made, "MIG-0-1-0") == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert opened(made, "MIG-0-2-0")[1:] == ["/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]
    assert opened(made, "0:1") == opened(made, "MIG-0-2-0") == opened(made, "0000:07:00.0-1g.5gb-1")


def test_indexes_follow_nvml_and_not_the_order_of_creation() -> None:
    made = node("1g.5gb@0", "1g.5gb@1")
    first = made.gpus[0]
    turned = msgspec.structs.replace(first, instances=first.instances[::-1])
    assert document(msgspec.structs.replace(made, gpus=(turned, made.gpus[1])))["devices"] == document(made)["devices"]


@pytest.mark.parametrize("whole", [False, True])
def test_no_workload_gets_the_rights_to_change_or_watch_instances(whole: bool) -> None:
    made = document(node("3g.20gb@0", "1g.5gb@4"), whole_mig=whole)
    every = {path for name in names(made) for path in opened(made, name)}
    assert not {"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"} & every
    assert {"/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"} < set(
        opened(document(node("3g.20gb@0"), mode="management"), "all")
    )


def test_an_instance_with_a_minor_that_is_not_known_is_refused() -> None:
    broken = node("3g.20gb@0")
    gpu = broken.gpus[0]
    for minor in (-1, 1, 2):
        i = msgspec.structs.replace(gpu.instances[0], capability_minor=minor)
        bad = msgspec.structs.replace(broken, gpus=(msgspec.structs.replace(gpu, instances=(i,)),))
        with pytest.raises(BlockedError, match="capability of an instance"):
            document(bad)
    nameless = msgspec.structs.replace(broken, gpus=(msgspec.structs.replace(gpu, minor=-1),))
    with pytest.raises(BlockedError, match="device minor of GPU 0"):
        document(nameless)


def test_without_capability_devices_in_the_kernel_mig_devices_are_refused_and_whole_gpus_are_not() -> None:
    bare = CdiHost(majors=Majors())
    with pytest.raises(BlockedError, match="lists no nvidia-caps"):
        document(node("3g.20gb@0"), machine=bare)
    assert names(document(factory.inventory("a100-sxm4-40gb"), machine=bare))[1:] == ["0", "0000:07:00.0", "all"]


def test_a_gpu_in_mig_mode_is_whole_only_if_asked_for() -> None:
    inventory = node("3g.20gb@0")
    mine = inventory.gpus[0]
    assert mine.uuid not in names(document(inventory))
    whole = document(inventory, whole_mig=True)
    assert opened(whole, mine.uuid) == opened(whole, "0") == ["/dev/nvidia0", *opened(whole, "0:0")[1:]]


def test_gpus_that_containers_cannot_have_are_left_out() -> None:
    inventory = factory.inventory("a100-sxm4-40gb*3")
    lost = msgspec.structs.replace(inventory.gpus[0], lost=True)
    passed_through = msgspec.structs.replace(inventory.gpus[1], passthrough=True)
    made = document(msgspec.structs.replace(inventory, gpus=(lost, passed_through, inventory.gpus[2])))
    assert opened(made, "all") == ["/dev/nvidia2"]
    assert names(made) == [inventory.gpus[2].uuid, "2", "0000:47:00.0", "all"]


@pytest.mark.parametrize("mode", ["workload", "management"])
def test_a_lost_gpu_hides_no_other(mode: str) -> None:
    # The CDI document does not need facts that the driver no longer reports, including the minor of the GPU's node.
    made = node("1g.5gb@0")
    gone = msgspec.structs.replace(made.gpus[1], lost=True, minor=-1)
    found = document(msgspec.structs.replace(made, gpus=(made.gpus[0], gone)), mode=mode)
    paths = {n["path"] for device in found["devices"] for n in device["containerEdits"]["deviceNodes"]}
    assert "/dev/nvidia0" in paths
    assert "/dev/nvidia1" not in paths


def test_all_is_every_device_once() -> None:
    made = document(node("1g.5gb@0", "1g.5gb@1"))
    assert opened(made, "all") == sorted(set(opened(made, "all")), key=opened(made, "all").index)
    assert set(opened(made, "all")) == {p for n in names(made) for p in opened(made, n)}
    assert "all" not in names(document(node("1g.5gb@0"), all_device=False))


def test_places_survive_a_new_instance_and_tell_another_profile() -> None:
    first = document(node("3g.20gb@4", "1g.5gb@0"), names=("place",))
    again = document(node("1g.5gb@0", "3g.20gb@4"), names=("place",))
    other = document(node("2g.10gb@4", "1g.5gb@0"), names=("place",))
    assert sorted(names(first)) == sorted(names(again))
    assert "0000:07:00.0-3g.20gb-4" in names(first)
    assert "0000:07:00.0-3g.20gb-4" not in names(other)


def test_the_version_is_the_lowest_that_will_do() -> None:
    assert document(node("1g.5gb@0"), names=("uuid",), all_device=False)["cdiVersion"] == "0.3.0"
    assert document(node("1g.5gb@0"), names=("index",))["cdiVersion"] == "0.5.0"
    assert document(node("1g.5gb@0"), names=("uuid",), dev_root="/host")["cdiVersion"] == "0.5.0"
    assert document(node("1g.5gb@0"), names=("uuid",), class_name="gpu.shared")["cdiVersion"] == "0.6.0"


def test_without_the_hook_libraries_have_their_links_names() -> None:
    folder = "/usr/lib64"
    machine = CdiHost(
        mounts=(CdiMount(f"/d{folder}/libcuda.so.570.1", f"{folder}/libcuda.so.570.1"),),
        links=(("libcuda.so.570.1", f"{folder}/libcuda.so.1"), ("libcuda.so.1", f"{folder}/libcuda.so")),
        folders=(folder,),
    )
    common = document(factory.inventory("a100-sxm4-40gb"), machine=machine)["containerEdits"]
    assert [(m["hostPath"], m["containerPath"]) for m in common["mounts"]] == [
        ("/d/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so.570.1"),
        ("/d/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so.1"),
        ("/d/usr/lib64/libcuda.so.570.1", "/usr/lib64/libcuda.so"),
    ]
    assert "hooks" not in common
    assert "LD_LIBRARY_PATH=/usr/lib64" in common["env"]
    assert {"ro", "nosuid", "nodev", "bind"} == set(common["mounts"][0]["options"])


def test_nvidias_older_hook_is_disabled() -> None:
    for options in ({}, {"mode": "management"}, {"simulated": "/s"}):
        assert "NVIDIA_VISIBLE_DEVICES=void" in document(node("1g.5gb@0"), **options)["containerEdits"]["env"]
