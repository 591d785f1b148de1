"""Documents that pages show are valid for Aliquot, Kubernetes or Slurm's controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from aliquot.core.config import load
from aliquot.errors import ConfigError
from aliquot.slurm.controller import settings_parser
from support.cluster import StandinCluster

from .pages import HOUSE, Block, every, read

Shown = tuple[Path, Block, str]


def shown() -> Iterator[Shown]:
    for path in every():
        for block in read(path).blocks:
            if block.language in ("yaml", "json"):
                yield path, block, "\n".join(block.lines) + "\n"


def place(one: Shown) -> str:
    return f"{one[0].relative_to(HOUSE)}:{one[1].line}"


ALL = list(shown())
OURS = [one for one in ALL if one[2].lstrip().startswith("version: ") and "configs:" in one[2]]
CONTROLLER = [one for one in ALL if one[2].startswith("version: aliquot-slurm/")]
COMPONENTS = "apiVersion: kubescheduler.config.k8s.io/"
"""Beginning of a configuration that a component of Kubernetes reads from a file. The API does not serve it."""
KUBERNETES = [one for one in ALL if "apiVersion:" in one[2] and "kind:" in one[2] and not one[2].startswith(COMPONENTS)]


@pytest.mark.parametrize("one", ALL, ids=place)
def test_it_is_yaml(one: Shown) -> None:
    assert list(yaml.safe_load_all(one[2]))


@pytest.mark.parametrize("one", OURS, ids=place)
def test_our_parser_takes_it(one: Shown) -> None:
    assert load.load(one[2], one[0].name).configs


@pytest.mark.parametrize("one", CONTROLLER, ids=place)
def test_the_slurm_controller_takes_it(one: Shown) -> None:
    assert settings_parser.load(one[2], one[0].name).hosts


def test_there_are_some_of_each() -> None:
    assert len(OURS) >= 6
    assert CONTROLLER
    assert len(KUBERNETES) >= 3


def test_a_slip_in_one_would_be_found() -> None:
    native = next(text for _, _, text in OURS if "gpus:" in text)
    with pytest.raises(ConfigError):
        load.load(native.replace("gpus:", "gpu:"), "page.md")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandinCluster]:
    from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
    from support.kubevirt.players import VmCluster

    made = StandinCluster(tmp_path_factory.mktemp("cluster"))
    try:
        made.apply([dict(each) for each in crds.all_definitions()])
        VmCluster(made).install({})
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("one", KUBERNETES, ids=place)
def test_kubernetes_takes_it(one: Shown, cluster: StandinCluster) -> None:
    # A dry run with strict fields: an unknown field is an error, as in ``kubectl create``.
    for row in yaml.safe_load_all(one[2]):
        plural, namespaced = cluster._resource(row["apiVersion"], row["kind"])
        group = f"/apis/{row['apiVersion']}" if "/" in row["apiVersion"] else f"/api/{row['apiVersion']}"
        inside = f"/namespaces/{row['metadata'].get('namespace', 'default')}" if namespaced else ""
        answer = cluster.request("POST", f"{group}{inside}/{plural}?dryRun=All&fieldValidation=Strict", row)
        assert answer.status in (200, 201), answer.body
