"""Expected choices, written by hand."""

from __future__ import annotations

import time

from aliquot.kubernetes.device_plugin.preferred_allocation import preferred
from aliquot.kubernetes.gpu.device_resources import ResourceDevice


def node(*sizes: int, numa: tuple[int | None, ...] = (None,) * 16) -> list[ResourceDevice]:
    """Build GPUs with these numbers of devices: ``0:2`` is the third device of the first GPU."""
    return [
        ResourceDevice(f"{g}:{n}", f"gpu{g}", (), f"{g}:{n}", numa[g])
        for g, size in enumerate(sizes)
        for n in range(size)
    ]


def free(devices: list[ResourceDevice], *used: str) -> list[str]:
    return [d.id for d in devices if d.id not in used]


def test_packed_goes_on_where_a_holder_is() -> None:
    devices = node(7, 7)
    assert preferred(free(devices, "1:3"), [], 1, devices, "packed") == ("1:0",)


def test_packed_opens_the_first_gpu_of_an_idle_node() -> None:
    devices = node(7, 7)
    assert preferred(free(devices), [], 2, devices, "packed") == ("0:0", "0:1")


def test_packed_keeps_a_request_on_one_gpu_if_no_idle_one_must_be_opened_for_it() -> None:
    devices = node(3, 3, 3)
    taken = ("0:0", "0:1", "1:0")
    assert preferred(free(devices, *taken), [], 2, devices, "packed") == ("1:1", "1:2")


def test_packed_opens_no_idle_gpu_while_the_others_have_room() -> None:
    devices = node(2, 2, 2)
    assert preferred(free(devices, "0:0", "1:0"), [], 2, devices, "packed") == ("0:1", "1:1")


def test_packed_stays_in_one_numa_node() -> None:
    devices = node(1, 1, 1, 1, numa=(0, 1, 0, 1))
    assert preferred(free(devices), [], 2, devices, "packed") == ("0:0", "2:0")
    assert preferred(free(devices), ["1:0"], 2, devices, "packed") == ("1:0", "3:0")


def test_packed_leaves_the_emptier_numa_node_whole() -> None:
    devices = node(1, 1, 1, 1, numa=(0, 0, 1, 1))
    assert preferred(free(devices, "3:0"), [], 1, devices, "packed") == ("2:0",)


def test_distributed_evens_out() -> None:
    devices = node(3, 3, 3)
    assert preferred(free(devices, "0:0"), [], 5, devices, "distributed") == ("0:1", "1:0", "1:1", "2:0", "2:1")
    assert set(preferred(free(devices, "0:0"), [], 2, devices, "distributed")) == {"1:0", "2:0"}


def test_what_must_be_is() -> None:
    devices = node(2, 2)
    assert preferred(free(devices), ["1:1"], 2, devices, "packed") == ("1:0", "1:1")
    assert preferred([], ["1:1"], 1, devices, "packed") == ("1:1",)
    assert preferred([], ["strange"], 1, devices, "packed") == ("strange",), "the kubelet has its reasons"
    assert preferred(free(devices), ["0:0", "1:0"], 1, devices, "packed") == ("0:0", "1:0")


def test_what_is_unknown_or_unhealthy_is_not_proposed() -> None:
    devices = [*node(1), ResourceDevice("sick", "gpu1", (), "1", None, healthy=False)]
    assert preferred(["0:0", "sick", "gone"], [], 3, devices, "packed") == ("0:0",)


def test_the_largest_node_takes_milliseconds() -> None:
    devices = node(*[7] * 16, numa=(0,) * 8 + (1,) * 8)
    ids = free(devices)
    start = time.perf_counter()
    for size in (1, 8, 56):
        assert len(preferred(ids, [], size, devices, "packed")) == size
    assert time.perf_counter() - start < 1.0
