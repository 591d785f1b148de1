"""Round trips: printed names, desired states, exports and checkpoints read back as themselves."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.config.export import export, export_native
from aliquot.core.config.formats.checkpoint import checkpoint, restore
from aliquot.core.config.formats.yaml_writer import natural, scalar, to_yaml
from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.config.select.profile_lookup import match_profile
from aliquot.core.config.text.instance_request import parse_instance_request
from aliquot.core.config.text.yaml_nodes import Map, Scalar, read
from aliquot.core.config.text.yaml_scalars import resolve
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.profile import ProfileName
from support.factory import inventory, with_instances

FAMILIES = [f for f in catalog.family_names() if f != "thor-gb10b"]
WORDS = st.from_regex(r"[a-z]([a-z0-9.]{0,5}[a-z0-9])?", fullmatch=True)
PRINTABLE = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp", "Cn", "Co"])


@st.composite
def profile_names(draw: st.DrawFn) -> ProfileName:
    attributes = draw(st.frozensets(WORDS, max_size=3))
    slices, memory = draw(st.integers(0, 12)), draw(st.integers(0, 300))
    compute = draw(st.one_of(st.just(slices), st.integers(0, 12)))
    return ProfileName(compute, slices, memory, draw(st.sampled_from("+-")) if attributes else "", attributes)


@given(profile_names())
def test_profile_names(name: ProfileName) -> None:
    assert ProfileName.parse(str(name)) == name


@given(profile_names(), st.integers(0, 20), st.integers(1, 128))
def test_requests(name: ProfileName, start: int, count: int) -> None:
    placed, counted = parse_instance_request(f"{name}@{start}", 1, 1), parse_instance_request(f"{name}*{count}", 1, 1)
    assert (placed.name, placed.start, placed.count) == (name, start, 1)
    assert (counted.name, counted.start, counted.count) == (name, None, count)
    assert parse_instance_request(f"{name}:{count}", 1, 1).count == count


@given(st.text(alphabet=PRINTABLE))
def test_any_text_survives_the_writer(text: str) -> None:
    root = read(f"{scalar(text)}: [{scalar(text)}]\n", "f").root
    assert isinstance(root, Map)
    assert root.entries[0][0].value == text
    assert isinstance(read(scalar(text), "f").root, Scalar)


@given(st.text(max_size=12))
def test_resolving_never_fails(text: str) -> None:
    value = resolve(text)
    assert isinstance(value, str | bool | int | float | None)
    if isinstance(value, str):
        assert value == text


@given(st.lists(WORDS, unique=True))
def test_natural_order_is_an_order(names: list[str]) -> None:
    assert sorted(natural(names)) == sorted(names)
    assert natural(natural(names)) == natural(names)


@st.composite
def nodes(draw: st.DrawFn) -> Inventory:
    """Draw a node of some families, with legal placements at random on some GPUs."""
    families = draw(st.lists(st.sampled_from(FAMILIES), min_size=1, max_size=3))
    node = inventory(*families)
    for index in range(len(families)):
        if draw(st.booleans()):
            node = with_instances(node, index, *draw(placements(families[index])))
    return node


@st.composite
def placements(draw: st.DrawFn, name: str) -> list[str]:
    family = catalog.family(name)
    taken, chosen = 0, []
    options = [(p, s) for p in family.profiles for s in p.placements]
    for profile, place in draw(st.lists(st.sampled_from(options), max_size=8)):
        if place.mask & taken:
            continue
        taken |= place.mask
        inside = draw(st.sampled_from(["", *[f":{c.name}" for c in profile.compute]]))
        chosen.append(f"{profile.name}@{place.start}{inside}")
    return chosen


def blank(node: Inventory) -> Inventory:
    """Return the same GPUs without instances."""
    return msgspec.structs.replace(node, gpus=tuple(msgspec.structs.replace(g, instances=()) for g in node.gpus))


def compute_names(node: Inventory, wanted: Desired) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for desired_gpu in wanted.gpus:
        family = node.family(node.gpu(desired_gpu.pci))
        table = {(p.id, c.id): c.name for p in family.profiles for c in p.compute}
        found[desired_gpu.pci] = Counter(table[i.profile_id, c] for i in desired_gpu.instances or () for c in i.compute)
    return found


def present(node: Inventory) -> dict[str, Counter[str]]:
    return {g.pci: Counter(c.profile for i in g.instances for c in i.compute_instances) for g in node.gpus}


def placed(wanted: Desired) -> dict[str, list[tuple[int, int | None, int]]]:
    return {w.pci: sorted((i.profile_id, i.start, len(i.compute)) for i in w.instances or ()) for w in wanted.gpus}


def there(node: Inventory) -> dict[str, list[tuple[int, int | None, int]]]:
    return {
        g.pci: sorted((i.profile_id, i.place.start, len(i.compute_instances)) for i in g.instances) for g in node.gpus
    }


@given(nodes())
def test_export_reads_back_as_the_same_geometry(node: Inventory) -> None:
    wanted = select(load(to_yaml(export(node)), "f"), "current", blank(node))
    assert wanted.failures == ()
    assert compute_names(node, wanted) == present(node)
    assert {w.pci: w.mig for w in wanted.gpus} == {g.pci: g.mig.enabled for g in node.gpus}


@given(nodes())
def test_native_export_reads_back_as_the_same_placed_geometry(node: Inventory) -> None:
    wanted = select(load(to_yaml(export_native(node, "x")), "f"), "x", blank(node))
    assert wanted.failures == ()
    assert placed(wanted) == there(node)
    assert compute_names(node, wanted) == present(node)


@given(nodes())
def test_checkpoint_restores_the_same_placed_geometry(node: Inventory) -> None:
    wanted = restore(msgspec.json.encode(checkpoint(node)).decode(), blank(node))
    assert wanted.failures == ()
    assert placed(wanted) == there(node)
    assert compute_names(node, wanted) == present(node)


@given(st.sampled_from(FAMILIES), st.data())
def test_every_name_of_a_family_means_itself(name: str, data: st.DataObject) -> None:
    family = catalog.family(name)
    profile = data.draw(st.sampled_from(family.profiles))
    found = match_profile(family, parse_instance_request(str(ProfileName.parse(profile.name)), 1, 1))
    assert found is not None
    assert (found.profile, found.compute) == (profile, profile.default_compute)
    assert match_profile(family, parse_instance_request(f"id:{profile.id}", 1, 1)) == found
    for compute in profile.compute:
        inner = match_profile(family, parse_instance_request(compute.name, 1, 1))
        assert inner is not None
        assert (inner.profile, inner.compute.compute_slices) == (profile, compute.compute_slices)
