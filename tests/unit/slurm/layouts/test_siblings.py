"""Open records of a host, at most one: each decision on its own, and a small model of Slurm that tries to open two."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.conf.parser import parse
from aliquot.slurm.layouts.cloud_siblings import SiblingAction, breaches, groups, hosts_of, next_action

UP = frozenset({"IDLE", "CLOUD"})
OFF = UP | {"POWERED_DOWN"}
DRAIN = frozenset({"DRAIN"})
Events = list[tuple[str, int]]
OURS = "aliquot: its GPUs are n1-a's"


def node(name: str, states: frozenset[str] = OFF, reason: str = "", host: str = "n1") -> SlurmNode:
    return SlurmNode(name, states, hostname=host, reason=reason)


def closed(name: str, states: frozenset[str] = OFF) -> SlurmNode:
    return node(name, states | DRAIN, OURS)


def verb(*nodes: SlurmNode, wanted: str = "a", busy: tuple[str, ...] = ()) -> tuple[str, str]:
    act = next_action(nodes, wanted, busy)
    return act.verb, act.node_name


def test_groups_are_the_records_of_one_host() -> None:
    nodes = (node("a"), node("b"), node("c", host="n2"), node("x"))
    found = groups(nodes, {"a": "h", "b": "h", "c": "h2"})
    assert {host: [n.name for n in each] for host, each in found.items()} == {"h": ["a", "b"]}


def test_slurm_conf_says_the_host_of_each_record() -> None:
    text = (
        "NodeName=DEFAULT NodeHostname=h1 State=CLOUD\n"
        "NodeName=a Port=1\n"
        "NodeName=b Port=2\n"
        "NodeName=c-[1-2] NodeHostname=h[1-2]\n"
        "NodeName=s NodeHostname=h1 State=UNKNOWN\n"
    )
    assert hosts_of(parse("slurm.conf", lambda _: text)) == {"a": "h1", "b": "h1", "c-1": "h1", "c-2": "h2"}


def test_a_breach_is_more_than_one_open_record() -> None:
    assert breaches({"n1": (node("a"), node("b")), "n2": (node("c"), closed("d"))}) == {"n1": ("a", "b")}


def test_of_two_open_records_the_one_with_jobs_stays_and_the_other_goes_first() -> None:
    assert verb(node("a"), node("b", UP), busy=("b",)) == ("drain", "a")
    assert verb(node("a"), node("b")) == ("drain", "b")
    assert verb(node("a"), node("b", UP)) == ("drain", "a")


def test_a_swap_waits_for_jobs_then_powers_down_then_opens() -> None:
    assert verb(closed("a"), node("b", UP)) == ("drain", "b")
    assert verb(closed("a"), closed("b", UP), busy=("b",)) == ("wait", "b")
    assert verb(closed("a"), closed("b", UP)) == ("power-down", "b")
    assert verb(closed("a"), closed("b", UP | {"POWERING_DOWN"})) == ("wait", "b")
    assert verb(closed("a"), closed("b")) == ("open", "a")
    assert verb(node("a"), closed("b")) == ("done", "a")


def test_the_wanted_one_is_closed_again_while_another_still_has_jobs() -> None:
    assert verb(node("a"), closed("b", UP), busy=("b",)) == ("drain", "a")
    assert verb(node("a", UP), closed("b", UP), busy=("b",)) == ("wait", "b")


def test_an_administrators_hand_stops_everything() -> None:
    assert verb(node("a", OFF | DRAIN, "disk"), node("b", UP)) == ("blocked", "a")
    assert verb(closed("a"), node("b", UP | DRAIN, "fan")) == ("blocked", "b")
    assert verb(node("a", frozenset({"DOWN", "CLOUD"}), "ResumeTimeout reached"), closed("b")) == ("blocked", "a")


def test_what_we_set_down_is_tried_again_what_could_not_start_is_not() -> None:
    down = frozenset({"DOWN", "CLOUD", "POWERED_DOWN"})
    assert verb(node("a", down, OURS), closed("b")) == ("open", "a")
    assert verb(node("a", down, "aliquot: cannot start: no driver"), closed("b")) == ("blocked", "a")
    assert verb(node("a", UP), node("b", down - {"POWERED_DOWN"}, OURS)) == ("drain", "b")
    assert verb(node("a", down, OURS), node("b", UP), wanted="b") == ("drain", "a")


def test_a_record_whose_start_was_given_up_is_powered_down_before_it_is_tried_again() -> None:
    stuck = frozenset({"DOWN", "CLOUD", "POWERING_UP"})
    assert verb(closed("a", stuck), closed("b")) == ("power-down", "a")
    assert verb(closed("a", stuck - {"POWERING_UP"} | {"POWERING_DOWN"}), closed("b")) == ("wait", "a")
    assert verb(node("a", frozenset({"DOWN", "CLOUD", "POWERING_DOWN"}), OURS), closed("b")) == ("wait", "a")


class Model:
    """A model of Slurm with open records: it starts slurmds and jobs, ends jobs, and powers nodes off, in any order."""

    def __init__(self, drained: list[bool]) -> None:
        self.names = [f"r{n}" for n in range(len(drained))]
        self.nodes = {n: closed(n) if d else node(n) for n, d in zip(self.names, drained, strict=True)}
        self.busy: set[str] = set()

    def _set(self, name: str, *, add: str = "", drop: str = "", reason: str | None = None) -> None:
        old = self.nodes[name]
        states = (old.states | ({add} if add else set())) - {drop}
        self.nodes[name] = msgspec.structs.replace(old, states=states, reason=old.reason if reason is None else reason)

    def do(self, act: SiblingAction) -> None:
        if act.verb == "drain":
            self._set(act.node_name, add="DRAIN", reason=act.reason)
        elif act.verb == "open":
            self._set(act.node_name, drop="DRAIN", reason="")
        elif act.verb == "power-down":
            self._set(act.node_name, add="POWERING_DOWN", drop="DRAIN")  # as in Slurm

    def happen(self, kind: str, number: int) -> None:
        """Start a job on an open record, end a job, or power a node off."""
        name = self.names[number % len(self.names)]
        now = self.nodes[name]
        if kind == "job" and not now.draining and "POWERING_DOWN" not in now.states:
            self._set(name, drop="POWERED_DOWN")
            self.busy.add(name)
        elif kind == "end":
            self.busy.discard(name)
        elif kind == "off" and "POWERING_DOWN" in now.states:
            self._set(name, add="POWERED_DOWN", drop="POWERING_DOWN")

    def act(self, wanted: str) -> SiblingAction:
        act = next_action(tuple(self.nodes.values()), wanted, self.busy)
        self.do(act)
        return act

    @property
    def up(self) -> list[str]:
        return [n for n, each in self.nodes.items() if "POWERED_DOWN" not in each.states]


EVENTS = st.lists(st.tuples(st.sampled_from(("job", "end", "off")), st.integers(0, 3)), max_size=8)
DRAINED = st.lists(st.booleans(), min_size=2, max_size=4)


@given(DRAINED, st.lists(st.tuples(st.integers(0, 3), EVENTS), max_size=20))
def test_from_at_most_one_open_record_two_are_never_up(drained: list[bool], rounds: list[tuple[int, Events]]) -> None:
    model = Model([True] * (len(drained) - 1) + [False] if drained.count(False) > 1 else drained)
    for want, events in rounds:
        model.act(model.names[want % len(model.names)])
        for kind, number in events:
            model.happen(kind, number)
            assert len(model.up) <= 1


@given(DRAINED, EVENTS, st.integers(0, 3))
def test_from_anywhere_it_ends_with_the_wanted_one_open_alone(drained: list[bool], events: Events, want: int) -> None:
    model = Model(drained)
    for kind, number in events:
        model.happen(kind, number)
    wanted = model.names[want % len(model.names)]
    for _ in range(40):
        if model.act(wanted).verb == "done":
            break
        for number in range(len(model.names)):
            model.happen("end", number)
            model.happen("off", number)
    assert [n for n, each in model.nodes.items() if not each.draining] == [wanted]
    assert set(model.up) <= {wanted}
