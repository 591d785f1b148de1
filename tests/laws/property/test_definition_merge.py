"""Laws of the repair of definitions: two random definitions of a kind, one in the cluster and one of ours."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aliquot.kubernetes.virtual_machines.harvester.crd_merge import missing_parts, unite

JSON = dict[str, Any]
NAMES = st.sampled_from(("address", "enabled", "enum", "items", "nodeName", "required", "type"))
TEXTS = st.sampled_from(("synced", "disabled", "failed"))
LEAVES = st.fixed_dictionaries(
    {"type": st.sampled_from(("string", "boolean", "integer"))},
    optional={
        "description": st.sampled_from(("one", "two")),
        "enum": st.lists(TEXTS, unique=True, min_size=1),
        "nullable": st.booleans(),
        "maxLength": st.integers(1, 300),
    },
)


def _object(inner: st.SearchStrategy[JSON]) -> st.SearchStrategy[JSON]:
    more = {
        "required": st.lists(NAMES, unique=True, max_size=3),
        "x-kubernetes-preserve-unknown-fields": st.just(True),
        "x-kubernetes-validations": st.lists(
            st.fixed_dictionaries({"rule": st.sampled_from(("a", "b", "c")), "message": st.just("m")}),
            unique_by=lambda each: each["rule"], max_size=2,
        ),
    }  # fmt: skip
    fields = st.dictionaries(NAMES, inner, max_size=4)
    return st.fixed_dictionaries({"type": st.just("object"), "properties": fields}, optional=more)


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: _object(inner) | st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
    max_leaves=12,
)
COLUMNS = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("ABCD"), "jsonPath": st.sampled_from((".x", ".y"))}),
    unique_by=lambda each: each["name"], max_size=3,
)  # fmt: skip
NEWER = st.sampled_from(("v1alpha1", "v1", "v2"))


@st.composite
def definitions(draw: st.DrawFn) -> JSON:
    names = ["v1beta1", *draw(st.lists(NEWER, unique=True, max_size=2))]
    stored = draw(st.sampled_from(names))
    versions = [
        {
            "name": name,
            "served": draw(st.booleans()),
            "storage": name == stored,
            "schema": {"openAPIV3Schema": draw(_object(SCHEMAS))},
            "additionalPrinterColumns": draw(COLUMNS),
        }
        for name in names
    ]
    meta = {"name": "things.example.com", "resourceVersion": "7"}
    return {"metadata": meta, "spec": {"group": "example.com", "versions": versions, "names": {"plural": "things"}}}


def parts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each leaf with its path. Versions, columns and rules count by name, other lists by their values."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from parts(each, (*path, key))
    elif isinstance(value, list):
        for each in value:
            key = (each.get("name") or each.get("rule")) if isinstance(each, dict) else str(each)
            yield from parts(each, (*path, f"[{key}]"))
    else:
        yield path, value


@given(definitions(), definitions())
def test_nothing_of_the_cluster_is_lost_or_changed(live: JSON, ours: JSON) -> None:
    before = copy.deepcopy(live)
    united = dict(parts(unite(live, ours)["spec"]))
    assert live == before
    for path, value in parts(live["spec"]):
        assert united[path] == value, path
    kept = unite(live, ours)["spec"]["versions"]
    assert [each["name"] for each in kept][: len(live["spec"]["versions"])] == [
        each["name"] for each in live["spec"]["versions"]
    ]
    assert sum(each["storage"] for each in kept) == 1


@given(definitions(), definitions())
def test_every_part_of_ours_is_back_unless_the_cluster_has_another_type_there(live: JSON, ours: JSON) -> None:
    united = unite(live, ours)
    assert missing_parts(united, ours) == ()
    assert unite(united, ours)["spec"] == united["spec"]
    fields = {path for path, _ in parts(united["spec"])}
    for path, _ in parts(ours["spec"]):
        assert path in fields or _types_differ(live["spec"], ours["spec"], path), path


@given(definitions())
def test_a_complete_definition_lacks_nothing(ours: JSON) -> None:
    assert missing_parts(ours, ours) == ()
    assert unite(ours, ours)["spec"] == ours["spec"]


def _types_differ(live: Any, ours: Any, path: tuple[str, ...]) -> bool:
    """Report whether both have a schema along the path with another type. Such a field belongs to the cluster."""
    for key in path:
        if isinstance(live, list) and isinstance(ours, list):
            live, ours = _by_name(live, key), _by_name(ours, key)
        elif isinstance(live, dict) and isinstance(ours, dict):
            live, ours = live.get(key), ours.get(key)
        if isinstance(live, dict) and isinstance(ours, dict):
            types = (live.get("type"), ours.get("type"))
            if all(isinstance(each, str) for each in types) and types[0] != types[1]:
                return True
    return False


def _by_name(items: list[Any], key: str) -> Any:
    return next((i for i in items if isinstance(i, dict) and f"[{i.get('name') or i.get('rule')}]" == key), None)
