"""Files that request vGPUs: every type reads as itself, a written request reads back, and any text is either read or
refused.
"""

from __future__ import annotations

import contextlib
import shlex
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.cli.command_table import ROOT
from aliquot.cli.framework import desired_args
from aliquot.cli.framework.parser import arguments, find
from aliquot.core.config.formats.vgpu_device_manager import product_of_type
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.load import load
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.config.select.named_config import select
from aliquot.core.config.text.vgpu_request import parse_vgpu_request
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.errors import ConfigError
from unit.core.config.vgpu_nodes import board, node

TABLES = vgpu.tables()


def of(table: VgpuTable) -> Inventory:
    return msgspec.structs.replace(node(), gpus=(board(table),))


@st.composite
def requests(draw: st.DrawFn) -> tuple[VgpuTable, list[tuple[VgpuType, int]], bool]:
    """Draw types of one kind that one product has, with counts, and whether in mixed-size mode."""
    table = draw(st.sampled_from([t for t in TABLES if any(each.id is not None for each in t.types)]))
    makable = [t for t in table.types if t.id is not None]
    first = draw(st.sampled_from(makable))
    mixed = table.mixed_size and table.sriov and not first.mig_backed and draw(st.booleans())
    alike = [t for t in makable if t.kind == first.kind and (mixed or first.mig_backed or t.fb_mib == first.fb_mib)]
    chosen = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=4, unique_by=lambda t: t.name))
    return table, [(each, draw(st.integers(1, 64))) for each in chosen], mixed


@given(requests(), st.data())
def test_a_written_request_is_read_back(
    drawn: tuple[VgpuTable, list[tuple[VgpuType, int]], bool], data: st.DataObject
) -> None:
    table, counts, mixed = drawn
    gpus = of(table)
    short = data.draw(st.booleans())
    named = {t.short if short and table.by_name.get(t.short) is t else t.name: n for t, n in counts}
    entry: dict[str, object] = {"gpus": "all", "vgpu": named} | ({"mixed-size": True} if mixed else {})
    filed = select(load(to_yaml({"version": "aliquot/v1", "configs": {"c": [entry]}}), "f"), None, gpus)
    text = ",".join(f"{name}:{n}" for name, n in named.items())
    typed = adhoc(["0"], [], gpus, vgpu=[text], mixed_size=True if mixed else None)
    assert filed.failures == typed.failures == ()
    (one,), (other,) = filed.gpus, typed.gpus
    assert msgspec.structs.replace(one, source="") == msgspec.structs.replace(other, source="")
    assert Counter((v.type_id, v.type) for v in one.vgpus or ()) == {(t.id, t.name): n for t, n in counts}
    instances = sum(-(-n // t.per_instance) for t, n in counts) if counts[0][0].mig_backed else 0
    assert len(one.instances or ()) <= instances
    assert bool(one.instances) == counts[0][0].mig_backed
    if all(product_of_type(t.short) for t, _ in counts) and not mixed:
        theirs = {"devices": "all", "vgpu-devices": {t.short: n for t, n in counts}}
        again = select(load(to_yaml({"version": "v1", "vgpu-configs": {"c": [theirs]}}), "f"), None, gpus)
        assert Counter(again.gpus[0].vgpus or ()) == Counter(one.vgpus or ())


@given(requests())
def test_a_typed_request_is_printed_so_that_it_can_be_typed(
    drawn: tuple[VgpuTable, list[tuple[VgpuType, int]], bool],
) -> None:
    table, counts, mixed = drawn
    text = ",".join(f"{t.name}*{n}" for t, n in counts)
    words = ["plan", "--gpu", "0", "--vgpu", text, *(["--mixed-size"] if mixed else [])]
    args = arguments(find(ROOT, words))
    printed = desired_args.command_line(args, "apply")
    assert printed is not None
    again = arguments(find(ROOT, shlex.split(printed)[1:]))
    assert desired_args.read(again, None, of(table)) == desired_args.read(args, None, of(table))


NAMES = st.one_of(
    st.sampled_from(sorted({name for t in TABLES for each in t.types for name in (each.name, each.short)})),
    st.text(max_size=12),
    st.sampled_from(["A2-4Q", "NVIDIA A2-4Q", "A100X-1-5C", "DC-1-24QGFX", "none"]),
)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 70), st.text(max_size=6), st.just("none"), st.just("all"))
SHARES = st.one_of(st.dictionaries(NAMES, VALUES, max_size=3), VALUES, st.lists(VALUES, max_size=2))
NATIVE = st.dictionaries(st.sampled_from(["gpus", "vgpu", "mixed-size", "passthrough", "mig"]), SHARES, max_size=4)
THEIRS = st.dictionaries(st.sampled_from(["devices", "device-filter", "vgpu-devices"]), SHARES, max_size=3)


@given(st.lists(NATIVE, max_size=3), st.lists(THEIRS, max_size=3), st.sampled_from(TABLES), st.booleans())
def test_a_file_is_read_or_refused(
    ours: list[dict[str, object]], theirs: list[dict[str, object]], table: VgpuTable, compat: bool
) -> None:
    documents = [{"version": "aliquot/v1", "configs": {"c": ours}}, {"version": "v1", "vgpu-configs": {"c": theirs}}]
    for document in documents:
        with contextlib.suppress(ConfigError):
            wanted = select(load(msgspec.json.encode(document).decode(), "f", compat=compat), None, of(table))
            assert all(w.vgpus is None or all(v.type_id in table.by_id for v in w.vgpus) for w in wanted.gpus)


@given(NAMES, st.integers(1, 64))
def test_a_count_is_read_back(name: str, count: int) -> None:
    plain = " ".join(name.split())
    # A bare number is refused: it might be the id of a type.
    if plain and not plain.isdigit() and not set(plain) & set("*:,"):
        assert (parse_vgpu_request(f"{name}*{count}", 1).name, parse_vgpu_request(f"{name}:{count}", 1).count) == (
            plain,
            count,
        )
