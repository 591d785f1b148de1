"""The native format: what it can express, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.actions import Create
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from laws.oracle import compute_nodes, mig_nodes
from support.factory import inventory
from unit.core.config.helpers import counts, desired_for, faults_of, native

NODE = inventory("a100-sxm4-40gb*8")
MIXED = inventory("a100-sxm4-40gb*2", "a30", "tesla-t4")


def pcis(text: str, node: Inventory = NODE) -> list[int]:
    """Return the indexes of the GPUs that a text selects."""
    wanted = desired_for(text, node)
    assert wanted.failures == ()
    index = {gpu.pci: gpu.index for gpu in node.gpus}
    return [index[request.pci] for request in wanted.gpus]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ("all", list(range(8))),
        ("{index: 3}", [3]),
        ("{index: [7]}", [7]),
        ('{index: "0-3"}', [0, 1, 2, 3]),
        ("{index: 0-3}", [0, 1, 2, 3]),
        ("{index: [0, 4-5]}", [0, 4, 5]),
        ('{index: "0,2-3"}', [0, 2, 3]),
        ("{index: all}", list(range(8))),
        ("{pci: 0000:47:00.0}", [2]),
        ("{pci: 00000000:47:00.0}", [2]),
        ("{pci: [0000:07:00.0, 0000:BD:00.0]}", [0, 7]),
        ("{uuid: GPU-00000001-0000-4000-8000-00000000000f}", [1]),
        ("{product: A100-SXM4-40GB}", list(range(8))),
        ("{product: NVIDIA A100-SXM4-40GB, index: 1}", [1]),
        ("{product: [a30, a100-sxm4-40gb], index: 2}", [2]),
        ('{device-filter: "0x20B010DE", index: [0, 1]}', [0, 1]),
    ],
)
def test_selectors(gpus: str, expected: list[int]) -> None:
    assert pcis(native(f"gpus: {gpus}, mig: {{1g.5gb: 1}}")) == expected


def test_unquoted_pci_address_is_an_address() -> None:
    wanted = desired_for(
        "version: aliquot/v1\nconfigs:\n  c:\n  - gpus: {pci: 0000:08:00.0}\n    mig: disabled\n", NODE
    )
    assert [f.rule for f in wanted.failures] == ["NO_SUCH_GPU"]
    assert "0000:08:00.0" in wanted.failures[0].message


def test_device_filter_with_subsystem() -> None:
    board = msgspec.structs.replace(NODE.gpus[1], subsystem="0x134F10DE")
    node = msgspec.structs.replace(NODE, gpus=(NODE.gpus[0], board))
    text = native('gpus: {device-filter: "0x20B010DE:0x134F10DE"}, mig: disabled')
    assert pcis(text, node) == [1]


def test_counts_and_lists() -> None:
    (first, *_) = desired_for(native("gpus: all, mig: {3g.20gb: 1, id:19: 2}"), NODE).gpus
    assert counts(first) == {"3g.20gb": 1, "1g.5gb": 2}
    (only,) = desired_for(native('gpus: {index: 0}, mig: [3g.20gb@4, "1g.5gb*2", id:14@0]'), NODE).gpus
    assert only.mig is True
    assert [(i.name, i.start) for i in only.instances or ()] == [
        ("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", None), ("1g.5gb", None),
    ]  # fmt: skip


def test_disabled_and_empty() -> None:
    off, on = (desired_for(native(f"gpus: {{index: 0}}, mig: {mig}"), NODE).gpus[0] for mig in ("disabled", "{}"))
    assert (off.mig, off.instances) == (False, ())
    assert (on.mig, on.instances) == (True, ())


def test_compute_instances_one_by_one() -> None:
    text = native(
        "gpus: {index: 0}, mig: [{profile: 3g.20gb, placement: 4, compute: [1c.3g.20gb@2, 2c.3g.20gb@0]}, "
        "{profile: 1g.5gb, placement: 0:1, compute: []}]"
    )
    (request,) = desired_for(text, NODE).gpus
    wide, narrow = request.instances or ()
    assert (wide.start, wide.compute, wide.compute_starts) == (4, (0, 1), (2, 0))
    assert (narrow.start, narrow.compute) == (0, ())


def test_source_names_the_line() -> None:
    assert [w.source for w in desired_for(native("gpus: all, mig: disabled"), MIXED).gpus] == ["f:4:5"] * 3


REFUSED = [
    ("gpus: all", "one of mig, vgpu and passthrough"),
    ("mig: disabled", "lacks the key 'gpus'"),
    ("gpus: all, mig: disabled, vgpu: {}", "one of mig, vgpu and passthrough, not 2"),
    ("gpus: all, mig: disabled, migg: 1", "did you mean mig"),
    ("gpus: {}, mig: disabled", "'gpus' is empty"),
    ("gpus: 0, mig: disabled", "'gpus' must be all"),
    ("gpus: {gpu: 0}, mig: disabled", "unknown key 'gpu'"),
    ("gpus: {index: []}, mig: disabled", "lists no GPU"),
    ("gpus: {index: [0, 0]}, mig: disabled", "listed twice"),
    ("gpus: {index: 0-3-5}, mig: disabled", "not a list of GPU indexes"),
    ("gpus: {index: 3-1}, mig: disabled", "not a range"),
    ("gpus: {index: 0-9999}, mig: disabled", "not a range"),
    ("gpus: {index: 0-00000000010}, mig: disabled", "not a list"),
    ('gpus: {index: "0-3,2"}, mig: disabled', "more than once"),
    ("gpus: {index: -1}, mig: disabled", "a GPU index is a number"),
    ("gpus: {index: true}, mig: disabled", "a GPU index is a number"),
    ("gpus: {index: 1.5}, mig: disabled", "a GPU index is a number"),
    ("gpus: {pci: 08:00}, mig: disabled", "not a PCI address"),
    ("gpus: {pci: 480.0}, mig: disabled", "must be text"),
    ("gpus: {uuid: MIG-123}, mig: disabled", "is a MIG device"),
    ("gpus: {uuid: 123-x}, mig: disabled", "not a GPU's UUID"),
    ("gpus: {product: []}, mig: disabled", "lists nothing"),
    ("gpus: {device-filter: nope}, mig: disabled", "not a device filter"),
    ("gpus: all, mig: enabled", "'mig' must be disabled"),
    ("gpus: all, mig: ~", "'mig' must be disabled"),
    ("gpus: all, mig: {1g.5gb: 0}", "from 1 to 128, not 0"),
    ("gpus: all, mig: {1g.5gb: -2}", "from 1 to 128, not -2"),
    ("gpus: all, mig: {1g.5gb: 1.5}", "whole number"),
    ("gpus: all, mig: {1g.5gb: yes}", "whole number"),
    ("gpus: all, mig: {1g.5gb: 1, 1g.5gb: 1}", "written twice"),
    ("gpus: all, mig: {1g.5gb: 1, 01g.5gb: 1}", "already has"),
    ("gpus: all, mig: {3g.20gb@4: 2}", "at one placement"),
    ("gpus: all, mig: {id:x: 2}", "a profile id is a number"),
    ("gpus: all, mig: [1g.5bg]", "did you mean 1g.5gb"),
    ("gpus: all, mig: [3g.20gb@x]", "after @ comes"),
    ('gpus: all, mig: ["1g.5gb*0"]', "the count must be"),
    ("gpus: all, mig: [1g.5gb*0000001280000]", "the count must be"),
    ("gpus: all, mig: [7]", "a request must be text"),
    ("gpus: all, mig: [{placement: 3}]", "lacks the key 'profile'"),
    ("gpus: all, mig: [{profile: 1g.5gb, count: 3}]", "unknown key 'count'"),
    ("gpus: all, mig: [{profile: 1g.5gb, placement: [1]}]", "'placement' is"),
    ("gpus: all, mig: [{profile: 3g.20gb, compute: 1c.3g.20gb}]", "'compute' must be a list"),
    ("gpus: all, mig: [{profile: 3g.20gb, compute: [1c.3g.20gb@0, 1c.3g.20gb]}]", "of every compute instance"),
]


def test_a_count_without_a_space_after_the_colon() -> None:
    (line,) = faults_of(native("gpus: all, mig: {1g.5gb:2, 3g.20gb: 1}"))
    assert line.endswith("'1g.5gb:2' needs a space after the colon: write 1g.5gb: 2")


@pytest.mark.parametrize(("entry", "words"), REFUSED)
def test_refused(entry: str, words: str) -> None:
    found = faults_of(native(entry))
    assert any(words in line for line in found), found
    assert all(line.startswith("4:") for line in found)


def test_file_level_faults() -> None:
    assert "'configs' is missing" in faults_of("version: aliquot/v1\n")[0]
    assert "at least one named config" in faults_of("version: aliquot/v1\nconfigs: {}\n")[0]
    assert "did you mean configs" in faults_of("version: aliquot/v1\nconfig: {}\n")[-1]


def test_certain_overlap_is_a_fault_of_the_file() -> None:
    (line,) = faults_of(native("gpus: {index: 0-3}, mig: disabled", "gpus: {index: 3}, mig: {1g.5gb: 1}"))
    assert line == "5:5: this entry and the one in line 4 request different states of the same GPU"


def test_a_fault_quotes_no_more_than_it_must() -> None:
    (line,) = faults_of(native(f"gpus: all, mig: [{'9' * 100_000}g.5gb]"))
    assert len(line) < 500


def test_at_least() -> None:
    (first, *others) = desired_for(native("gpus: all, mig: {at-least: {3g.20gb: 1, 1g.5gb: 2}}"), NODE).gpus
    assert (first.mig, counts(first), len(others)) == (True, {"3g.20gb": 1, "1g.5gb": 2}, 7)
    (placed,) = desired_for(native("gpus: {index: 0}, mig: {at-least: [3g.20gb@4, 1g.5gb]}"), NODE).gpus
    assert [(i.name, i.start) for i in placed.instances or ()] == [("3g.20gb", 4), ("1g.5gb", None)]


@pytest.mark.parametrize(
    ("mig", "fault"),
    [
        ("{at-least: disabled}", "'at-least' must be a mapping of counts or a list, not disabled"),
        ("{at-least: {1g.5gb: 0}}", "the count of '1g.5gb' must be from 1 to 128, not 0"),
        ("{at-least: {1g.5gb: 1}, 3g.20gb: 1}", "unknown key '3g.20gb' in 'mig' beside 'at-least'"),
        ("{at-least: 3}", "'mig' must be disabled, a mapping of counts or a list, not the number 3"),
    ],
)
def test_at_least_that_cannot_be_read(mig: str, fault: str) -> None:
    (line,) = faults_of(native(f"gpus: all, mig: {mig}"))
    assert fault in line


def test_at_least_and_exactly_are_different_things() -> None:
    entries = ("gpus: {index: 0}, mig: {at-least: {1g.5gb: 1}}", "gpus: {index: 0}, mig: {1g.5gb: 1}")
    (line,) = faults_of(native(*entries))
    assert "request different states of the same GPU" in line


def test_what_is_there_counts_for_at_least() -> None:
    # Contents count: a 3g.20gb that is shared or at another place than requested does not.
    family = catalog.family("a100-40gb")
    now = {("3g.20gb", 0): frozenset({("1c.3g.20gb", 0)}), ("1g.5gb", 4): frozenset({("1g.5gb", 0)})}
    node = mig_nodes.node(compute_nodes.gpu(family, now))
    for mig, created in (
        ("{1g.5gb: 1}", []),
        ("{1g.5gb: 2}", ["1g.5gb"]),
        ("[1g.5gb@4]", []),
        ("[1g.5gb@5, 1g.5gb]", ["1g.5gb"]),
        ("{1c.3g.20gb: 1}", []),
        ("{}", []),
    ):
        request = desired_for(native(f"gpus: all, mig: {{at-least: {mig}}}"), node)
        made = [action.profile for action in plan(node, request).actions if isinstance(action, Create)]
        assert (made, request.failures) == (created, ()), mig
    (failure,) = desired_for(native("gpus: all, mig: {at-least: {3g.20gb: 1}}"), node).failures
    assert "has no room for 3g.20gb:1 beside what is there; it fits once 1g.5gb:1 is removed" in failure.message
