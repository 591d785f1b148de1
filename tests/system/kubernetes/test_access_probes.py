"""Requests of our accounts that must succeed or be refused, and the strict rules of a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.cluster import Cluster, RealCluster, StandinCluster, why_not_real
from support.cluster_real import RealServer
from system.kubernetes.access_probes import ALLOWED, PROBES, Probe, node
from system.kubernetes.agent_rights import DEPLOY, MAPS, NS, OTHER_NODE, OWN_NODE, Environment, config_map, manifests
from system.kubernetes.api_user import Answer, ApiUser

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"


class People(Environment):
    """The environment of the rights, with the page, people and programs to which an administrator gave a role."""

    def __init__(self, cluster: Cluster) -> None:
        optional = [*manifests(DEPLOY / "optional/dashboard.yaml"), *manifests(DEPLOY / "optional/evictions.yaml")]
        super().__init__(cluster, [*manifests(), *optional])
        self.mark()
        self.pod("near", OWN_NODE)
        self.pod("dns", OWN_NODE, "kube-system")
        self.pod("aliquot-dashboard-1", OTHER_NODE, NS, "aliquot-dashboard")
        page = ApiUser(cluster, self.token("aliquot-dashboard", "aliquot-dashboard-1"))
        self.users = {"agent": self.agent, "unbound": self.unbound, "controller": self.controller, "page": page}
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}
        role = {"metadata": {"name": "patches"}, "rules": [rule]}
        self.admin.must("POST", f"{_RBAC}/namespaces/{NS}/roles", role)
        self._person("looks", clusterroles="aliquot-dashboard-look")
        self._person("changes", clusterroles="aliquot-dashboard-change", roles="aliquot-dashboard-change")
        self._person("patches", roles="patches")

    def _person(self, who: str, **given: str) -> None:
        account = {"metadata": {"name": who}}
        self.admin.must("POST", f"/api/v1/namespaces/{NS}/serviceaccounts", account)
        subject = {"kind": "ServiceAccount", "name": who, "namespace": NS}
        for kind, name in given.items():
            where, word = (
                (f"{_RBAC}/", "ClusterRole") if kind == "clusterroles" else (f"{_RBAC}/namespaces/{NS}/", "Role")
            )
            ref = {"apiGroup": _GROUP, "kind": word, "name": name}
            body = {"metadata": {"name": who}, "roleRef": ref, "subjects": [subject]}
            self.admin.must("POST", f"{where}{word.lower()}bindings", body)
        self.users[who] = ApiUser(self.cluster, self.token(who, ""))

    def ask(self, probe: Probe) -> Answer:
        headers = {"Content-Type": probe.media, **probe.headers}
        token = self.users[probe.who].token
        answer = self.cluster.request(probe.method, probe.path, probe.body, headers, token=token)
        return Answer(answer.status, answer.body)


@pytest.fixture(scope="module", params=["standin"] if why_not_real() else ["standin", "real"])
def people(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    """Provide one environment for all probes: they change nothing."""
    folder = tmp_path_factory.mktemp("probes")
    cluster: Cluster = StandinCluster(folder)
    if request.param == "real":
        cluster.close()
        server: RealServer = request.getfixturevalue("real_server")
        cluster = RealCluster(server, folder)
    made = People(cluster)
    # A real server takes a moment to follow new roles and policies.
    cluster.wait(lambda: all((made.ask(p).status in (401, 403)) == (p.refusal != ALLOWED) for p in PROBES), "them", 20)
    yield made
    made.close()
    cluster.close()


@pytest.mark.parametrize("probe", PROBES, ids=[f"{each.who} {each.what}" for each in PROBES])
def test_each_account_may_what_it_needs_and_nothing_else(people: People, probe: Probe) -> None:
    answer = people.ask(probe)
    if probe.refusal == ALLOWED:
        assert answer.status < 300, f"{answer.status} {answer.message}"
        return
    assert answer.status == 403, f"{answer.status} {answer.message}"
    assert probe.refusal in answer.message


def test_an_apply_without_the_right_to_create_makes_nothing(people: People) -> None:
    path, body = f"{MAPS}/not-there", config_map("not-there", a="b")
    headers = {"Content-Type": "application/apply-patch+yaml"}
    token = people.users["patches"].token
    made = people.cluster.request("PATCH", f"{path}?fieldManager=probe", body, headers, token=token)
    assert (made.status, made.body["details"]["name"]) == (403, "not-there")
    assert people.admin.ask("GET", path).status == 404
    assert people.users["patches"].ask("PATCH", path, {"data": {"a": "b"}}).status == 404


def test_what_a_policy_refuses_to_create_is_named(people: People) -> None:
    name = f"{OTHER_NODE}-mig-config"
    answer = people.agent.ask("POST", MAPS, config_map(name))
    assert answer.status == 403
    assert answer.message.startswith(f'configmaps "{name}" is forbidden: ValidatingAdmissionPolicy ')
    assert answer.body["details"]["name"] == name


def test_a_node_keeps_its_external_id(cluster: Cluster) -> None:
    made = node("n1") | {"spec": {}}
    cluster.must("POST", "/api/v1/nodes", made)
    answer = cluster.request("PATCH", "/api/v1/nodes/n1", {"spec": {"externalID": "i-1"}})
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    # Releases word the rest differently.
    assert "Forbidden" in answer.body["message"]


def test_a_body_that_comes_in_chunks(cluster: Cluster) -> None:
    # As ``kubectl create --raw`` sends it. The connection serves the next request as well.
    connection = cluster.connection()
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    text = json.dumps(config_map("in-chunks", a="b" * 5000)).encode()
    instances = (text[start : start + 900] for start in range(0, len(text), 900))
    path = "/api/v1/namespaces/default/configmaps"

    def ask(method: str, where: str, body: Any = None) -> tuple[int, Any]:
        connection.request(method, where, body, headers, encode_chunked=body is not None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    assert ask("POST", path, instances)[0] == 201
    status, found = ask("GET", f"{path}/in-chunks")
    assert (status, found["data"]) == (200, {"a": "b" * 5000})
    connection.close()
