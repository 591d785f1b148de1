"""The findings of ``aliquot dra check``, each from the objects that show it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from aliquot.cli.doctor.finding import DoctorFinding
from aliquot.cli.dra.check_classes import class_findings
from aliquot.cli.dra.check_facts import APPLIED_ANNOTATION, DraFacts
from aliquot.cli.dra.check_nodes import node_findings
from aliquot.cli.dra.check_server import server_findings
from aliquot.cli.dra.check_slices import slice_findings
from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.client.objects import ContainerStatus, Node, NodeStatus, Pod, PodSpec, PodStatus
from aliquot.kubernetes.client.server_version import ServerVersion
from aliquot.kubernetes.dra.model.device_classes import device_classes, published_profiles
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import (
    DeviceAttribute,
    DeviceClass,
    DeviceClassSpec,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from aliquot.kubernetes.gpu.names import ALLOCATION_LABEL, DEPLOY_LABEL
from unit.kubernetes.dra.model.nodes import NAMING
from unit.kubernetes.dra.view.test_pools import POOL, claim, published

SLICES = published()
CLASSES = device_classes(NAMING, published_profiles(SLICES))
FOR_VMS = SliceDevice("vm-0000-01-00-0-vfio", attributes={"type": DeviceAttribute(string_value="vfio")})
LABELS = {ALLOCATION_LABEL: "dra", DEPLOY_LABEL: "true"}
CURRENT = ServerVersion("1", "36", "v1.36.2")


def node(name: str = "n1", labels: dict[str, str] = LABELS, allocatable: dict[str, str] | None = None) -> Node:
    return Node(ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=allocatable or {}))


def agent(name: str = "n1", *, ready: bool = True) -> Pod:
    status = PodStatus(container_statuses=(ContainerStatus("claims", ready=ready),))
    meta = ObjectMeta(name=f"aliquot-claims-{name}", namespace="gpu-operator")
    return Pod(meta, PodSpec(node_name=name, service_account_name="aliquot-agent"), status)


def facts(**changes: Any) -> DraFacts:
    """Return a cluster in which nothing is wrong, with some parts replaced."""
    fine = DraFacts(NAMING, CURRENT, SLICES, (), CLASSES, (node(),), (agent(),))
    return msgspec.structs.replace(fine, **changes)


def problems(found: Iterable[DoctorFinding]) -> list[tuple[str, str | None]]:
    """Return message and next step of the problems."""
    return [(each.message, each.next_step) for each in found if each.status == "problem"]


def by_check(found: Iterable[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {each.check: each for each in found}


def edited(number: int, **changes: Any) -> tuple[ResourceSlice, ...]:
    """Return the slices, with fields of one replaced."""
    spec = msgspec.structs.replace(SLICES[number].spec, **changes)
    changed = msgspec.structs.replace(SLICES[number], spec=spec)
    return (*SLICES[:number], changed, *SLICES[number + 1 :])


def test_in_a_cluster_without_faults_every_area_is_ok() -> None:
    for check in (server_findings, slice_findings, class_findings, node_findings):
        found = list(check(facts()))
        assert {each.status for each in found if each.check != "UNSEEN_GATES"} == {"ok"}, found


@pytest.mark.parametrize(
    ("minor", "status", "word"),
    [
        ("33", "problem", "resource.k8s.io/v1"),
        ("34", "note", "off by default"),
        ("35+", "note", "DRAPartitionableDevices, DRAExtendedResource, DRADeviceTaints"),
        ("36+", "ok", "v1.36.2"),
        ("", "note", "not known"),
    ],
)
def test_the_release_says_which_gates_must_be_set(minor: str, status: str, word: str) -> None:
    found = by_check(server_findings(facts(version=ServerVersion("1", minor, "v1.36.2"))))["SERVER_VERSION"]
    assert (found.status, word in found.message, bool(found.next_step)) == (status, True, status != "ok")


def test_counters_that_the_server_dropped_show_a_gate_that_is_off() -> None:
    bare = tuple(msgspec.structs.replace(device, consumes_counters=()) for device in SLICES[1].spec.devices)
    found = by_check(server_findings(facts(slices=edited(1, devices=bare))))
    assert found["PARTITIONABLE_DEVICES"].status == "problem"
    assert "n1" in found["PARTITIONABLE_DEVICES"].message
    assert "--feature-gates=DRAPartitionableDevices=true" in str(found["PARTITIONABLE_DEVICES"].next_step)
    plain = by_check(server_findings(facts(slices=(), classes=())))
    assert set(plain) == {"SERVER_VERSION", "UNSEEN_GATES"}, "nothing is claimed that no object shows"
    assert "DRAPartitionableDevices" in plain["UNSEEN_GATES"].message
    assert "DRAExtendedResource" in plain["UNSEEN_GATES"].message


def test_a_taint_shows_that_its_gate_is_on() -> None:
    assert "DRADeviceTaints" in by_check(server_findings(facts()))["UNSEEN_GATES"].message
    tainted = tuple(
        msgspec.structs.replace(device, taints=(DeviceTaint("aliquot.dev/hidden", "NoSchedule"),))
        for device in SLICES[1].spec.devices
    )
    assert (
        "DRADeviceTaints"
        not in by_check(server_findings(facts(slices=edited(1, devices=tainted))))["UNSEEN_GATES"].message
    )


def test_a_resource_name_counts_as_dropped_only_if_it_was_sent() -> None:
    def bare(applied: str) -> tuple[DeviceClass, ...]:
        meta = ObjectMeta(name=CLASSES[0].name, annotations={APPLIED_ANNOTATION: applied})
        spec = msgspec.structs.replace(CLASSES[0].spec, extended_resource_name=None)
        return (DeviceClass(meta, spec), *CLASSES[1:])

    sent = facts(classes=bare('{"spec":{"extendedResourceName":"nvidia.com/gpu","selectors":[]}}'))
    found = by_check(server_findings(sent))["EXTENDED_RESOURCES"]
    assert (found.status, CLASSES[0].name in found.message) == ("problem", True)
    assert "DRAExtendedResource=true" in str(found.next_step)
    assert "RESOURCE_NAMES" not in by_check(class_findings(sent)), "it is said once"
    for text in ('{"spec":{}}', "{", "7"):
        chosen = facts(classes=bare(text))
        assert by_check(server_findings(chosen))["EXTENDED_RESOURCES"].status == "ok"
        note = by_check(class_findings(chosen))["RESOURCE_NAMES"]
        assert (note.status, CLASSES[0].name in note.message) == ("note", True)


def test_a_pool_that_the_scheduler_skips_is_a_problem_once() -> None:
    ((message, step),) = problems(slice_findings(facts(slices=SLICES[1:])))
    assert f"pool {POOL} of driver {NAMING.driver} on node n1: incomplete: 1 of 2 slices" in message
    assert step == "aliquot dra show n1"
    ((message, _),) = problems(slice_findings(facts(slices=SLICES[:1])))
    assert "SLICE_COUNT" in message, "without its devices the pool has no GPU to show"


def test_older_slices_are_ignored_as_the_scheduler_does() -> None:
    old = msgspec.structs.replace(
        SLICES[0],
        metadata=ObjectMeta(name="old"),
        spec=msgspec.structs.replace(SLICES[0].spec, pool=msgspec.structs.replace(SLICES[0].spec.pool, generation=0)),
    )
    assert not problems(slice_findings(facts(slices=(*SLICES, old))))


def test_a_claimed_device_that_is_not_published_is_a_problem() -> None:
    ((message, _),) = problems(slice_findings(facts(claims=(claim("train", "gpu-0-mig-9g"),))))
    assert "gpu-0-mig-9g is allocated and not published" in message


def test_the_slices_of_another_driver_are_judged_by_what_the_server_does_not_check() -> None:
    pool = msgspec.structs.replace(SLICES[1].spec.pool, name="n2")
    spec = msgspec.structs.replace(SLICES[1].spec, driver="gpu.example.com", pool=pool, node_name="n2")
    listed = msgspec.structs.replace(spec.devices[0].attributes["type"], string_value=None)
    devices = tuple(
        msgspec.structs.replace(each, attributes={**each.attributes, "new": listed}) for each in spec.devices
    )
    spec = msgspec.structs.replace(spec, devices=devices)
    other = msgspec.structs.replace(SLICES[1], metadata=ObjectMeta(name="other"), spec=spec)
    ((message, _),) = problems(slice_findings(facts(slices=(*SLICES, other))))
    assert message.startswith("pool n2 of driver gpu.example.com on node n2: incomplete")
    whole = msgspec.structs.replace(pool, resource_slice_count=1)
    twice = msgspec.structs.replace(spec, pool=whole, devices=(*devices, devices[0]))
    found = problems(slice_findings(facts(slices=(*SLICES, msgspec.structs.replace(other, spec=twice)))))
    assert [message for message, _ in found if "DUPLICATE_DEVICE" in message or "NO_SUCH_COUNTER" in message]
    assert not [message for message, _ in found if "ATTRIBUTE" in message or "POOL_NAME" in message]


def test_in_1_34_counters_must_be_in_the_slice_of_their_devices() -> None:
    found = problems(slice_findings(facts(version=ServerVersion("1", "34"))))
    assert facts(version=ServerVersion("1", "34")).release == (1, 34)
    assert "NO_SUCH_COUNTER" in found[0][0]


def test_two_drivers_that_publish_one_gpu_are_a_problem() -> None:
    pool = msgspec.structs.replace(SLICES[0].spec.pool, name="n1")
    rival = tuple(
        msgspec.structs.replace(
            each,
            metadata=ObjectMeta(name=f"rival-{each.name}"),
            spec=msgspec.structs.replace(each.spec, driver="gpu.example.com", pool=pool),
        )
        for each in SLICES
    )
    ((message, step),) = problems(slice_findings(facts(slices=(*SLICES, *rival))))
    assert f"driver gpu.example.com (pool n1) and driver {NAMING.driver} (pool {POOL}) publish the same GPUs" in message
    assert step == "kubectl get resourceslices --field-selector spec.nodeName=n1"
    same_name = tuple(
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, driver=NAMING.driver)) for each in rival
    )
    found = facts(slices=(*SLICES, *same_name))
    assert len(found.own["n1"]) == len(SLICES), "NVIDIA's own driver has the node's name as its pool"
    assert len(problems(slice_findings(found))) == 1


def test_slices_under_another_driver_name_lead_to_the_option() -> None:
    (found,) = slice_findings(facts(naming=DriverNaming()))
    assert (found.status, found.next_step) == ("note", f"aliquot dra check --dra-driver {NAMING.driver}")
    (nothing,) = slice_findings(facts(slices=()))
    assert (nothing.status, nothing.next_step) == ("note", "kubectl get resourceslices")


def test_devices_that_are_no_gpus_of_one_node_do_not_clash() -> None:
    pool = msgspec.structs.replace(SLICES[1].spec.pool, resource_slice_count=1)
    plain = [msgspec.structs.replace(each, consumes_counters=()) for each in SLICES[1].spec.devices]
    cards = tuple(
        msgspec.structs.replace(
            each, attributes={key: value for key, value in each.attributes.items() if "uuid" not in key.lower()}
        )
        for each in plain
    )
    added = [
        ResourceSlice(
            ObjectMeta(name=driver),
            msgspec.structs.replace(
                SLICES[1].spec,
                driver=driver,
                pool=msgspec.structs.replace(pool, name=driver),
                node_name=node_name,
                devices=devices,
            ),
        )
        for driver, node_name, devices in (
            ("a.example.com", "", tuple(plain)),
            ("b.example.com", "", tuple(plain)),
            ("net.example.com", "n1", cards),
        )
    ]
    assert not problems(slice_findings(facts(slices=(*SLICES, *added))))


def test_classes_are_compared_with_what_the_nodes_publish() -> None:
    assert by_check(class_findings(facts(slices=())))["CLASSES"].status == "note"
    ((message, step),) = problems(class_findings(facts(classes=())))
    assert (CLASSES[0].name in message, step) == (True, f"aliquot dra classes --dra-driver {NAMING.driver}")
    vms = edited(0, devices=(*SLICES[0].spec.devices, FOR_VMS))
    assert "vfio.gpu.nvidia.com" in by_check(class_findings(facts(slices=vms)))["CLASSES"].message
    some = by_check(class_findings(facts(classes=CLASSES[:-1])))["CLASSES"]
    assert (some.status, CLASSES[-1].name in some.message) == ("note", True)
    own = DriverNaming()
    found = DraFacts(own, CURRENT, edited(0, driver=own.driver)[:1], (), ())
    assert by_check(class_findings(found))["CLASSES"].next_step == "aliquot dra classes"


def test_a_class_with_another_resource_is_a_problem() -> None:
    spec = msgspec.structs.replace(CLASSES[-1].spec, extended_resource_name="nvidia.com/mig-other")
    other = msgspec.structs.replace(CLASSES[-1], spec=spec)
    ((message, _),) = problems(class_findings(facts(classes=(*CLASSES[:-1], other))))
    assert f"{CLASSES[-1].name} has the resource nvidia.com/mig-other" in message


@pytest.mark.parametrize(
    ("created", "chosen"), [("2026-01-02T00:00:00Z", "a-late"), ("2026-01-01T00:00:00Z", "a-late")]
)
def test_of_two_classes_with_one_resource_the_one_that_pods_get_is_named(created: str, chosen: str) -> None:
    spec = DeviceClassSpec(extended_resource_name="example.com/gpu")
    late = DeviceClass(ObjectMeta(name="a-late", creation_timestamp=created), spec)
    early = DeviceClass(ObjectMeta(name="b-early", creation_timestamp="2026-01-01T00:00:00Z"), spec)
    ((message, _),) = problems(class_findings(facts(classes=(*CLASSES, late, early))))
    assert message == (f"a-late and b-early have the same resource example.com/gpu: pods that request it get {chosen}")


def test_a_node_that_needs_a_claim_agent_says_why_none_runs() -> None:
    elsewhere = agent("n2"), node("n2"), msgspec.structs.replace(SLICES[0], metadata=ObjectMeta(name="n2"))

    def found(labels: dict[str, str], **changes: Any) -> list[tuple[str, str | None]]:
        moved = msgspec.structs.replace(
            elsewhere[2],
            spec=msgspec.structs.replace(
                SLICES[0].spec, node_name="n2", pool=msgspec.structs.replace(SLICES[0].spec.pool, name="n2-aliquot")
            ),
        )
        given = {"slices": (*SLICES, moved)} | changes
        return problems(node_findings(facts(nodes=(node(labels=labels), elsewhere[1]), agents=elsewhere[:1], **given)))

    ((message, step),) = found(LABELS)
    assert message == "node n1 publishes devices, and no claim agent runs there"
    assert step == "kubectl describe daemonset --all-namespaces -l app.kubernetes.io/component=claims"
    ((message, step),) = found({ALLOCATION_LABEL: "dra"})
    assert step == f"kubectl label node n1 {DEPLOY_LABEL}=true --overwrite"
    ((message, step),) = found({DEPLOY_LABEL: "true"})
    assert step == f"kubectl label node n1 {ALLOCATION_LABEL}=dra --overwrite"
    (first, *_) = found(LABELS, slices=SLICES[:0])
    assert first[0] == f"node n1 has the label {ALLOCATION_LABEL}=dra, and no claim agent runs there"


def test_without_any_claim_agent_the_installation_is_named() -> None:
    ((message, step),) = problems(node_findings(facts(agents=())))
    assert (message, "dra.enabled=true" in str(step)) == (
        "no claim agent is in this cluster, so no claim is prepared on n1",
        True,
    )
    (note,) = node_findings(facts(agents=(), slices=(), nodes=(node(labels={}),)))
    assert (note.status, note.next_step) == ("note", f"kubectl label node NODE {ALLOCATION_LABEL}=dra")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"agents": (agent(ready=False),)}, "the claim agent of node n1 is not ready"),
        ({"slices": ()}, f"is ready, and publishes no slice of {NAMING.driver}"),
        ({"agents": (agent(), agent(""))}, "waits for a node"),
        ({"nodes": ()}, "slices of node n1 are left, which is not in the cluster"),
    ],
)
def test_an_agent_that_cannot_serve_is_a_problem(changes: dict[str, Any], word: str) -> None:
    ((message, step),) = problems(node_findings(facts(**changes)))
    assert (word in message, str(step).startswith("kubectl ")) == (True, True)


def test_a_device_plugin_beside_the_slices_is_a_problem() -> None:
    def found(labels: dict[str, str], counts: dict[str, str], classes: tuple[DeviceClass, ...] = CLASSES) -> Any:
        return problems(node_findings(facts(nodes=(node(labels=labels, allocatable=counts),), classes=classes)))

    ((message, step),) = found(LABELS, {"nvidia.com/gpu": "8"})
    assert "its device plugin offers nvidia.com/gpu" in message
    assert "Class gpu.nvidia.com has the resource nvidia.com/gpu too" in message
    assert step == "kubectl get pods --all-namespaces --field-selector spec.nodeName=n1"
    ((message, step),) = found({DEPLOY_LABEL: "true"}, {"nvidia.com/mig-1g.5gb": "2"}, ())
    assert "Class" not in message
    assert step == f"kubectl label node n1 {ALLOCATION_LABEL}=dra --overwrite"
    assert not found(LABELS, {"nvidia.com/gpu": "0", "nvidia.com/nic": "2"}), "a plugin that ended leaves a zero"


def test_kinds_that_could_not_be_read_are_not_judged() -> None:
    unread = facts(slices=None, claims=None, classes=None, nodes=None, agents=None, version=None)
    for check in (slice_findings, class_findings, node_findings):
        assert not list(check(unread))
    assert [each.check for each in server_findings(unread)] == ["UNSEEN_GATES"]
    assert not problems(node_findings(facts(slices=None))), "an agent without slices is only known if they were read"
