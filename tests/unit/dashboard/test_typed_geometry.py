"""Errors of a geometry that is typed on a page name no option of the command line."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.dashboard.change_requests import PartitionGpu
from aliquot.dashboard.local import desired_state
from aliquot.errors import ConfigError
from support import factory

NODE = factory.inventory("a100-sxm4-40gb")
PCI = NODE.gpus[0].pci


def request(mig: str) -> PartitionGpu:
    return PartitionGpu(node="n", gpu=PCI, mig=mig)


def test_every_error_has_its_column_and_the_first_is_the_headline() -> None:
    with pytest.raises(ConfigError) as caught:
        desired_state.partition(request("3g.20xx,9g.9gc"), NODE)
    assert caught.value.brief.startswith("invalid geometry: column 1: '3g.20xx' is not a MIG profile name")
    (second,) = caught.value.details
    assert second.startswith("column 9: '9g.9gc' is not a MIG profile name")


def test_a_geometry_that_this_gpu_cannot_have() -> None:
    (failure,) = desired_state.partition(request("3g.20gb@2"), NODE).failures
    assert failure.message.startswith("column 1: 3g.20gb can only be placed at 0:4, 4:4 on GPU 0 ")


def test_a_gpu_that_fell_off_the_bus() -> None:
    gone = msgspec.structs.replace(
        NODE.gpus[0], lost=True, mig=msgspec.structs.replace(NODE.gpus[0].mig, capable=False)
    )
    node = msgspec.structs.replace(NODE, gpus=(gone, *NODE.gpus[1:]))
    (failure,) = desired_state.partition(request("1g.5gb"), node).failures
    assert failure.message.startswith("GPU 0 (NVIDIA A100-SXM4-40GB, ")
