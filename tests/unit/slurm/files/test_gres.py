"""gres.conf and node lines: every GPU counts once, and a job gets only its own capabilities."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model.inventory import Inventory, Mig, Vgpu
from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files import render
from aliquot.slurm.files.gres_conf import AutoDetect, GresForm, JobEnvironment
from aliquot.slurm.files.job_devices import GresChoice, OfferedDevices, disagreements, offered_devices
from aliquot.slurm.files.node_line import NodeHardware, RenderedNodeLine
from support.factory import inventory
from support.slurmstate import sliced

CAPS = "/dev/nvidia-caps/nvidia-cap"


def test_slices_have_three_nodes_and_a_whole_gpu_one() -> None:
    node = sliced("3g.20gb@4", "1g.5gb@0", gpu=1)
    assert gres.lines("n1", offered_devices(node)) == (
        "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
        f"NodeName=n1 Name=gpu Type=a100_3g.20gb MultipleFiles=/dev/nvidia1,{CAPS}147,{CAPS}148 Flags=nvidia_gpu_env",
        f"NodeName=n1 Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia1,{CAPS}156,{CAPS}157 Flags=nvidia_gpu_env",
    )
    assert nodeline.gres_value(offered_devices(node)) == "gpu:a100:1,gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:1"


def changed(node: Inventory, index: int, **fields: object) -> Inventory:
    gpus = [msgspec.structs.replace(g, **fields) if g.index == index else g for g in node.gpus]
    return msgspec.structs.replace(node, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mig": Mig(True, "enabled", "enabled")}, "it is in MIG mode without instances"),
        ({"passthrough": True}, "it is passed through to a VM"),
        ({"vgpus": (Vgpu("0000:07:00.4", 1, "A100-4C"),)}, "it hosts vGPUs"),
        ({"lost": True}, "fallen off the bus"),
    ],
)
def test_what_jobs_cannot_have_is_not_counted_and_reported(fields: dict[str, object], why: str) -> None:
    found = offered_devices(changed(inventory("a100-sxm4-40gb*2"), 0, **fields))
    assert [d.gpu for d in found.devices] == [1]
    assert why in found.notes[0]


def test_instances_without_a_compute_instance_offer_nothing() -> None:
    found = offered_devices(sliced("3g.20gb@4:", "3g.20gb@0"))
    assert [d.instance for d in found.devices if d.gpu == 0] == [2]
    assert "instance 1 (3g.20gb) has no compute instance" in found.notes[0]
    alone = offered_devices(sliced("3g.20gb@4:"))
    assert [d.gpu for d in alone.devices] == [1]


def test_a_capability_that_is_not_the_instances_own_is_refused() -> None:
    node = sliced("3g.20gb@4")
    instance = node.gpus[0].instances[0]
    for minor in (-1, 1, 2, instance.capability_minor + 9):
        wrong = changed(node, 0, instances=(msgspec.structs.replace(instance, capability_minor=minor),))
        with pytest.raises(BlockedError, match="has an unexpected capability"):
            offered_devices(wrong)
    with pytest.raises(BlockedError, match="device minor"):
        offered_devices(changed(node, 0, minor=-1))


def test_the_kernels_own_list_is_believed_before_the_formula() -> None:
    devices = offered_devices(sliced("3g.20gb@4")).devices
    assert disagreements(devices, {"gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13}) == ()
    assert disagreements(devices, {"gpu0/gi1/access": 40}) == (
        "gpu0/gi1/access is nvidia-cap40 in the kernel's list, not nvidia-cap12",
    )


def test_gpus_can_be_chosen_and_device_nodes_lie_elsewhere() -> None:
    node = inventory("a100-sxm4-40gb*2")
    found = offered_devices(node, GresChoice(gpus=(node.gpus[1].pci,), style="full", dev="/x/dev"))
    assert [(d.type, d.files) for d in found.devices] == [("nvidia_a100-sxm4-40gb", ("/x/dev/nvidia1",))]


@given(st.permutations(["3g.20gb@4", "2g.10gb@2", "1g.5gb@0", "1g.5gb+me@1"]), st.integers(1, 4), st.integers(0, 2))
def test_each_gpu_counts_once_in_one_order(instances: list[str], many: int, gpu: int) -> None:
    found = offered_devices(sliced(*instances[:many], products="a100-sxm4-40gb*3", gpu=gpu))
    lines = gres.lines("n", found)
    assert len(lines) == many + 2
    whole = {d.files[0] for d in found.devices if d.instance is None}
    assert not whole & {d.files[0] for d in found.devices if d.instance is not None}
    caps = re.findall(r"nvidia-cap(\d+)", "\n".join(lines))
    assert len(set(caps)) == len(caps) == 2 * many
    assert not {"1", "2"} & set(caps)
    kinds = re.findall(r"Type=(\S+)", "\n".join(lines))
    value = [part.split(":")[1:] for part in nodeline.gres_value(found).split(",")]
    assert kinds == [kind for kind, count in value for _ in range(int(count))]


# Forms and releases


def form(
    autodetect: AutoDetect, version: tuple[int, int] | None = None, environment: JobEnvironment = "nvidia"
) -> GresForm:
    return GresForm(autodetect, environment, version=Version(*version) if version else None)


def test_detection_is_one_line() -> None:
    found = offered_devices(sliced("3g.20gb@4"))
    assert gres.lines("n1", found, form("nvml", (24, 11))) == ("NodeName=n1 AutoDetect=nvml",)
    assert gres.lines("n1", found, form("nvml", (26, 5), "uuid")) == (
        "NodeName=n1 AutoDetect=nvml Name=gpu Flags=nvidia_gpu_env,env_uuid",
    )
    assert gres.lines("n1", found, form("off"))[0].startswith("NodeName=n1 AutoDetect=off Name=gpu Type=")
    assert gres.lines("n1", OfferedDevices(()), form("nvml")) == ()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (form("nvidia", (23, 11)), "needs Slurm 24.11"),
        (form("full", (25, 11)), "needs Slurm 26.05"),
        (form("nvml", (22, 5)), "7g.39gb"),
        (form("none", (25, 11), "uuid"), "env_uuid needs Slurm 26.05"),
        (form("none", (20, 11)), "need Slurm 21.08"),
        (form("nvidia", (24, 11)), "does not support MIG"),
    ],
)
def test_what_a_release_cannot_do_is_reported(answer: GresForm, words: str) -> None:
    with pytest.raises(BlockedError, match=words) as caught:
        gres.lines("n1", offered_devices(sliced("3g.20gb@4")), answer)
    assert caught.value.next_step


def test_old_releases_detect_whole_gpus() -> None:
    assert gres.lines("n1", offered_devices(inventory("a30")), form("nvml", (22, 5))) == (
        "NodeName=n1 AutoDetect=nvml",
    )


def test_what_detection_would_find_beside_is_refused() -> None:
    node = changed(inventory("a100-sxm4-40gb*2"), 0, mig=Mig(True, "enabled", "enabled"))
    with pytest.raises(BlockedError, match="would find GPUs that this node does not offer"):
        gres.lines("n1", offered_devices(node), form("nvml"))
    chosen = offered_devices(inventory("a100-sxm4-40gb*2"), GresChoice(gpus=(node.gpus[0].pci,)))
    with pytest.raises(BlockedError, match="would find GPUs"):
        gres.lines("n1", chosen, form("nvml"))
    taken = changed(inventory("a100-sxm4-40gb*2"), 0, passthrough=True)
    assert gres.lines("n1", offered_devices(taken), form("nvml"))


def test_types_that_detection_would_mix_up_are_refused() -> None:
    # ``3g.20gb`` is a substring of ``nvidia_a100_1c.3g.20gb``: the longest name takes the longest type that it
    # contains.
    node = sliced("3g.20gb@4:1c.3g.20gb", "3g.20gb@0")
    assert gres.misread(offered_devices(node)) == ()
    assert gres.misread(offered_devices(node, GresChoice(style="profile"))) == ()
    both = sliced("1g.5gb+me@0", "1g.5gb@1")
    assert gres.misread(offered_devices(both)) == ()
    odd = msgspec.structs.replace(offered_devices(sliced("3g.20gb@4")).devices[0], type="4g.20gb")
    assert gres.misread(OfferedDevices((odd,))) == ("nvidia_a100_3g.20gb of GPU 0 would be omitted, not 4g.20gb",)


def test_old_slurm_errors_say_what_to_type() -> None:
    with pytest.raises(OldSlurmError) as caught:
        gres.lines("n1", offered_devices(inventory("a30")), form("full", (24, 11)))
    assert caught.value.next_step == "aliquot slurm render --autodetect none"


# slurm.conf


def test_node_lines_for_both_kinds_of_node() -> None:
    hardware = NodeHardware.parse("NodeName=vm CPUs=2 Boards=1 RealMemory=24105\nUpTime=0-13:02:11\n")
    line = RenderedNodeLine("n1", "gpu:a100:2", ("a100", "ib"), hardware)
    assert line.static() == "NodeName=n1 CPUs=2 Boards=1 RealMemory=24105 Gres=gpu:a100:2 Feature=a100,ib"
    assert line.dynamic() == '-Z -N n1 --conf "CPUs=2 Boards=1 RealMemory=24105 Gres=gpu:a100:2 Feature=a100,ib"'
    assert RenderedNodeLine("n2", "").static() == "NodeName=n2"


def record(name: str, *instances: str) -> render.RenderedNode:
    found = offered_devices(sliced(*instances) if instances else inventory("a100-sxm4-40gb*2"))
    return render.RenderedNode(RenderedNodeLine(name, nodeline.gres_value(found)), found)


def test_nodes_alike_share_lines() -> None:
    records = [record("n1"), record("n2", "3g.20gb@4"), record("n3")]
    assert render.node_lines(records) == (
        "NodeName=n[1,3] Gres=gpu:a100:2",
        "NodeName=n2 Gres=gpu:a100_3g.20gb:1,gpu:a100:1",
    )
    assert render.gres_conf(records)[0] == "NodeName=n[1,3] Name=gpu Type=a100 File=/dev/nvidia0 Flags=nvidia_gpu_env"
    assert "AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:a100_3g.20gb" in render.keys(records)
