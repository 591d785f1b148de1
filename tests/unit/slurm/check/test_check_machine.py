"""Files against GPUs: the devices in the files must be those that exist now."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.check import settings
from aliquot.slurm.check.minors import MigCapability, capability
from aliquot.slurm.client.models import Version
from aliquot.slurm.files.gres_conf import AutoDetect, GresForm, lines
from aliquot.slurm.files.job_devices import offered_devices
from aliquot.slurm.files.node_line import gres_value, keys
from aliquot.slurm.gpus.gres_types import TypeStyle
from support.factory import inventory, with_instances

from .judging import cut, findings, given, rules


def numbered(found: Inventory) -> Inventory:
    """Return the inventory with the minors that the driver assigns."""

    def instances(gpu: int) -> object:
        return tuple(
            msgspec.structs.replace(
                i,
                capability_minor=MigCapability(gpu, i.id).minor,
                compute_instances=tuple(
                    msgspec.structs.replace(c, capability_minor=MigCapability(gpu, i.id, c.id).minor)
                    for c in i.compute_instances
                ),
            )
            for i in found.gpus[gpu].instances
        )

    gpus = tuple(msgspec.structs.replace(g, instances=instances(n)) for n, g in enumerate(found.gpus))
    return msgspec.structs.replace(found, gpus=gpus)


A100 = "a100-sxm4-40gb"
CUT = numbered(with_instances(inventory(f"{A100}*2"), 0, "3g.20gb@0", "1g.5gb@4"))
"""GPU 0: instances 1 (3g.20gb) and 2 (1g.5gb); GPU 1 whole."""
SLICES = cut("a100_3g.20gb", 1) + cut("a100_1g.5gb", 2)
WHOLE = "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia1\n"
NODE = "NodeName=n1 Gres=gpu:a100_3g.20gb:1,gpu:a100_1g.5gb:1,gpu:a100:1\n"


def reported(nodes: str, gres: str | None, found: Inventory = CUT, **more: object) -> list[str]:
    return rules(nodes, gres, inventories={"n1": found}, **more)


@pytest.mark.parametrize("style", ["short", "full", "profile"])
@pytest.mark.parametrize("autodetect", ["none", "off", "nvml"])
def test_what_render_writes_has_no_finding(style: TypeStyle, autodetect: AutoDetect) -> None:
    from aliquot.slurm.files.job_devices import GresChoice

    offered = offered_devices(CUT, GresChoice(style=style))
    form = GresForm(autodetect=autodetect, version=Version(24, 11, 5))
    gres = "\n".join(lines("n1", offered, form)) + "\n"
    head = "ClusterName=x\n" + "\n".join(keys([offered])) + "\n"
    nodes = f"NodeName=n1 Gres={gres_value(offered)}\n"
    assert reported(nodes, gres, head=head, version=Version(24, 11, 5)) == []


def test_every_minor_is_one_instance_and_back() -> None:
    every = [capability(minor) for minor in range(3, 4323)]
    assert [c.minor for c in every if c] == list(range(3, 4323))
    assert len({c for c in every if c}) == 32 * 15 * 9
    assert [capability(n) for n in (0, 1, 2, 4323)] == [None] * 4
    assert (capability(918), capability(439)) == (MigCapability(6, 11, 5), MigCapability(3, 3, 3))


def test_files_that_agree_with_the_machine() -> None:
    assert reported(NODE, SLICES + WHOLE) == []


@pytest.mark.parametrize(
    ("nodes", "gres", "expected"),
    [
        (NODE, SLICES + WHOLE.replace("nvidia1", "nvidia2"), ["error NO_SUCH_GPU gres.conf:3", "warning NOT_OFFERED"]),
        (
            NODE,
            cut("a100_3g.20gb", 1) + cut("a100_1g.5gb", 9) + WHOLE,
            ["error NO_SUCH_INSTANCE", "warning NOT_OFFERED"],
        ),
        (NODE, cut("a100_1g.5gb", 1) + cut("a100_3g.20gb", 2) + WHOLE, ["error WRONG_TYPE", "error WRONG_TYPE"]),
        (NODE.replace(",gpu:a100:1", ""), SLICES, ["warning NOT_OFFERED"]),
        (
            "NodeName=n1 Gres=gpu:a100:1\n",
            WHOLE.replace("nvidia1", "nvidia0"),
            ["error NOT_WHOLE", "warning NOT_OFFERED"],
        ),
        ("NodeName=n1 Gres=gpu:a100_3g.20gb:1\n", WHOLE.replace("a100", "a100_3g.20gb"), ["error WRONG_TYPE"]),
        (NODE, SLICES + cut("x", 1, 1).replace("n1", "n2") + WHOLE, ["warning UNKNOWN_NODE"]),
        (NODE.replace("1g.5gb:1", "9g.99gb:1"), SLICES + WHOLE, ["error UNKNOWN_TYPE"]),
    ],
)
def test_files_that_do_not(nodes: str, gres: str, expected: list[str]) -> None:
    found = reported(nodes, gres)
    for each in expected:
        assert any(line.startswith(each) for line in found), found


def test_names_of_ones_own_are_fine() -> None:
    nodes = "NodeName=n1 Gres=gpu:small:1,gpu:big:1,gpu:a100:1\n"
    assert reported(nodes, cut("big", 1) + cut("small", 2) + WHOLE) == []


def test_a_list_of_hosts_that_covers_one_without_such_a_gpu() -> None:
    gres = "NodeName=n[1-2] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n"
    machines = {"n1": inventory(f"{A100}*2"), "n2": inventory(A100)}
    (found,) = findings("NodeName=n[1-2] Gres=gpu:a100:2\n", gres, inventories=machines)
    assert (found.rule, found.nodes) == ("NO_SUCH_GPU", ("n2",))
    assert found.sentence == "/dev/nvidia1 does not exist: the node has 1 GPU"


def test_records_of_one_host_share_its_gpus() -> None:
    nodes = "NodeName=h-gpu[0-1] NodeHostname=h,h Gres=gpu:a100:1 Port=[7001-7002]\n"
    gres = "".join(f"NodeName=h-gpu{n} Name=gpu Type=a100 File=/dev/nvidia{n}\n" for n in (0, 1))
    found = rules(nodes, gres, inventories={"h-gpu0": inventory(f"{A100}*2")})
    assert found == ["warning NOT_FENCED gres.conf:1", "warning NOT_FENCED gres.conf:2"]


def test_records_of_one_host_do_not_have_the_same_gpu() -> None:
    nodes = "NodeName=h-gpu[0-1] NodeHostname=h,h Gres=gpu:a100:1 Port=[7001-7002]\n"
    gres = "NodeName=h-gpu[0-1] Name=gpu Type=a100 File=/dev/nvidia0\n"
    (found,) = findings(nodes, gres)
    assert (found.rule, found.severity) == ("SHARED_BY_NODES", "warning")
    assert found.sentence == "h-gpu0 and h-gpu1, both on h, each offer /dev/nvidia0: jobs would share it"
    assert rules(nodes.replace("Gres", "State=CLOUD Gres"), gres) == []
    assert rules(nodes.replace("h,h", "h,g"), gres) == []


def test_wrong_minors_of_the_machine_itself() -> None:
    gpu = CUT.gpus[0]
    wrong = msgspec.structs.replace(gpu.instances[0], capability_minor=999)
    gpus = (msgspec.structs.replace(gpu, instances=(wrong, *gpu.instances[1:])), CUT.gpus[1])
    strange = msgspec.structs.replace(CUT, gpus=gpus)
    (found,) = findings(NODE, SLICES + WHOLE, inventories={"n1": strange})
    assert found.rule == "WRONG_MINOR"
    assert "has minor 999 on n1, but 12 by the formula" in found.sentence


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("AutoDetect=nvml\n", Version(24, 11), []),
        ("NodeName=n1 AutoDetect=nvml Name=gpu\n", None, []),
        ("AutoDetect=fast\n", None, ["error AUTODETECT_UNKNOWN gres.conf:1"]),
        ("AutoDetect=nvidia\n", Version(24, 11), ["error AUTODETECT_NO_MIG gres.conf:1"]),
        (
            "AutoDetect=nvidia\n",
            Version(22, 5, 8),
            ["error AUTODETECT_NO_MIG gres.conf:1", "error AUTODETECT_OLD gres.conf:1"],
        ),
        ("AutoDetect=nvml\n", Version(22, 5, 8), ["warning AUTODETECT_OLD gres.conf:1"]),
        ("AutoDetect=nvml\n", Version(21, 8), ["warning AUTODETECT_OLD gres.conf:1"]),
        ("AutoDetect=nvml\n", Version(20, 11), ["error AUTODETECT_OLD gres.conf:1"]),
        ("AutoDetect=full\n", Version(25, 11), ["error AUTODETECT_OLD gres.conf:1"]),
        ("AutoDetect=off\nName=gpu AutoDetect=nvml\n", None, ["warning AUTODETECT_INLINE gres.conf:2"]),
        (
            "NodeName=n1 AutoDetect=off\nNodeName=n1 AutoDetect=nvml\n",
            None,
            ["error AUTODETECT_TWICE gres.conf:2"],
        ),
    ],
)
def test_autodetect(text: str, version: Version | None, expected: list[str]) -> None:
    found = reported(NODE, text, version=version)
    assert [f for f in found if "AUTODETECT" in f] == expected


def test_autodetect_finds_types_by_a_part_of_their_name() -> None:
    assert reported("NodeName=n1 Gres=gpu:3g.20gb:1,gpu:1g.5gb:1,gpu:a100:1\n", "AutoDetect=nvml\n") == []
    nodes = "NodeName=n1 Gres=gpu:3g.20gb:2,gpu:h100:1\n"
    assert reported(nodes, "AutoDetect=nvml\n") == ["error AUTODETECT_TYPE slurm.conf:5"] * 2
    assert reported("NodeName=n1 Gres=gpu:3\n", "AutoDetect=nvml\n") == []
    (found,) = findings("NodeName=n1 Gres=gpu:a100:2\n", "AutoDetect=nvml\n", inventories={"n1": CUT})
    assert found.sentence == "Gres=gpu:a100:2: AutoDetect=nvml counts the MIG device nvidia_a100_3g.20gb as a100"


def test_autodetect_and_mig_mode_without_instances() -> None:
    assert reported("NodeName=n1 Gres=gpu:1\n", "AutoDetect=nvml\n", inventory(A100, enabled=True)) == [
        "error AUTODETECT_EMPTY gres.conf:1",
        "error AUTODETECT_TYPE slurm.conf:5",
    ]


def test_autodetect_and_cloud_nodes() -> None:
    nodes = "NodeName=c1 State=CLOUD NodeHostname=h Gres=gpu:a100:1\n"
    assert rules(nodes, "AutoDetect=nvml\n") == ["error AUTODETECT_CLOUD gres.conf:1"]


@pytest.mark.parametrize(
    ("flags", "version", "expected"),
    [
        ("nvidia_gpu_env", Version(22, 5), []),
        ("explicit,nvidia_gpu_env", Version(23, 2), []),
        ("explicit", Version(23, 2), ["warning FLAGS_WITHOUT_ENV gres.conf:1"]),
        ("explicit", Version(26, 5), []),
        ("CountOnly", Version(24, 11), []),
        ("env_uuid", Version(26, 5), []),
        ("env_uuid", Version(24, 11), ["error UNKNOWN_FLAG gres.conf:1"]),
        ("env_uuid", Version(22, 5), ["warning UNKNOWN_FLAG gres.conf:1"]),
        ("env_uuid,nvidia_gpu_env", Version(24, 11), ["warning UNKNOWN_FLAG gres.conf:1"]),
        ("nvidia_env", None, ["error UNKNOWN_FLAG gres.conf:1"]),
        ("no_gpu_env,nvidia_gpu_env", None, ["error FLAGS_EXCLUDE gres.conf:1"]),
    ],
)
def test_flags(flags: str, version: Version | None, expected: list[str]) -> None:
    gres = f"Name=gpu File=/dev/nvidia0 Flags={flags}\n"
    assert rules("NodeName=n1 Gres=gpu:1\n", gres, version=version) == expected


def test_flags_of_a_node_are_the_same_on_every_line() -> None:
    lines = [f"NodeName=n1 Name=gpu File=/dev/nvidia{n}" for n in range(3)]
    gres = f"{lines[0]} Flags=nvidia_gpu_env\n{lines[1]}\n{lines[2]} Flags=no_gpu_env\n"
    assert rules("NodeName=n1 Gres=gpu:3\n", gres) == ["error FLAGS_DIFFER gres.conf:3"]
    assert rules("NodeName=n1 Gres=gpu:3\n", gres.replace("no_", "nvidia_")) == []


def test_links_of_a_slice() -> None:
    gres = cut("s", 7).rstrip() + " Links=-1\n"
    assert rules("NodeName=n1 Gres=gpu:s:1\n", gres) == ["warning LINKS_MIG gres.conf:1"]


def test_our_block_changed_by_hand() -> None:
    from aliquot.slurm.files.managed_block import render_block

    ours = render_block("n1", ("NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0",))
    node = "NodeName=n1 Gres=gpu:a100:1\n"
    assert rules(node, ours) == []
    assert rules(node, ours.replace("Name=gpu", "Name=gpu Cores=0")) == ["warning HAND_EDITED gres.conf:1"]
    found = [f.rule for f in settings.edited_blocks(given(node, ours + ours))]
    assert found == ["BLOCK_TWICE"]
