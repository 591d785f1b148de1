"""Logins and permissions: a dashboard with the RBAC of its manifest, and users with real tokens and RBAC."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from aliquot.dashboard.change_requests import AnyChangeRequest, PartitionGpu, UseConfig
from aliquot.dashboard.view_models import Person
from aliquot.errors import AliquotError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests.rbac_dashboard import CHANGE_ROLE, DASHBOARD_RIGHTS, VIEW_ROLE
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from support.agents import NAMESPACE, MakeAgent
from support.cluster import Cluster
from support.kubevirt.definitions import definitions
from system.dashboard.clusterbed import PATIENCE_S, Bed, bed
from system.kubernetes.agent_rights import DEPLOY, path_of
from system.kubernetes.api_user import ApiUser
from system.kubernetes.conftest import _agents, cluster, real_cluster, real_server, standin_cluster

__all__ = ["cluster", "real_cluster", "real_server", "standin_cluster"]
RBAC = "rbac.authorization.k8s.io"
PAGE = "aliquot-dashboard"


@pytest.fixture
def make_agent(cluster: Cluster, tmp_path: Path) -> Iterator[MakeAgent]:
    yield from _agents(cluster, tmp_path)


@pytest.fixture
def page(cluster: Cluster) -> Iterator[Bed]:
    """Open a source with only the permissions of the manifest."""
    import yaml

    cluster.namespace(NAMESPACE)
    admin = ApiUser(cluster, cluster.token)
    for each in yaml.safe_load_all((DEPLOY / "optional/dashboard.yaml").read_text()):
        if each["kind"] not in ("Deployment", "NetworkPolicy"):
            admin.apply(path_of(each), each)
    with bed(cluster, account=PAGE) as made:
        yield made


def person(cluster: Cluster, name: str, *roles: str) -> str:
    """Create a token of a user with these roles of the manifests."""
    token = cluster.service_account_token("default", name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    for role in roles:
        for kind, where in (("ClusterRole", ""), ("Role", f"/namespaces/{NAMESPACE}")):
            plural = f"{kind.lower()}s"
            if cluster.request("GET", f"/apis/{RBAC}/v1{where}/{plural}/{role}").status != 200:
                continue
            body = {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": {"name": f"{name}-{role}"},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                "subjects": [subject],
            }
            cluster.must("POST", f"/apis/{RBAC}/v1{where}/{kind.lower()}bindings", body)
    return token


def admitted(page: Bed, cluster: Cluster, token: str) -> Person:
    """Retry the login until new permissions are effective."""
    found: list[Person] = []

    def came() -> bool:
        page.source.reviews._allowed.clear()
        who = page.do(page.user.admit(token))
        found.extend([who] if who is not None else [])
        return who is not None

    page.until(came, "a user to be admitted")
    return found[-1]


def test_a_token_opens_the_page_to_whom_may_read_nodes_alone(page: Bed, cluster: Cluster) -> None:
    assert page.do(page.user.admit("nonsense")) is None
    assert page.do(page.user.admit("")) is None
    assert page.do(page.user.admit("two words\nand a line")) is None
    without_rights = person(cluster, "nobody")
    assert page.do(page.user.admit(without_rights)) is None
    looker = admitted(page, cluster, person(cluster, "looker", VIEW_ROLE))
    assert looker.name == "system:serviceaccount:default:looker"
    assert looker.token
    assert "kubectl create token" in page.user.hint


def test_no_user_is_let_in_while_the_token_cannot_be_checked(page: Bed, cluster: Cluster) -> None:
    token = person(cluster, "late", VIEW_ROLE)
    with cluster.unavailable(), pytest.raises(AliquotError):
        page.do(page.user.admit(token))


def test_who_may_only_look_changes_nothing_and_who_may_change_is_the_one_who_did(
    page: Bed, cluster: Cluster, make_agent: MakeAgent
) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    ask = UseConfig(nodes=(agent.name,), config="all-1g.5gb")
    looker = admitted(page, cluster, person(cluster, "looker", VIEW_ROLE))
    changer = admitted(page, cluster, person(cluster, "changer", CHANGE_ROLE))
    why = page.do(page.source.may(looker, "config"))
    assert why == "system:serviceaccount:default:looker may not patch nodes in this cluster."
    with pytest.raises(AliquotError, match="may not patch nodes"):
        page.preview(ask, looker)
    preview = page.preview(ask, changer)
    forged = page.execute(preview, looker)  # the API server itself refuses
    assert (forged.status, forged.code) == ("refused", "KUBERNETES_FORBIDDEN"), forged
    without = page.execute(preview, Person("somebody"))
    assert (without.status, without.code) == ("refused", "NO_PERMISSION")
    assert agent.labels().get("nvidia.com/mig.config") is None
    for each in ("config", "cut", "make-room", "repair", "functions", "vgpus", "layout", "attach", "detach"):
        assert page.do(page.source.may(changer, each)) == ""
    assert page.execute(preview, changer).status == "done"
    page.until(lambda: page.geometry(agent.name) == agent.geometry(), "the page follows")
    gpu = str(agent.sim.show()["gpus"][0]["pci"])
    cut: AnyChangeRequest = PartitionGpu(node=agent.name, gpu=gpu, mig="3g.20gb")
    assert page.ask(cut, changer).status == "done"
    past = page.do(page.source.history(agent.name))
    assert [(c.by, c.outcome) for c in past[:1]] == [("web: system:serviceaccount:default:changer", "done")]
    assert past[0].title.startswith("own-")
    assert past[0].actions[-1].endswith("created 3g.20gb at 4:4")


def test_a_policy_that_could_not_be_taken_back_is_reported(page: Bed, cluster: Cluster, make_agent: MakeAgent) -> None:
    """The user's permission or token ended while the agent applied the change."""
    agent = make_agent("a100-sxm4-40gb")
    agent.sim.set_mode(0, True)
    instance = agent.sim.create(0, "3g.20gb")
    agent.sim.hold(0, instance)
    agent.start()
    page.until(
        lambda: (found := page.make_observation(agent.name).inventory) and found.gpus[0].instances[0].held, "the holder"
    )
    changer = admitted(page, cluster, person(cluster, "changer", CHANGE_ROLE))
    gpu = str(agent.sim.show()["gpus"][0]["pci"])
    preview = page.preview(PartitionGpu(node=agent.name, gpu=gpu, mig="7g.40gb", policy="wait"), changer)
    assert not preview.obstacles, preview.obstacles
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(page.execute, preview, changer)
        agent.reaches("pending", reason="WaitingForHolders")
        cluster.must("DELETE", f"/apis/{RBAC}/v1/clusterrolebindings/changer-{CHANGE_ROLE}")
        token = ApiUser(cluster, changer.token)
        page.until(lambda: token.ask("GET", f"/api/v1/nodes/{agent.name}").status == 403, "the right is gone")
        agent.sim.release(0, instance)
        done = under_way.result(PATIENCE_S)
    assert done.status == "done", done
    assert agent.node()["metadata"]["annotations"][names.HOLDERS_ANNOTATION] == "wait"
    assert done.details[0].startswith(
        f"{agent.name} still has {names.HOLDERS_ANNOTATION}=wait, also for later changes ("
    )
    assert done.next_step == f"kubectl annotate node {agent.name} {names.HOLDERS_ANNOTATION}-"


def test_the_page_has_each_right_that_it_needs_and_no_other(page: Bed, cluster: Cluster) -> None:
    cluster.apply([*crds.definitions(), *definitions()])
    token = cluster.service_account_token(NAMESPACE, PAGE)
    user = ApiUser(cluster, token)

    def may(verb: str, group: str, resource: str, namespace: str = "") -> bool:
        attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
        body = {"spec": {"resourceAttributes": attributes}}
        answer = user.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer.body["status"]["allowed"])

    places = {"own namespace": NAMESPACE, "namespace default": "default"}
    for right in DASHBOARD_RIGHTS:
        for verb in right.verbs:
            assert may(verb, right.group, right.resource, places.get(right.scope, "")), right
        for verb in {"create", "patch", "update", "delete", "deletecollection"} - set(right.verbs):
            assert not may(verb, right.group, right.resource, places.get(right.scope, "")), right
    assert not may("get", "", "secrets", NAMESPACE)
    assert not may("list", "", "configmaps", "default")
    assert not may("list", "", "pods", "default")
    page.until(lambda: page.source.fleet.ready, "a look")
    page.until(lambda: not any("cannot be read" in s for s in page.source.virtual.missing), "all can be read", 90)
