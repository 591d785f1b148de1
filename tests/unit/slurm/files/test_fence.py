"""GPUs of a host that a Slurm node does not offer: its jobs cannot use them, and missing fences are found."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.cdi.options import SIMULATED_MAJORS
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.slurm.client.models import Gres, Version
from aliquot.slurm.files import fence
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files.job_devices import GresChoice, OfferedDevices, offered_devices
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import device_nodes as nodes
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.request import SlurmNodeSettings
from support.factory import inventory
from support.slurmstate import sliced
from unit.slurm.check.judging import CGROUP, SLURM, cap, cut, findings, rules

CUT = sliced("3g.20gb@4", "1g.5gb@0", gpu=1)
"""GPU 0 whole; GPU 1: instances 1 (3g.20gb) and 2 (1g.5gb)."""
NIC = SLURM.replace("GresTypes=gpu", "GresTypes=gpu,nic")
GPU1 = ("/dev/nvidia1", cap(1), cap(2), cap(147), cap(148), cap(156), cap(157))


def part(found: Inventory, *gpus: int, fenced: bool = True) -> OfferedDevices:
    return offered_devices(found, GresChoice(tuple(found.gpus[n].pci for n in gpus) if gpus else None, fence=fenced))


def changed(found: Inventory, **fields: object) -> Inventory:
    """Return the inventory with another GPU 0."""
    return msgspec.structs.replace(found, gpus=(msgspec.structs.replace(found.gpus[0], **fields), *found.gpus[1:]))


def test_a_record_of_one_gpu_fences_the_others_and_all_of_their_instances() -> None:
    assert part(CUT, 0).fenced == GPU1
    assert gres.lines("n1-gpu0", part(CUT, 0)) == (
        "NodeName=n1-gpu0 Name=gpu Type=a100 File=/dev/nvidia0 Flags=nvidia_gpu_env",
        f"NodeName=n1-gpu0 Name=nic MultipleFiles={','.join(GPU1)}",
    )
    assert nodeline.gres_value(part(CUT, 0)) == "gpu:a100:1,nic:no_consume:1"
    assert part(CUT, 1).fenced == ("/dev/nvidia0", cap(1), cap(2))
    assert nodeline.keys([part(CUT, 0)])[0] == "GresTypes=gpu,nic"


def test_a_record_of_all_that_there_is_fences_the_administrators_capabilities_where_a_gpu_is_cut() -> None:
    for each in (part(CUT), part(CUT, 0, 1)):
        assert each.fenced == (cap(1), cap(2))
        assert gres.lines("n1", each)[-1] == f"NodeName=n1 Name=nic MultipleFiles={cap(1)},{cap(2)}"
        assert nodeline.gres_value(each).endswith(",nic:no_consume:1")
    for each in (part(CUT, 0, fenced=False), part(inventory("a100-sxm4-40gb"))):
        assert each.fenced == ()
        assert nodeline.keys([each])[0] == "GresTypes=gpu"
        assert "nic" not in nodeline.gres_value(each)


def test_one_file_stands_alone() -> None:
    # Slurm refuses MultipleFiles with one.
    found = part(inventory("a100-sxm4-40gb*2"), 1)
    assert gres.lines("n", found)[-1] == "NodeName=n Name=nic File=/dev/nvidia0"


@pytest.mark.parametrize(
    ("fields", "fenced"),
    [
        ({"mig": Mig(True, "enabled", "enabled")}, True),
        ({"lost": True}, True),
        ({"lost": True, "minor": -1}, False),
        ({"passthrough": True}, False),
    ],
)
def test_unowned_gpus_are_fenced_while_they_have_a_node(fields: dict[str, object], fenced: bool) -> None:
    found = part(changed(inventory("a100-sxm4-40gb*2"), **fields))
    assert found.fenced == (("/dev/nvidia0",) if fenced else ())


def test_an_unallocated_instance_goes_with_a_fence_only() -> None:
    found = sliced("3g.20gb@4:", "3g.20gb@0")
    assert cap(12) in part(found, 0).fenced
    assert part(found).fenced == (cap(1), cap(2))


def test_apply_fences_where_slurm_conf_has_the_gres_and_says_it_where_not() -> None:
    pci = CUT.gpus[0].pci
    bare = expected_gres(CUT, SlurmNodeSettings("n1", gpus=(pci,)), "24.11.5")
    assert bare.text == "gpu:a100:1"
    assert len(bare.lines) == 1
    assert "GresTypes=gpu,nic" in bare.notes[0]
    made = expected_gres(CUT, SlurmNodeSettings("n1", gpus=(pci,), fence=True), "24.11.5")
    assert made.text == "gpu:a100:1,nic:no_consume:1"
    assert made.lines[1].startswith("NodeName=n1 Name=nic")
    assert made.notes == ()


def test_apply_says_where_jobs_can_change_and_watch_instances() -> None:
    bare = expected_gres(CUT, SlurmNodeSettings("n1"), "24.11.5")
    assert bare.notes[0].startswith(
        f"jobs of n1 can open {cap(1)} and {cap(2)}, which allow to change and monitor all instances"
    )
    assert "GresTypes=gpu,nic" in bare.notes[0]
    assert "nic" not in bare.text
    assert expected_gres(CUT, SlurmNodeSettings("n1", fence=True), "24.11.5").notes == ()
    assert expected_gres(inventory("a100-sxm4-40gb"), SlurmNodeSettings("n1"), "24.11.5").notes == ()


def test_check_finds_administrators_capabilities_that_no_line_fences() -> None:
    line = f"NodeName=n1 Gres=gpu:a100_3g.20gb:1,{fence.VALUE}\n"
    own = cut("a100_3g.20gb", 1)
    kept = f"NodeName=n1 Name=nic MultipleFiles={cap(1)},{cap(2)}\n"
    bare = "warning ADMIN_NOT_FENCED gres.conf:1"
    assert bare not in rules(line, own + kept, head=NIC, apart=())
    assert bare in rules(line, own, head=NIC, apart=())
    assert bare in rules(line, own + kept.replace(f",{cap(2)}", "").replace("Multiple", ""), head=NIC, apart=())
    assert bare in rules(line.replace(f",{fence.VALUE}", ""), own + kept, head=NIC, apart=())
    assert bare not in rules(line, own, head=NIC, apart=(), cgroup="")
    assert "ADMIN" not in str(rules("NodeName=n1 Gres=gpu:1\n", "Name=gpu File=/dev/nvidia0\n", apart=()))


def test_check_finds_modes_that_the_driver_did_not_give() -> None:
    right = {1: 0o400, 2: 0o444}
    assert "ADMIN_MODE" not in str(rules(modes=right))
    (found,) = [f for f in findings(modes=right | {1: 0o666}) if f.rule == "ADMIN_MODE"]
    assert (
        "mig/config, which lets a job repartition the GPU, and its mode is 0666: the driver sets 0400" in found.sentence
    )
    assert found.fix.startswith("run chmod 0400 /dev/nvidia-caps/nvidia-cap1")


@pytest.mark.parametrize(
    ("version", "cgroup", "gpus", "found"),
    [
        (Version(22, 5, 8), CGROUP, 7, True),
        (Version(23, 2, 3), CGROUP, 7, True),
        (Version(23, 2, 4), CGROUP, 7, False),
        (None, CGROUP, 7, False),
        (Version(22, 5, 8), CGROUP, 6, False),
        (Version(22, 5, 8), f"CgroupPlugin=cgroup/v1\n{CGROUP}", 7, False),
        (Version(22, 5, 8), "", 7, False),
    ],
)
def test_check_finds_more_device_files_than_an_old_release_can_deny(
    version: Version | None, cgroup: str, gpus: int, found: bool
) -> None:
    """A GPU with one instance has three files, and the fence has two."""
    lines = "".join(cut("s", 7, gpu) for gpu in range(gpus)) + f"NodeName=n1 Name=nic MultipleFiles={cap(1)},{cap(2)}\n"
    node = f"NodeName=n1 Gres=gpu:s:{gpus},{fence.VALUE}\n"
    reported = [
        f for f in findings(node, lines, head=NIC, cgroup=cgroup, version=version) if f.rule == "LONG_DEVICE_LIST"
    ]
    assert [(f.nodes, f.sentence.partition(":")[0]) for f in reported] == [(("n1",), "23 device files")] * found


def test_a_node_without_gpus_of_its_own_may_have_many_fenced_files() -> None:
    lines = f"NodeName=n1 Name=nic MultipleFiles={','.join(cap(n) for n in range(1, 30))}\n"
    found = findings(f"NodeName=n1 Gres={fence.VALUE}\n", lines, head=NIC, cgroup=CGROUP, version=Version(22, 5, 8))
    assert "LONG_DEVICE_LIST" in {each.rule for each in found}


def test_check_finds_a_task_prolog_that_is_missing() -> None:
    line, own = "NodeName=n1 Gres=gpu:a100_3g.20gb:1\n", cut("a100_3g.20gb", 1)
    missing = "warning NO_TASK_PROLOG slurm.conf"
    assert missing in rules(line, own, apart=())
    (found,) = [f for f in findings(line, own, apart=()) if f.rule == "NO_TASK_PROLOG"]
    assert "unless the site sets CUDA_VISIBLE_DEVICES in another way" in found.sentence
    assert missing not in rules(line, own, head=f"{SLURM}TaskProlog=/p\n", apart=())
    assert missing not in rules(line, f"AutoDetect=nvml\n{own}", apart=())  # Slurm exports UUIDs itself
    assert missing in rules(line, f"AutoDetect=off\n{own}", apart=())
    assert missing not in rules("NodeName=n1 Gres=gpu:1\n", "Name=gpu File=/dev/nvidia0\n", apart=())


def test_what_slurm_says_of_a_fence_is_written_back_so_that_jobs_do_not_get_it() -> None:
    assert fence.gres_entry(Gres("nic", "", 1)) == "nic:no_consume:1"
    assert fence.gres_entry(Gres("nic", "mlx5", 2)) == "nic:mlx5:2"


@pytest.mark.parametrize(
    ("types", "lines", "possible"),
    [
        ("gpu,nic", "", True),
        ("gpu", "", False),
        ("gpu,nics", "", False),
        ("nic,gpu", "Name=nic Type=mlx5 File=/dev/null\n", False),
        ("gpu,nic", "NodeName=n[1-2] Name=nic Count=2\n", False),
        ("gpu,nic", "NodeName=n2 Name=nic Count=2\n", True),
    ],
)
def test_other_lines_of_that_gres_must_be_alike(tmp_path: object, types: str, lines: str, possible: bool) -> None:
    settings = SlurmNodeSettings("n1", conf_dir=str(tmp_path))
    for name, text in (("slurm.conf", f"ClusterName=x\nGresTypes={types}\n"), ("gres.conf", lines)):
        with open(f"{tmp_path}/{name}", "w") as file:
            file.write(text)
    assert files.has_fence_gres(settings, files.conf_of(settings)) is possible


def test_the_administrators_nodes_are_made_for_a_fence_alone() -> None:
    named = {node.path: node.mode for node in nodes.needed(CUT.gpus, SIMULATED_MAJORS, fence=True)}
    assert set(part(CUT, 0).fenced) < set(named)
    assert (named[cap(1)], named[cap(2)]) == (0o400, 0o444)
    assert cap(1) not in {node.path for node in nodes.needed(CUT.gpus, SIMULATED_MAJORS)}


HOST = "NodeHostname=h,h Port=[7001-7002]"
PARTS = "".join(f"NodeName=g{n} Name=gpu Type=a100 File=/dev/nvidia{n}\n" for n in (0, 1))
FENCES = "".join(f"NodeName=g{n} Name=nic File=/dev/nvidia{1 - n}\n" for n in (0, 1))
FENCED = f"NodeName=g[0-1] {HOST} Gres=gpu:a100:1,{fence.VALUE}\n"


def test_records_of_one_host_without_a_fence_are_reported() -> None:
    bare = f"NodeName=g[0-1] {HOST} Gres=gpu:a100:1\n"
    found = findings(bare, PARTS)
    assert [(f.rule, f.nodes) for f in found] == [("NOT_FENCED", ("g0",)), ("NOT_FENCED", ("g1",))]
    assert "/dev/nvidia1" in found[0].sentence
    assert rules(FENCED, PARTS + FENCES, head=NIC) == []
    half = rules(FENCED, PARTS + FENCES.splitlines()[0] + "\n", head=NIC)
    assert half == ["warning NOT_FENCED gres.conf:2"]
    # slurmd ignores a line that Gres= does not count.
    assert rules(bare, PARTS + FENCES, head=NIC) == ["warning NOT_FENCED gres.conf:1", "warning NOT_FENCED gres.conf:2"]


def test_a_gpu_that_no_record_has_is_reported_where_the_machine_is_known() -> None:
    node = "NodeName=n1 Gres=gpu:a100:1\n"
    line = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n"
    machines = {"n1": inventory("a100-sxm4-40gb*2")}
    assert rules(node, line) == []
    assert "warning NOT_FENCED gres.conf:1" in rules(node, line, inventories=machines)
    assert "NOT_FENCED" not in str(rules(node, line, inventories={"n1": inventory("a100-sxm4-40gb")}))
    # No device is fenced then, for which there is a separate rule.
    assert "NOT_FENCED" not in str(rules(node, line, inventories=machines, cgroup=""))


def test_slices_of_a_neighbour_belong_to_its_gpu() -> None:
    own = cut("a100_3g.20gb", 1, node="g0") + cut("a100_3g.20gb", 2, node="g0")
    other = cut("a100_3g.20gb", 1, gpu=1, node="g1")
    words = f"Gres=gpu:a100_3g.20gb:2\nNodeName=g1 NodeHostname=h Port=7002 Gres=gpu:a100_3g.20gb:1,{fence.VALUE}\n"
    node = f"NodeName=g0 NodeHostname=h {words}"
    kept = f"NodeName=g1 Name=nic MultipleFiles=/dev/nvidia0,{cap(12)}\n"
    assert rules(node, own + other + kept, head=NIC) == ["warning NOT_FENCED gres.conf:1"]


def test_a_fence_that_jobs_could_be_given_is_an_error() -> None:
    for entry in ("nic:1", "nic"):
        found = rules(FENCED.replace(fence.VALUE, entry), PARTS + FENCES, head=NIC)
        assert found == ["error FENCE_HANDED_OUT slurm.conf:5"]
    assert rules(FENCED, PARTS + FENCES) == ["error NO_GRES_TYPES slurm.conf:5"]


def test_a_fence_names_files_that_are_there() -> None:
    here = {"local_node": "g0", "absent": frozenset({"/dev/nvidia1"})}
    assert "error FILE_MISSING gres.conf:3" in rules(FENCED, PARTS + FENCES, head=NIC, **here)


def test_slurmctld_forgets_it_and_slurmd_reads_it_again() -> None:
    assert fence.without_fence("gpu:a100:1,nic:no_consume:1,ssd:2") == "gpu:a100:1,ssd:2"
    assert fence.without_fence("gpu:a100:1,nic:mlx5:2") == "gpu:a100:1,nic:mlx5:2"
    lines = gres.lines("n1", part(CUT, 0))
    assert fence.with_fence("gpu:a100:1", lines) == "gpu:a100:1,nic:no_consume:1"
    assert fence.with_fence("gpu:a100:1", lines[:1]) == "gpu:a100:1"
