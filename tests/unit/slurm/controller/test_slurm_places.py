"""Placeholder nodes: their fields, and the way from Slurm's placeholders to the required ones."""

from __future__ import annotations

from typing import cast

from msgspec.structs import replace

from aliquot.slurm.client.errors import RefusedError
from aliquot.slurm.client.gres_text import parse_listed
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.controller import placeholders
from aliquot.slurm.controller.log_once import LogOnce
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.placeholder_sync import BACKOFF, PlaceholderSync
from aliquot.slurm.controller.settings import Rules
from support.slurmtoy import Toy, ToyNode, toy


def records(cluster: Toy) -> list[SlurmNodeState]:
    return list(cluster.environment().node_states)


def there(place: placeholders.Placeholder, **more: object) -> SlurmNode:
    made = SlurmNode(
        name=place.name,
        states=frozenset({"FUTURE", "DRAIN"}),
        gres=parse_listed(place.gres_text),
        features=place.features,
    )
    return replace(made, **more)


def test_one_says_the_most_of_each_type_that_a_record_can_have() -> None:
    (place,) = placeholders.required_placeholders(records(Toy({"n0": ToyNode([(), (("7g.40gb", 0),)])})), {})
    gres = dict(place.gres)
    assert gres["1g.5gb"] == 14
    assert gres["3g.20gb"] == 4
    assert gres["7g.40gb"] == 2
    assert "a100" not in gres, "MIG mode is not changed unless that is allowed"
    assert place.line.endswith("Feature=mig State=FUTURE")
    assert place.line.startswith(f"NodeName={place.name} CPUs=64 RealMemory=500000 Gres=gpu:")


def test_rules_narrow_it() -> None:
    (place,) = placeholders.required_placeholders(records(toy("7g.40gb", rules=Rules(profiles=("1g.5gb",)))), {})
    assert place.gres == (("1g.5gb", 7),)
    assert not placeholders.required_placeholders(records(toy("7g.40gb", rules=Rules(untouched=True))), {})


def test_as_many_as_records_of_one_kind_and_layouts_among_the_features() -> None:
    cluster = toy("7g.40gb", "", "")
    cluster.nodes["n2"].features = ("mig", "big")
    found = placeholders.required_placeholders(records(cluster), {"mig_2x3g": {}})
    assert sorted(p.features for p in found) == [("big", "mig", "mig_2x3g"), ("mig", "mig_2x3g"), ("mig", "mig_2x3g")]
    assert len({p.name for p in found}) == 3


def test_what_is_missing_is_made_and_what_is_not_needed_goes() -> None:
    (place,) = placeholders.required_placeholders(records(toy("7g.40gb")), {})
    actions = placeholders.plan_actions([], [place])
    assert (actions.create, actions.delete) == ((place,), ())
    stays = placeholders.plan_actions([there(place)], [place])
    assert stays == placeholders.PlaceholderActions()
    old = replace(there(place), name="aliquot-layouts-old-0")
    actions = placeholders.plan_actions([old, there(place)], [place])
    assert actions.delete == ("aliquot-layouts-old-0",)
    assert placeholders.plan_actions([there(place)], []).delete == (place.name,)


def test_one_that_lost_its_types_is_made_again_and_one_that_takes_jobs_is_drained() -> None:
    (place,) = placeholders.required_placeholders(records(toy("7g.40gb")), {})
    actions = placeholders.plan_actions([there(place, gres=())], [place])
    assert actions.create == (place,)
    assert actions.delete == (place.name,)
    assert placeholders.plan_actions([there(place, states=frozenset({"FUTURE"}))], [place]).drain == (place.name,)


def test_a_line_in_slurm_conf_does_as_well() -> None:
    (place,) = placeholders.required_placeholders(records(toy("7g.40gb")), {})
    line = there(place, name="layouts", states=frozenset({"FUTURE"}))
    assert placeholders.plan_actions([line], [place]) == placeholders.PlaceholderActions()
    real = there(place, name="n7", states=frozenset({"IDLE"}))
    assert placeholders.plan_actions([real], [place]).create == (place,), "an existing node may be replaced later"


def test_a_nodes_features_put_no_keys_into_a_line() -> None:
    # A dynamic node reports its features itself.
    cluster = toy("7g.40gb")
    cluster.nodes["n0"].features = ("mig", "x NodeAddr=10.6.6.6 State=IDLE", "y\tWeight=1", "z\n")
    (place,) = placeholders.required_placeholders(records(cluster), {})
    assert place.features == ("mig",)
    assert place.line.endswith(" Feature=mig State=FUTURE")


class FullTable:
    """A slurmctld that accepts no more nodes."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.now = 0.0
        self.full = True
        self.drained: list[str] = []

    def create(self, line: str) -> None:
        self.asked.append(self.now)
        if self.full:
            raise RefusedError("Unable to add node, node table is full")

    def drain(self, name: str, reason: str) -> None:
        self.drained.append(name)


def test_what_slurm_refuses_to_make_is_tried_ever_more_rarely_and_then_as_before() -> None:
    slurm, messages = FullTable(), list[str]()
    placing = PlaceholderSync(cast(Slurm, slurm), LogOnce(messages.append))
    for number in range(720):
        slurm.now = 5.0 * number
        placing.sync(records(toy("7g.40gb")), (), {}, slurm.now)
    assert 10 < len(slurm.asked) < 20, "an hour of polls every 5 s"
    assert slurm.asked[-1] - slurm.asked[-2] == BACKOFF.longest
    assert len([s for s in messages if "node table is full" in s]) == 1
    assert not [s for s in messages if "jobs may wait" in s]
    slurm.full = False
    placing.sync(records(toy("7g.40gb")), (), {}, slurm.now + BACKOFF.longest)
    assert len(slurm.drained) == 1
