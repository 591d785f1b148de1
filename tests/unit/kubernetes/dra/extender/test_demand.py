"""The devices that a pod needs, from its claims and its extended resources."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.dra.extender.demand import Demand, EqualAttribute, pod_demand
from aliquot.kubernetes.dra.extender.selectors import FieldCondition, UnknownRequestError, read_selectors
from aliquot.kubernetes.dra.model.objects import DeviceAttribute
from unit.kubernetes.dra.extender.requests import CLASSES, claim, exactly, pod

DRIVER = "gpu.nvidia.com"


def kinds(demand: Demand) -> list[list[tuple[object, int]]]:
    """Return the profile and count of each alternative of each request."""
    return [
        [(next((c.value for c in each.conditions if c.name == "profile"), None), each.count) for each in r.alternatives]
        for r in demand.requests
    ]


def test_extended_resources_are_requests_in_the_order_of_containers() -> None:
    body = {"nvidia.com/mig-2g.10gb": "2", "deviceclass.resource.kubernetes.io/mig-1g.5gb.nvidia.com": "1"}
    assert kinds(pod_demand(pod(body), (), CLASSES)) == [[("1g.5gb", 1)], [("2g.10gb", 2)]]
    assert kinds(pod_demand(pod({"nvidia.com/gpu": "1"}), (), CLASSES)) == [[(None, 1)]]
    assert pod_demand(pod({"cpu": "1", "nvidia.com/mig-9g.90gb": "1"}), (), CLASSES) == Demand()


def test_init_containers_add_only_what_exceeds_the_others() -> None:
    found = pod({"nvidia.com/mig-1g.5gb": "2"})
    before = pod({"nvidia.com/mig-1g.5gb": "3"}).spec.containers
    spec = type(found.spec)(before, found.spec.containers)
    assert kinds(pod_demand(type(found)(found.metadata, spec), (), CLASSES)) == [[("1g.5gb", 2)], [("1g.5gb", 1)]]
    spec = type(found.spec)(found.spec.containers, before)
    assert kinds(pod_demand(type(found)(found.metadata, spec), (), CLASSES)) == [[("1g.5gb", 3)]]


def test_sidecars_have_devices_beside_the_others() -> None:
    found = pod({"nvidia.com/mig-1g.5gb": "1"})
    (sidecar,) = pod({"nvidia.com/mig-2g.10gb": "1"}).spec.containers
    spec = type(found.spec)((msgspec.structs.replace(sidecar, restart_policy="Always"),), found.spec.containers)
    assert kinds(pod_demand(type(found)(found.metadata, spec), (), CLASSES)) == [[("2g.10gb", 1)], [("1g.5gb", 1)]]


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_classes_with_one_resource_the_later_one_counts(turn: int) -> None:
    (old,) = (each for each in CLASSES if each.spec.extended_resource_name == "nvidia.com/mig-1g.5gb")
    (other,) = (each for each in CLASSES if each.spec.extended_resource_name == "nvidia.com/mig-2g.10gb")
    spec = msgspec.structs.replace(other.spec, extended_resource_name="nvidia.com/mig-1g.5gb")
    metadata = msgspec.structs.replace(other.metadata, creation_timestamp="2026-11-28T00:00:00Z")
    classes = (old, msgspec.structs.replace(other, spec=spec, metadata=metadata))[::turn]
    assert kinds(pod_demand(pod({"nvidia.com/mig-1g.5gb": "1"}), (), classes)) == [[("2g.10gb", 1)]]


def test_the_names_of_claims_come_from_the_spec_or_the_status() -> None:
    rows = [{"name": "a", "resourceClaimName": "own"}, {"name": "b", "resourceClaimTemplateName": "t"}, {"name": "z"}]
    assert pod(claims=rows, made={"b": "p-b-x7k"}).claim_names == ("own", "p-b-x7k")


def test_claims_have_alternatives_and_constraints() -> None:
    several = {
        "name": "x",
        "firstAvailable": [{"name": "a", **exactly("2g.10gb")["exactly"]}, exactly("1g.5gb", count=2)["exactly"]],
    }
    one = claim(exactly("3g.20gb", "w"), several, constraints=[{"matchAttribute": "d/a"}])
    two = claim(exactly("1g.5gb", "v"), constraints=[{"requests": ["v"], "matchAttribute": "d/b"}])
    found = pod_demand(pod(), (one, two), CLASSES)
    assert kinds(found) == [[("3g.20gb", 1)], [("2g.10gb", 1), ("1g.5gb", 2)], [("1g.5gb", 1)]]
    assert found.constraints == (EqualAttribute((0, 1), "d/a"), EqualAttribute((2,), "d/b"))


def test_an_allocated_claim_and_access_for_administration_take_nothing() -> None:
    assert pod_demand(pod(), (claim(exactly("1g.5gb"), held=("gpu-0",)),), CLASSES) == Demand()
    assert kinds(pod_demand(pod(), (claim(exactly("1g.5gb", adminAccess=True)),), CLASSES)) == [[("1g.5gb", 0)]]


@pytest.mark.parametrize(
    ("request_", "more", "why"),
    [
        (exactly("1g.5gb", allocationMode="All"), {}, "not for a number of devices"),
        (exactly("1g.5gb", capacity={"requests": {"memory": "1Gi"}}), {}, "not for a number of devices"),
        (exactly("1g.5gb", count=33), {}, "not for a number of devices"),
        (exactly("9g.90gb"), {}, "device class mig-9g.90gb.nvidia.com is not known"),
        ({"name": "r"}, {}, "unknown kind"),
        (exactly("1g.5gb", selectors=[{"cel": {"expression": "1 in [1]"}}]), {}, "more than a comparison"),
        (exactly("1g.5gb"), {"constraints": [{"distinctAttribute": "d/a"}]}, "another constraint"),
        (exactly("1g.5gb"), {"constraints": [{"requests": ["r/a"], "matchAttribute": "d/a"}]}, "one alternative"),
    ],
)
def test_what_cannot_be_predicted_is_named(request_: dict[str, Any], more: dict[str, Any], why: str) -> None:
    with pytest.raises(UnknownRequestError, match=why):
        pod_demand(pod(), (claim(request_, **more),), CLASSES)


def test_selectors_compare_fields() -> None:
    text = "device.driver == 'gpu.nvidia.com' && device.attributes[\"gpu.nvidia.com\"]['profile'] == '1g.5gb'"
    assert read_selectors([text, "device.attributes['d'].flag == true", "device.attributes['d'].n == -3"]) == (
        FieldCondition("", "", DRIVER),
        FieldCondition(DRIVER, "profile", "1g.5gb"),
        FieldCondition("d", "flag", True),
        FieldCondition("d", "n", -3),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "true",
        "device.driver == 'a' || device.driver == 'b'",
        "device.driver == 'a' &&",
        "!(device.driver == 'a')",
        "device.driver != 'a'",
        "device.driver == 'a' ? true : true",
        "device.attributes['d'].n == 3.5",
        "device.attributes['d'].n == 12345678901234567890",
        "device.driver == 'a\\u0062'",
        "device.driver == 'a'" + " && device.driver == 'a'" * 500,
    ],
)
def test_other_expressions_are_not_evaluated(text: str) -> None:
    with pytest.raises(UnknownRequestError):
        read_selectors([text])


def test_a_condition_reads_the_attribute_of_its_domain() -> None:
    own, other = DeviceAttribute(string_value="x"), DeviceAttribute(int_value=1)
    attributes = {"a": own, "d/a": other}
    assert FieldCondition(DRIVER, "a", "x").holds(DRIVER, attributes)
    assert FieldCondition("d", "a", 1).holds(DRIVER, attributes)
    assert not FieldCondition("e", "a", "x").holds(DRIVER, attributes)
    assert not FieldCondition("", "", DRIVER).holds("gpu.aliquot.dev", attributes)
    assert not FieldCondition("d", "a", True).holds(DRIVER, {"d/a": DeviceAttribute(int_value=7)})
