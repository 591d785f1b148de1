"""Conversion of counts to GPU instances with their compute instances."""

from __future__ import annotations

import pytest

from aliquot.core.config.select.instances import resolve
from aliquot.core.config.text.instance_request import InstanceRequest, parse_instance_request
from aliquot.core.model import catalog
from aliquot.core.model.desired import DesiredInstance

A100 = catalog.family("a100-40gb")
RTX = catalog.family("rtx-pro-5000-48gb")


def made(*texts: str) -> tuple[DesiredInstance, ...]:
    instances, problems = resolve(A100, [parse_instance_request(t, 1, n) for n, t in enumerate(texts)])
    assert problems == ()
    return instances


def layout(*texts: str) -> list[tuple[str, tuple[int, ...]]]:
    return [(i.name, i.compute) for i in made(*texts)]


def test_widest_first() -> None:
    assert [i.name for i in made("1g.5gb", "1g.10gb", "3g.20gb", "2g.10gb", "1g.5gb+me")] == [
        "3g.20gb", "2g.10gb", "1g.10gb", "1g.5gb", "1g.5gb+me",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["1g.5gb", "01g.5gb", "1c.1g.5gb", "1g.05gb", "id:19"])
def test_spellings_of_one_profile(text: str) -> None:
    assert made(text) == (DesiredInstance(19, "1g.5gb", (0,)),)


def test_compute_instances_share_gpu_instances() -> None:
    assert layout("1c.3g.20gb*3") == [("3g.20gb", (0, 0, 0))]
    assert layout("1c.3g.20gb*4") == [("3g.20gb", (0, 0, 0)), ("3g.20gb", (0,))]
    assert layout("1c.3g.20gb", "2c.3g.20gb") == [("3g.20gb", (1, 0))]
    assert layout("2c.3g.20gb*2") == [("3g.20gb", (1,)), ("3g.20gb", (1,))]
    assert layout("3g.20gb", "1c.3g.20gb") == [("3g.20gb", (2,)), ("3g.20gb", (0,))]
    assert layout("2c.7g.40gb*3", "1c.7g.40gb") == [("7g.40gb", (1, 1, 1, 0))]
    assert layout("4c.7g.40gb", "3c.7g.40gb") == [("7g.40gb", (3, 2))]


def test_whole_instances_stay_apart() -> None:
    assert layout("3g.20gb*2") == [("3g.20gb", (2,)), ("3g.20gb", (2,))]


def test_compute_instances_share_only_at_one_placement() -> None:
    instances = made("1c.3g.20gb@0", "1c.3g.20gb@4", "1c.3g.20gb@0")
    assert sorted((i.start, i.compute) for i in instances) == [(0, (0, 0)), (4, (0,))]


def test_attributes_are_part_of_the_instance_profile() -> None:
    requests = [parse_instance_request(t, 1, 1) for t in ("1c.2g.48gb+gfx", "1c.2g.48gb")]
    instances, problems = resolve(RTX, requests)
    assert problems == ()
    assert {i.name for i in instances} == {"2g.48gb", "2g.48gb+gfx"}


def test_compute_instances_by_count_are_loose() -> None:
    assert [i.loose for i in made("1c.3g.20gb*4", "2g.10gb")] == [True, True, False]
    assert layout("2c.3g.20gb*2", "1c.3g.20gb*2") == [("3g.20gb", (1, 0)), ("3g.20gb", (1, 0))]


def explicit(*compute: str, profile: str = "3g.20gb") -> InstanceRequest:
    request = parse_instance_request(profile, 1, 1)
    parts = tuple(parse_instance_request(c, 1, 2) for c in compute)
    return InstanceRequest(request.text, 1, 1, request.name, compute=parts)


@pytest.mark.parametrize(
    ("compute", "rule"),
    [
        (("1c.2g.10gb",), "UNKNOWN_PROFILE"),
        (("1c.3g.20gb",) * 4, "COMPUTE_DOES_NOT_FIT"),
        (("2c.3g.20gb@0", "1c.3g.20gb@1"), "COMPUTE_DOES_NOT_FIT"),
        (("1c.3g.20gb@7",), "COMPUTE_DOES_NOT_FIT"),
    ],
)
def test_compute_lists_that_cannot_be(compute: tuple[str, ...], rule: str) -> None:
    instances, problems = resolve(A100, [explicit(*compute)])
    assert (instances, [p.rule for p in problems]) == ((), [rule])


def test_compute_list_and_empty_instance() -> None:
    instances, _ = resolve(A100, [explicit("1c.3g.20gb", "2c.3g.20gb"), explicit(profile="1g.5gb")])
    assert [(i.name, i.compute) for i in instances] == [("3g.20gb", (0, 1)), ("1g.5gb", ())]
