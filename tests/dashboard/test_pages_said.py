"""Words of the pages that people took the wrong way once."""

from __future__ import annotations

import msgspec
import pytest

import factory
import vgpufactory
from aliquot.dashboard import words
from aliquot.dashboard.values import CLUSTER, Fleet, NodeLook, Virtual
from dashboard import stub
from dashboard.pagedraw import document
from dashboard.stub import StubSource

replace = msgspec.structs.replace


def test_what_is_missing_elsewhere_is_a_calm_note() -> None:
    """Red is for a page that is of no use without it; of machines only the page of machines speaks."""
    rows, lacks, none = stub.virtual(), ("two: no driver",), ("KubeVirt is not installed",)
    for path in ("/sriov", "/vgpus", "/machines"):
        source = StubSource(stub.fleet(), replace(rows, missing=lacks, no_machines=none))
        source.kind = CLUSTER
        of_use = document(source, path)
        assert "Note: something is missing. two: no driver" in of_use.text
        assert ("KubeVirt" in of_use.text) == (path == "/machines")
        assert "Something is missing here" not in of_use.text
    cluster = StubSource(stub.fleet(), Virtual(missing=lacks, no_machines=none))
    cluster.kind = CLUSTER
    bare = document(cluster, "/machines").text
    assert "Something is missing here. KubeVirt is not installed Note: something is missing. two: no driver" in bare


def test_simulated_nodes_have_no_machines_and_that_is_no_trouble() -> None:
    source = StubSource(stub.fleet(), Virtual(missing=("two: no driver",), no_machines=("Simulated nodes have none.",)))
    text = document(source, "/machines").text
    assert "Simulated nodes have none." in text
    assert "missing" not in text


def test_mig_that_is_off_is_not_mig_that_is_absent() -> None:
    off = replace(factory.inventory("a30*2"), node="off")
    never = replace(vgpufactory.node(vgpufactory.gpu("NVIDIA A2")), node="never")
    looks = tuple(NodeLook(i.node, i, stub.NOW, revision=1) for i in (never, off))
    text = document(StubSource(Fleet(looks, 1, ready=True)), "/").text
    assert "MIG off" in text
    assert "no MIG" in text


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.01, "less than 0.1 s"), (0.12, "0.1 s"), (2.52, "2.5 s"), (12.9, "12 s"), (200, "3 min")]
)
def test_how_long_something_took(seconds: float, said: str) -> None:
    assert words.took(seconds) == said
