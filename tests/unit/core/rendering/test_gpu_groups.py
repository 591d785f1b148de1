"""Groups of GPUs that a text shows alike."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu
from aliquot.core.rendering.gpu_groups import drawn_gpu, group_gpus, group_title, without_identity
from support.factory import inventory

NODE = inventory("a100-sxm4-40gb*4", "tesla-t4")


def common(gpu: Gpu) -> Gpu:
    return msgspec.structs.replace(without_identity(gpu), minor=0)


def test_equal_gpus_are_one_group_and_each_keeps_its_place() -> None:
    gpus = list(NODE.gpus)
    gpus[2] = msgspec.structs.replace(gpus[2], lost=True)
    groups = group_gpus(gpus, common)
    assert [[gpu.index for gpu in group] for group in groups] == [[0, 1, 3], [2], [4]]
    assert group_title(groups[0]) == "GPUs 0-1, 3: the same  A100-SXM4-40GB"
    assert group_title(groups[1]) == f"GPU 2  {gpus[2].pci}  A100-SXM4-40GB"


def test_each_gpu_on_request() -> None:
    assert [len(group) for group in group_gpus(NODE.gpus, common, each=True)] == [1] * 5


def test_what_a_group_draws_names_no_gpu() -> None:
    assert drawn_gpu(NODE.gpus[:1]) is NODE.gpus[0]
    assert (drawn_gpu(NODE.gpus[:2]).pci, drawn_gpu(NODE.gpus[:2]).uuid) == ("", "")
