"""Every right of the table is used by a test, and everything else is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aliquot.kubernetes.manifests.rbac import RIGHTS
from support.cluster import Cluster, RealCluster, StandinCluster
from support.cluster_real import RealServer
from system.kubernetes.door import Answer
from system.kubernetes.refusals import AGENT_MAY_NOT, CONTROLLER_MAY_NOT, DRY, EVICTIONS, Try
from system.kubernetes.rights_world import (
    AGENT,
    CONTROLLER,
    DEPLOY,
    OTHER_NODE,
    OWN_NODE,
    USES,
    World,
    eviction,
    manifests,
    patch_node,
    path_of,
)

OURS = (AGENT, CONTROLLER)
EACH = sorted(
    {(r.account, r.resource, verb) for r in RIGHTS if not r.devices and r.account in OURS for verb in r.verbs}
)
OPTIONAL = DEPLOY / "optional/evictions.yaml"
REFUSALS = [(AGENT, each) for each in AGENT_MAY_NOT] + [(CONTROLLER, each) for each in CONTROLLER_MAY_NOT]


def built(cluster: Cluster) -> Iterator[World]:
    """One world for all tests of this file: nothing here depends on what another test did."""
    world = World(cluster, [*manifests(), *manifests(OPTIONAL)])
    world.mark()
    # A real server takes a moment to follow new policies.
    judged = [*REFUSALS, *((AGENT, each) for each in EVICTIONS)]
    cluster.wait(lambda: all(a(world, who, DRY).status == 403 for who, a in judged if a.words), "the policies")
    yield world
    world.close()
    cluster.close()


@pytest.fixture(scope="module")
def standin_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from built(StandinCluster(tmp_path_factory.mktemp("rights")))


@pytest.fixture(scope="module")
def real_world(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cluster = RealCluster(real_server, tmp_path_factory.mktemp("rights"))
    yield from built(cluster)


@pytest.fixture(scope="module", params=["standin", "real"])
def world(request: pytest.FixtureRequest) -> World:
    found: World = request.getfixturevalue(f"{request.param}_world")
    return found


def test_each_right_has_a_use_and_each_use_a_right() -> None:
    uses = {(who, resource, verb) for (who, resource), verbs in USES.items() for verb in verbs}
    assert uses == set(EACH)
    assert all(right.reason for right in RIGHTS)


@pytest.mark.parametrize(("who", "resource", "verb"), EACH)
def test_a_right_is_there(world: World, who: str, resource: str, verb: str) -> None:
    door = world.controller if who == CONTROLLER else world.agent
    answer = USES[who, resource][verb](world, door)
    assert answer.allowed, answer.message


@pytest.mark.parametrize(("who", "attempt"), REFUSALS, ids=[f"{who}: {each.what}" for who, each in REFUSALS])
def test_everything_else_is_refused(world: World, who: str, attempt: Try) -> None:
    _refused(world, who, attempt)


@pytest.mark.parametrize("attempt", EVICTIONS, ids=[each.what for each in EVICTIONS])
def test_evictions_that_a_policy_refuses(world: World, attempt: Try) -> None:
    _refused(world, AGENT, attempt)


def _refused(world: World, who: str, attempt: Try) -> None:
    world.mark()
    answer = attempt(world, who)
    assert answer.status == 403, f"{answer.status} {answer.message}"
    assert attempt.words in answer.message


def test_evictions_are_off_until_the_optional_file_is_applied(world: World) -> None:
    def evict(name: str) -> Answer:
        path = world.pod(name, OWN_NODE)
        return world.agent.ask("POST", f"{path}/eviction{DRY}", eviction(name, "default"))

    assert not [item for item in manifests() if "pods/eviction" in str(item.get("rules", ""))]
    for item in manifests(OPTIONAL):
        world.admin.ask("DELETE", path_of(item))
    world.cluster.wait(lambda: evict("stays").status == 403, "the right to be gone")
    assert 'cannot create resource "pods/eviction"' in evict("stays").message
    for item in manifests(OPTIONAL):
        world.admin.apply(path_of(item), item)
    world.cluster.wait(lambda: evict("stays").allowed, "the right to be back")


def test_others_are_not_looked_at(world: World) -> None:
    """The policies are about our accounts alone: an administrator does all of this."""
    body = {"metadata": {"labels": {"zone": "b", "nvidia.com/mig.config": "x"}, "annotations": {"a.b/c": "d"}}}
    assert patch_node(world.admin, OTHER_NODE, body).status == 200
    assert world.admin.ask("DELETE", world.pod("far-2", OTHER_NODE)).status == 200
