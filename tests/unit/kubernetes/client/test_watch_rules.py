"""The pure parts of a watch: what differs between two lists, and when to try again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aliquot.kubernetes.client.objects import Node, ObjectMeta
from aliquot.kubernetes.client.watch import ObjectChanged, ObjectDeleted, _difference

Nodes = dict[tuple[str, str], Node]


def nodes(rows: dict[str, tuple[str, int]]) -> Nodes:
    made = [Node(ObjectMeta(name=name, uid=uid, resource_version=str(v))) for name, (uid, v) in rows.items()]
    return {node.key: node for node in made}


rows = st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.sampled_from("xyz"), st.integers(1, 4)))


@given(rows, rows)
def test_the_difference_leads_from_one_list_to_the_other_with_nothing_too_much(
    first: dict[str, tuple[str, int]], second: dict[str, tuple[str, int]]
) -> None:
    before, after = nodes(first), nodes(second)
    held = dict(before)
    for change in _difference(before, after):
        if isinstance(change, ObjectDeleted):
            assert held.pop(change.item.key) == change.item
        else:
            assert isinstance(change, ObjectChanged)
            assert held.get(change.item.key) != change.item
            held[change.item.key] = change.item
    assert held == after


def test_an_object_made_anew_under_the_same_name_and_version_is_two_changes() -> None:
    before, after = nodes({"a": ("old", 1)}), nodes({"a": ("young", 1)})
    assert [type(c) for c in _difference(before, after)] == [ObjectDeleted, ObjectChanged]
