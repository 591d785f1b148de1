"""The agents' sentences about holders, and the commands in them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Holder
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.node_agent import messages
from laws.oracle import mig_nodes

A100 = catalog.family("a100-40gb")


def _blocked(*holders: Holder) -> Plan:
    made = plan(mig_nodes.node(mig_nodes.gpu(A100, [])), mig_nodes.desired_state(A100, ["1g.5gb"]))
    return msgspec.structs.replace(made, blockers=(Blocker("HELD", "held", holders=holders),))


@pytest.mark.parametrize(
    ("holders", "command"),
    [
        ((), "aliquot show"),
        ((Holder("process", "11"),), "aliquot show"),
        ((Holder("process", "11"), Holder("pod", "ml/train")), "kubectl -n ml describe pod train"),
    ],
    ids=["unknown", "process", "pod"],
)
def test_the_command_shows_the_first_pod(holders: tuple[Holder, ...], command: str) -> None:
    assert messages.describe_command(_blocked(*holders)) == command


def test_each_holder_is_named_once() -> None:
    assert messages.holders(_blocked(Holder("pod", "a/b"), Holder("pod", "a/b"))) == "pod a/b"
    assert messages.holders(_blocked()) == "a client that the driver does not name"
