"""The admission webhooks, called by an API server over TLS with their own certificate."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import support.admissions as made
from aliquot.kubernetes.manifests.values import WEBHOOK, Values
from aliquot.kubernetes.manifests.webhooks import configurations, empty_configurations
from aliquot.kubernetes.virtual_machines.webhook.certificates import renewed_bundle
from support.cluster import Cluster
from support.kubevirt.objects import instances, machine, machines, written
from support.resource_claims import create_claim
from support.webhooked import HOOKS, ROOT, SECRET, Bed, Replica, of_kind
from system.kubernetes.agent_rights import NS

JSON = dict[str, Any]
Q, L40S = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_L40S-12Q"
VMS = machines("default")
SPEC = ("spec", "template", "spec", "domain", "devices")


@pytest.fixture
def bed(cluster: Cluster) -> Iterator[Bed]:
    found = Bed(cluster)
    yield found
    found.close()


def node(bed: Bed, name: str, **amounts: int) -> None:
    bed.cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    figures = {"capacity": {k: str(v) for k, v in amounts.items()}}
    status = figures | {"allocatable": figures["capacity"], "conditions": [{"type": "Ready", "status": "True"}]}
    bed.cluster.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})


def populated(bed: Bed) -> Replica:
    """Create node n1, an A2 with two vGPUs of mdev and two of vendor VFIO, and the running webhooks."""
    node(bed, "n1", **{Q: 2, L40S: 2})
    bed.make("sriovgpudevices", made.gpu(True, "n1-000008004", "n1-000008005") | {"metadata": {"name": made.GPU}})
    bed.make("pcidevices", made.function())
    for address in ("0000:08:00.4", "0000:08:00.5"):
        bed.make("vgpudevices", made.vgpu(address, "NVIDIA A2-4Q", True))
    for address in ("0000:08:00.6", "0000:08:00.7"):
        bed.make("vgpudevices", made.vgpu(address, "NVIDIA L40S-12Q", True, uuid="1155"))
    replica = bed.replica()
    bed.register(replica)
    bed.asked()
    return replica


def stored(bed: Bed, name: str) -> JSON:
    found = bed.cluster.get(f"{VMS}/{name}")
    for step in SPEC:
        found = found[step]
    return found


def test_from_nothing_to_a_refusal_that_says_what_to_do(bed: Bed) -> None:
    populated(bed)
    refused = bed.ask("PATCH", f"sriovgpudevices/{made.GPU}", {"spec": {"enabled": False}})
    assert refused.status == 403
    assert refused.body["message"].startswith(
        'admission webhook "devices.aliquot.dev" denied the request: cannot disable n1-000008000 while vGPUs n1-0000080'
    )
    assert bed.ask("DELETE", f"sriovgpudevices/{made.GPU}").status == 403
    assert bed.cluster.get(f"{ROOT}/sriovgpudevices/{made.GPU}")["spec"]["enabled"] is True
    assert bed.ask("PATCH", "vgpudevices/n1-000008004", {"spec": {"enabled": False}}).status == 200


def test_what_our_own_programs_write_is_not_judged(bed: Bed) -> None:
    populated(bed)
    role = {"metadata": {"name": "agents"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}
    subject = {"kind": "ServiceAccount", "name": "aliquot-agent", "namespace": NS}
    binding = {
        "metadata": {"name": "agents"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "agents"},
        "subjects": [subject],
    }
    bed.cluster.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    bed.cluster.must("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    token = bed.cluster.service_account_token(NS, "aliquot-agent")
    path = f"sriovgpudevices/{made.GPU}"
    bed.cluster.wait(lambda: bed.ask("GET", path, token=token).status == 200, "the account's rights")
    assert bed.ask("PATCH", path, {"spec": {"enabled": False}}, token).status == 200


def test_both_vgpus_of_a_machine_are_moved_where_the_kernel_has_no_mdev(bed: Bed) -> None:
    populated(bed)
    answer = bed.ask("POST", VMS, machine("vm", gpus=[L40S, L40S]))
    assert answer.status == 201, answer.body
    assert stored(bed, "vm") == {
        "hostDevices": [{"name": "gpus0", "deviceName": L40S}, {"name": "gpus1", "deviceName": L40S}]
    }
    assert "moved to hostDevices" in answer.headers["warning"]


def test_one_ramfb_of_two_vgpus(bed: Bed) -> None:
    populated(bed)
    assert bed.ask("POST", VMS, machine("vm", gpus=[Q, Q])).status == 201
    displays = [each["virtualGPUOptions"]["display"] for each in stored(bed, "vm")["gpus"]]
    assert displays == [{"enabled": True, "ramFB": {"enabled": True}}, {"ramFB": {"enabled": False}}]


def test_more_machines_than_vgpus_are_stopped_by_admission(bed: Bed) -> None:
    populated(bed)
    answers = [bed.ask("POST", VMS, machine(f"vm{n}", gpus=[Q])) for n in range(3)]
    assert [each.status for each in answers] == [201, 201, 403]
    assert "0 can still be allocated" in answers[2].body["message"]
    assert bed.ask("POST", VMS, machine("vm3", gpus=[Q], strategy="Halted")).status == 201
    started = bed.ask("PATCH", f"{VMS}/vm3", {"spec": {"runStrategy": "Always"}})
    assert started.status == 403
    assert bed.ask("DELETE", f"{VMS}/vm0").status == 200
    bed.cluster.wait(
        lambda: bed.ask("PATCH", f"{VMS}/vm3", {"spec": {"runStrategy": "Always"}}).status == 200, "room for vm3"
    )


def test_an_unknown_resource_and_two_nodes_are_refused(bed: Bed) -> None:
    populated(bed)
    refused = bed.ask("POST", VMS, machine("vm", gpus=["nvidia.com/NVIDIA_A2-4X"]))
    assert "resource name nvidia.com/NVIDIA_A2-4X of gpus0 not found" in refused.body["message"]
    remote = made.vgpu("0000:08:00.4", "NVIDIA A2-4Q", True, node="n2")
    node(bed, "n2", **{Q: 1})
    bed.make("vgpudevices", remote)
    both = [{"name": "n1-000008004", "deviceName": Q}, {"name": "n2-000008004", "deviceName": Q}]
    seen = "not on the same node"
    bed.cluster.wait(
        lambda: seen in bed.ask("POST", f"{VMS}?dryRun=All", machine("vm", gpus=both)).body.get("message", ""), seen
    )


def test_an_installation_blocks_nothing_before_its_webhooks_answer(bed: Bed) -> None:
    # The manifests have no webhooks: the controller registers its own once their Service has an address. It checks that
    # soon: its next check by itself is an hour away.
    for each in empty_configurations():
        bed.cluster.apply(each)
    replica = bed.replica(look_s=3600.0)
    bed.cluster.wait(lambda: replica.failure or not replica.missing, "the webhooks to be ready", 20)
    assert bed.bundles() == []
    bed.make("vgpudevices", made.vgpu("0000:08:00.4"))
    endpoints = {"metadata": {"name": WEBHOOK}, "subsets": [{"notReadyAddresses": [{"ip": "192.0.2.1"}]}]}
    bed.cluster.must("POST", f"/api/v1/namespaces/{NS}/endpoints", endpoints)
    webhook = replica.controller.webhook
    assert webhook is not None
    waits = f"waits until Service {WEBHOOK} has a ready address"
    bed.cluster.wait(lambda: waits in str(webhook._warnings.current), waits)
    assert bed.bundles() == []
    ready = {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 8443}]}]}
    bed.cluster.must("PATCH", f"/api/v1/namespaces/{NS}/endpoints/{WEBHOOK}", ready)
    bed.cluster.wait(lambda: len(bed.bundles()) == 6, "the webhooks to be registered", 20)
    assert set(bed.bundles()) == {bed.cluster.get(SECRET)["data"]["ca.crt"]}
    bed.cluster.wait(lambda: webhook._warnings.current == (), "nothing to be missing")


def test_a_network_cards_claim_is_made_while_no_webhook_answers(bed: Bed) -> None:
    replica = populated(bed)
    replica.close()
    spec = {"address": "0000:03:00.0", "nodeName": "n1", "userName": "admin"}
    body = of_kind("pcideviceclaims", {"metadata": {"name": "n1-000003000"}, "spec": spec})
    assert bed.ask("POST", "pcideviceclaims", body).status == 201


def test_while_no_webhook_answers_machines_go_on_and_requests_wait(bed: Bed) -> None:
    replica = populated(bed)
    replica.close()
    refused = bed.ask("PATCH", "vgpudevices/n1-000008004", {"spec": {"enabled": False}})
    assert (refused.status, "failed calling webhook" in refused.body["message"]) == (500, True)
    assert bed.ask("POST", VMS, machine("vm", gpus=[Q])).status == 201


def test_no_user_is_locked_out_while_no_webhook_answers(bed: Bed) -> None:
    # The kinds can be removed with their objects, and the configurations themselves are never judged.
    bed.make("pcideviceclaims", made.claim())
    bed.make("vgpudevices", made.vgpu("0000:08:00.4", "NVIDIA A2-4Q", True))
    bed.register(replica := bed.replica())
    replica.close()
    assert bed.ask("DELETE", "vgpudevices/n1-000008004").status == 500
    kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}.devices.harvesterhci.io".format
    for plural in ("vgpudevices", "pcideviceclaims"):
        assert bed.ask("DELETE", kind(plural)).status == 200
        bed.cluster.wait(partial(_gone, bed, kind(plural)), f"{plural} to be gone", 20)
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        assert bed.ask("DELETE", f"{HOOKS}/{plural}/aliquot-webhook").status == 200


def _gone(bed: Bed, path: str) -> bool:
    return bed.ask("GET", path).status == 404


def test_a_machine_without_devices_is_never_asked_about(bed: Bed) -> None:
    # Even an administrator's stricter policy stops only VMs with devices.
    replica = populated(bed)
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/aliquot-webhook"
    hooks = bed.cluster.get(path)["webhooks"]
    strict = [hook | {"failurePolicy": "Fail"} for hook in hooks]
    bed.cluster.must("PATCH", path, {"webhooks": strict})
    replica.close()
    bed.cluster.wait(lambda: bed.ask("POST", f"{VMS}?dryRun=All", machine("x", gpus=[Q])).status == 500, "the policy")
    assert bed.ask("POST", VMS, machine("plain")).status == 201
    nothing = machine("nulls")
    nothing["spec"]["template"]["spec"]["domain"]["devices"] = {"gpus": [], "hostDevices": []}
    assert bed.ask("POST", VMS, nothing).status == 201


def test_every_replica_serves_the_same_certificate_and_a_lost_one_is_made_again(bed: Bed) -> None:
    first = populated(bed)
    second = bed.replica("two")
    bed.cluster.wait(lambda: not second.missing, "the second replica", 20)
    before = bed.cluster.get(SECRET)["data"]
    bundle = bed.bundles()[0]
    assert bundle == before["ca.crt"]
    bed.cluster.must("DELETE", SECRET)
    bed.cluster.wait(lambda: bed.ask("GET", SECRET).status == 200, "another Secret", 20)
    bed.cluster.wait(lambda: set(bed.bundles()) == {bed.cluster.get(SECRET)["data"]["ca.crt"]}, "its authority", 20)
    assert bed.bundles()[0] != bundle
    for each in (first, second):
        assert each.failure is None
    bed.asked()


def test_a_device_that_a_machine_uses_stays(bed: Bed) -> None:
    populated(bed)
    assert bed.ask("POST", VMS, machine("vm", gpus=[{"name": "n1-000008004", "deviceName": Q}])).status == 201
    refused = bed.ask("PATCH", "vgpudevices/n1-000008004", {"spec": {"enabled": False}})
    assert refused.status == 403
    assert "n1-000008004 is in use with VM vm in namespace default" in refused.body["message"]
    assert bed.ask("DELETE", f"{VMS}/vm").status == 200
    off = {"spec": {"enabled": False}}
    bed.cluster.wait(lambda: bed.ask("PATCH", "vgpudevices/n1-000008004", off).status == 200, "the deletion to be seen")


def test_a_device_that_a_machine_has_by_a_claim_stays(bed: Bed) -> None:
    populated(bed)
    off = {"spec": {"enabled": False}}
    assert bed.ask("PATCH", "vgpudevices/n1-000008005", off).status == 200
    bed.cluster.must(
        "POST", instances("default"), written("VirtualMachineInstance", "desk", {"domain": {"devices": {}}})
    )
    claim = create_claim(
        bed.cluster, made.resource_claim("desk-gpu", "virt-launcher-desk-x7k2p", function="0000:08:00.4")
    )
    refused = bed.ask("PATCH", "vgpudevices/n1-000008004", off)
    words = "n1-000008004 is in use by ResourceClaim desk-gpu of VM desk in namespace default"
    assert (refused.status, words in refused.body["message"]) == (403, True), refused.body
    bed.cluster.must("PATCH", f"{claim}/status", {"status": {"reservedFor": None}})
    bed.cluster.wait(lambda: bed.ask("PATCH", "vgpudevices/n1-000008004", off).status == 200, "the release to be seen")


def test_what_is_in_use_is_kept_when_all_of_a_kind_are_deleted_at_once(bed: Bed) -> None:
    # For such a deletion the API server calls about each object, without a name.
    populated(bed)
    assert bed.ask("POST", VMS, machine("vm", gpus=[{"name": "n1-000008004", "deviceName": Q}])).status == 201
    seen = "n1-000008004 is in use with VM vm"
    bed.cluster.wait(
        lambda: seen in bed.ask("DELETE", "vgpudevices/n1-000008004?dryRun=All").body.get("message", ""), seen
    )
    refused = bed.ask("DELETE", "vgpudevices")
    assert (refused.status, seen in refused.body.get("message", "")) == (403, True)
    assert bed.ask("GET", "vgpudevices/n1-000008004").status == 200


def test_who_mounts_the_certificate_may_register_its_authority_alone(bed: Bed, tmp_path: Path) -> None:
    # As with cert-manager: then the controller has no right to change webhook configurations.
    for kind in ("clusterroles", "clusterrolebindings"):
        bed.cluster.must("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/aliquot-controller-certificate")
    made_ = renewed_bundle(None, ("localhost",), dt.datetime.now(dt.UTC))
    assert made_ is not None
    for name, text in (("tls.crt", made_.server.certificate), ("tls.key", made_.server.key), ("ca.crt", made_.trusted)):
        (tmp_path / name).write_bytes(text)
    replica = bed.replica(certificates=str(tmp_path))
    bundle = base64.b64encode(made_.trusted).decode()
    for each in configurations(Values(namespace=NS), url=f"https://localhost:{replica.port}"):
        for hook in each["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
        bed.cluster.apply(each)
    bed.cluster.wait(lambda: replica.failure or not replica.missing, "the webhooks to be ready", 20)
    assert replica.failure is None
    refused = machine("vm", gpus=["nvidia.com/NVIDIA_A2-4X"])
    bed.cluster.wait(lambda: bed.ask("POST", f"{VMS}?dryRun=All", refused).status == 403, "a refusal", 20)
    assert replica.controller.webhook is not None
    assert replica.controller.webhook._warnings.current == ()
