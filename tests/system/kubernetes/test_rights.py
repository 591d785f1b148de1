"""Every right of the table is used by a test, and all other requests are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aliquot.kubernetes.manifests.rbac import RIGHTS
from support.cluster import Cluster, RealCluster, StandinCluster
from support.cluster_real import RealServer
from system.kubernetes.agent_rights import (
    AGENT,
    CLAIMS,
    CONTROLLER,
    DEPLOY,
    OTHER_NODE,
    OWN_NODE,
    USES,
    Environment,
    device_slice,
    eviction,
    manifests,
    own_claim,
    own_slice,
    patch_node,
    path_of,
    shown_device,
)
from system.kubernetes.api_user import Answer
from system.kubernetes.refusals import AGENT_MAY_NOT, CONTROLLER_MAY_NOT, DRY, EVICTIONS, Try

OURS = (AGENT, CONTROLLER)
EACH = sorted(
    {(r.account, r.resource, verb) for r in RIGHTS if not r.devices and r.account in OURS for verb in r.verbs}
)
OPTIONAL = DEPLOY / "optional/evictions.yaml"
WITH_CLAIMS = DEPLOY / "optional/claims.yaml"
WITH_EXTENDER = DEPLOY / "optional/extender.yaml"
REFUSALS = [(AGENT, each) for each in AGENT_MAY_NOT] + [(CONTROLLER, each) for each in CONTROLLER_MAY_NOT]


def built(cluster: Cluster) -> Iterator[Environment]:
    """Provide one environment for all tests of this file: none depends on another."""
    optional = [item for folder in (OPTIONAL, WITH_CLAIMS, WITH_EXTENDER) for item in manifests(folder)]
    cluster_environment = Environment(cluster, [*manifests(), *optional])
    cluster_environment.mark()
    # A real server takes a moment to follow new policies.
    judged = [*REFUSALS, *((AGENT, each) for each in EVICTIONS)]
    cluster.wait(
        lambda: all(a(cluster_environment, who, DRY).status == 403 for who, a in judged if a.words), "the policies"
    )
    yield cluster_environment
    cluster_environment.close()
    cluster.close()


@pytest.fixture(scope="module")
def standin_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    yield from built(StandinCluster(tmp_path_factory.mktemp("rights")))


@pytest.fixture(scope="module")
def real_environment(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    cluster = RealCluster(real_server, tmp_path_factory.mktemp("rights"))
    yield from built(cluster)


@pytest.fixture(scope="module", params=["standin", "real"])
def environment(request: pytest.FixtureRequest) -> Environment:
    found: Environment = request.getfixturevalue(f"{request.param}_environment")
    return found


def test_each_right_has_a_use_and_each_use_a_right() -> None:
    uses = {(who, resource, verb) for (who, resource), verbs in USES.items() for verb in verbs}
    assert uses == set(EACH)
    assert all(right.reason for right in RIGHTS)


@pytest.mark.parametrize(("who", "resource", "verb"), EACH)
def test_a_right_is_there(environment: Environment, who: str, resource: str, verb: str) -> None:
    client = environment.controller if who == CONTROLLER else environment.agent
    answer = USES[who, resource][verb](environment, client)
    assert answer.allowed, answer.message


@pytest.mark.parametrize(("who", "attempt"), REFUSALS, ids=[f"{who}: {each.what}" for who, each in REFUSALS])
def test_everything_else_is_refused(environment: Environment, who: str, attempt: Try) -> None:
    _refused(environment, who, attempt)


@pytest.mark.parametrize("attempt", EVICTIONS, ids=[each.what for each in EVICTIONS])
def test_evictions_that_a_policy_refuses(environment: Environment, attempt: Try) -> None:
    _refused(environment, AGENT, attempt)


def test_a_slice_of_another_node_is_refused(environment: Environment) -> None:
    words = "only ResourceSlices of its own node"
    moved = {"metadata": {"labels": {"moved": "yes"}}}  # a server refuses another nodeName before it asks the policy
    path = own_slice(environment, OTHER_NODE)
    slices = path.rpartition("/")[0]
    environment.cluster.wait(lambda: environment.agent.ask("PATCH", path, moved).status == 403, "the policy")
    attempts = [
        environment.agent.ask("PATCH", path, moved),
        environment.agent.ask("DELETE", path),
        environment.agent.ask("POST", f"{slices}{DRY}", device_slice(OTHER_NODE) | {"metadata": {"name": "new"}}),
        environment.unbound.ask("DELETE", own_slice(environment)),
    ]
    assert [(each.status, words in each.message) for each in attempts] == [(403, True)] * 4
    assert environment.agent.ask("GET", f"{CLAIMS}/namespaces/default/resourceclaims").status == 200
    answer = environment.agent.ask("PATCH", f"{CLAIMS}/namespaces/default/resourceclaims/x", {"metadata": {}})
    assert 'cannot patch resource "resourceclaims"' in answer.message


def test_only_the_devices_of_a_claim_may_be_written(environment: Environment) -> None:
    path = f"{own_claim(environment)}/status"
    release = {"status": {"allocation": None}}
    reserve = {"status": {"reservedFor": [{"resource": "pods", "name": "x", "uid": "1"}]}}

    def refused(body: dict[str, Any]) -> bool:
        """Report a refusal by our policy, or from 1.36 by the server itself."""
        answer = environment.agent.ask("PATCH", path, body)
        return answer.status in (403, 422) and ("only status.devices" in answer.message or "/binding" in answer.message)

    environment.cluster.wait(lambda: refused(release), "the policy")
    assert refused(reserve)
    assert environment.agent.ask("PATCH", path, shown_device()).status == 200


def test_a_server_of_1_36_refuses_devices_of_another_node(real_environment: Environment) -> None:
    path = f"{own_claim(real_environment, OTHER_NODE)}/status"
    answer = real_environment.agent.ask("PATCH", path, shown_device(OTHER_NODE))
    assert (answer.status, 'resource="resourceclaims/driver"' in answer.message) == (422, True), answer.message


def _refused(cluster_environment: Environment, who: str, attempt: Try) -> None:
    cluster_environment.mark()
    answer = attempt(cluster_environment, who)
    assert answer.status == 403, f"{answer.status} {answer.message}"
    assert attempt.words in answer.message


def test_evictions_are_off_until_the_optional_file_is_applied(environment: Environment) -> None:
    def evict(name: str) -> Answer:
        path = environment.pod(name, OWN_NODE)
        return environment.agent.ask("POST", f"{path}/eviction{DRY}", eviction(name, "default"))

    assert not [item for item in manifests() if "pods/eviction" in str(item.get("rules", ""))]
    for item in manifests(OPTIONAL):
        environment.admin.ask("DELETE", path_of(item))
    environment.cluster.wait(lambda: evict("stays").status == 403, "the right to be gone")
    assert 'cannot create resource "pods/eviction"' in evict("stays").message
    for item in manifests(OPTIONAL):
        environment.admin.apply(path_of(item), item)
    environment.cluster.wait(lambda: evict("stays").allowed, "the right to be back")


def test_others_are_not_looked_at(environment: Environment) -> None:
    # The policies are only about our accounts: an administrator does all of this.
    body = {"metadata": {"labels": {"zone": "b", "nvidia.com/mig.config": "x"}, "annotations": {"a.b/c": "d"}}}
    assert patch_node(environment.admin, OTHER_NODE, body).status == 200
    assert environment.admin.ask("DELETE", environment.pod("far-2", OTHER_NODE)).status == 200
