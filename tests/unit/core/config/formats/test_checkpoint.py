"""Checkpoints: mig-parted's JSON both ways, and invalid files, which are refused before any change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.core.config.formats.checkpoint import checkpoint, restore
from aliquot.core.model.inventory import Inventory
from aliquot.errors import ConfigError
from support.factory import inventory, with_instances

UUID0 = "GPU-00000000-0000-4000-8000-000000000007"
UUID1 = "GPU-00000001-0000-4000-8000-00000000000f"


def node() -> Inventory:
    base = inventory("a100-sxm4-40gb*2", "tesla-t4")
    return with_instances(base, 0, "1g.5gb@0", "3g.20gb@4:1c.3g.20gb;2c.3g.20gb", "2g.10gb@2:", "1g.5gb+me@1")


def text(document: object) -> str:
    return msgspec.json.encode(document).decode()


def test_document() -> None:
    whole = {"ProfileID": 0, "EngProfileID": 0}
    assert checkpoint(node()) == {
        "Version": "v1",
        "MigState": {
            "Devices": [
                {
                    "UUID": UUID0,
                    "MigMode": 1,
                    "GpuInstances": [
                        {"ProfileID": 0, "Placement": {"Start": 0, "Size": 1}, "ComputeInstances": [whole]},
                        {"ProfileID": 1, "Placement": {"Start": 2, "Size": 2}, "ComputeInstances": None},
                        {
                            "ProfileID": 2,
                            "Placement": {"Start": 4, "Size": 4},
                            "ComputeInstances": [whole, {"ProfileID": 1, "EngProfileID": 0}],
                        },
                        {"ProfileID": 7, "Placement": {"Start": 1, "Size": 1}, "ComputeInstances": [whole]},
                    ],
                },
                {"UUID": UUID1, "MigMode": 0, "GpuInstances": None},
            ]
        },
    }


def test_bytes_are_those_of_mig_parted() -> None:
    base = with_instances(inventory("a100-sxm4-40gb"), 0, "7g.40gb@0")
    assert text(checkpoint(base)) == (
        '{"Version":"v1","MigState":{"Devices":[{"UUID":"' + UUID0 + '","MigMode":1,"GpuInstances":['
        '{"ProfileID":4,"Placement":{"Start":0,"Size":8},"ComputeInstances":[{"ProfileID":4,"EngProfileID":0}]}]}]}}'
    )
    assert text(checkpoint(inventory("tesla-t4"))) == '{"Version":"v1","MigState":{"Devices":null}}'


def test_restore_requests_every_placement() -> None:
    wanted = restore(text(checkpoint(node())), inventory("a100-sxm4-40gb*2", "tesla-t4"), "cp.json")
    assert (wanted.failures, wanted.notes) == ((), ())
    first, second = wanted.gpus
    assert sorted((i.name, i.start, i.compute) for i in first.instances or ()) == [
        ("1g.5gb", 0, (0,)), ("1g.5gb+me", 1, (0,)), ("2g.10gb", 2, ()), ("3g.20gb", 4, (0, 1)),
    ]  # fmt: skip
    assert (first.mig, second.mig, second.instances) == (True, False, ())


def test_gpus_that_the_checkpoint_does_not_name_are_left_alone() -> None:
    wanted = restore(text(checkpoint(inventory("a100-sxm4-40gb"))), node())
    assert [w.pci for w in wanted.gpus] == ["0000:07:00.0"]
    assert len(wanted.notes) == 1
    assert "0000:0f:00.0" in wanted.notes[0]


def test_fewer_gpus_than_the_checkpoint() -> None:
    wanted = restore(text(checkpoint(inventory("a100-sxm4-40gb*3"))), inventory("a100-sxm4-40gb"), "cp.json")
    assert [f.rule for f in wanted.failures] == ["NO_SUCH_GPU", "NO_SUCH_GPU"]
    assert UUID1 in wanted.failures[0].message


def test_another_uuid_at_the_same_place() -> None:
    wanted = restore(text(checkpoint(node())).replace(UUID0, "GPU-other"), node())
    assert [f.rule for f in wanted.failures] == ["NO_SUCH_GPU"]


def broken(path: str, value: object) -> str:
    document: Any = checkpoint(node())
    *steps, last = path.split("/")
    here: Any = document
    for step in steps:
        here = here[int(step) if step.isdigit() else step]
    here[int(last) if last.isdigit() else last] = value
    return text(document)


GI = "MigState/Devices/0/GpuInstances/0"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (f"{GI}/ProfileID", 99, "no profile with NVML's index 99"),
        (f"{GI}/Placement", {"Start": 7, "Size": 1}, "1g.5gb cannot be placed at 7:1"),
        (f"{GI}/Placement", {"Start": 0, "Size": 2}, "1g.5gb cannot be placed at 0:2"),
        (f"{GI}/ComputeInstances/0/ProfileID", 5, "no compute profile with NVML's index 5"),
        (f"{GI}/ComputeInstances/0/EngProfileID", 1, "engine profile 1"),
    ],
)
def test_what_the_gpu_does_not_have_blocks(path: str, value: object, words: str) -> None:
    wanted = restore(broken(path, value), node())
    assert [f.rule for f in wanted.failures] == ["UNKNOWN_PROFILE"]
    assert words in wanted.failures[0].message
    assert [w.pci for w in wanted.gpus] == ["0000:0f:00.0"]


def test_gpu_that_cannot_be_partitioned_blocks() -> None:
    t4 = inventory("tesla-t4")
    document = text(checkpoint(inventory("a100-sxm4-40gb")))
    assert [f.rule for f in restore(document, t4).failures] == ["NOT_CAPABLE"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is not JSON"),
        ("version: v1", "is not JSON"),
        ("{", "is not JSON"),
        ("[]", "not a checkpoint"),
        ("{}", "not a checkpoint"),
        ('{"Version": 1, "MigState": {"Devices": []}}', "not a checkpoint"),
        ('{"Version": "v1", "MigState": {}}', "not a checkpoint"),
        ('{"Version": "v1", "MigState": {"Devices": [{"UUID": "x"}]}}', "not a checkpoint"),
        ('{"Version": "v2", "MigState": {"Devices": []}}', "version 'v2'"),
        (broken("MigState/Devices/1/MigMode", 2), "is invalid"),
        (broken("MigState/Devices/0/MigMode", 0), "is invalid"),
        (text(checkpoint(node())).replace(UUID1, UUID0), "more than once"),
    ],
)
def test_no_checkpoint(content: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        restore(content, node(), "cp.json")
    assert words in caught.value.brief
    assert caught.value.brief.startswith("cp.json")
