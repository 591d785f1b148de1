"""Findings about slot boards: their own lines are right, the order file is there, and pads cannot be requested."""

from __future__ import annotations

from typing import Any

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import node_line as nodeline
from aliquot.slurm.files import slot_board as board
from aliquot.slurm.files.managed_block import render_block
from unit.slurm.check.judging import CGROUP, SLURM, findings, rules
from unit.slurm.files.test_slot_board import node

LUA = f"{SLURM}JobSubmitPlugins=lua\nTaskProlog=/x\n"
CUT = node(("3g.20gb@0", "1g.5gb@4"), ())
PLAIN = "NodeName=n2 Name=gpu Type=a100 File=/dev/nvidia0\n"


def about(found: Inventory = CUT, *, head: str = LUA, order: str | None = "", more: str = "") -> dict[str, Any]:
    """Return the input of a check of node n1 with a slot board."""
    offered = board.slot_board(found)
    return {
        "nodes": f"NodeName=n1 Gres={nodeline.gres_value(offered)}\n{'NodeName=n2 Gres=gpu:a100:1' if more else ''}\n",
        "gres": render_block("n1", gres.lines("n1", offered)) + more,
        "head": head,
        "cgroup": CGROUP,
        "inventories": {"n1": found},
        "order_file": order,
        "apart": (),
    }


def test_nothing_is_wrong_with_a_board_and_its_order_file() -> None:
    assert rules(**about()) == []


def test_a_board_without_its_order_file_is_an_error() -> None:
    (found,) = findings(**about(order=None))
    assert (found.rule, found.nodes, found.severity) == ("SLOT_ORDER", ("n1",), "error")
    assert (
        "fake_gpus.conf does not exist: a slurmd that starts now numbers the slots of the node by type"
        in found.sentence
    )
    assert found.command == ": > /etc/slurm/fake_gpus.conf"
    (found,) = findings(**about(order="x"))
    assert "is not empty" in found.sentence


def test_the_order_file_is_an_error_for_a_node_that_is_no_board() -> None:
    (found,) = findings(**about(more=PLAIN))
    assert (found.rule, found.nodes) == ("SLOT_ORDER", ("n2",))
    (found,) = findings(**about(more=PLAIN, order=None))
    assert found.nodes == ("n1",)


def test_the_order_file_hides_the_gpus_that_another_node_detects() -> None:
    detects = "NodeName=n2 AutoDetect=nvml\n"
    (found,) = findings(**about(more=detects))
    assert (found.rule, found.nodes) == ("SLOT_ORDER", ("n2",))
    assert found.sentence.endswith("slurmd reads it in place of AutoDetect=nvml, and finds no GPU")
    assert [each.rule for each in findings(**about(more="NodeName=n2 AutoDetect=off\n"))] == ["COUNT_MISMATCH"]


def test_pads_that_jobs_can_request_are_reported() -> None:
    assert rules(**about(head=f"{SLURM}TaskProlog=/x\n")) == ["warning SLOT_PADS slurm.conf"]
    assert rules(**about(head=f"{SLURM}TaskProlog=/x\nCliFilterPlugins=lua\n")) == []


def test_a_missing_record_and_a_record_of_another_instance_are_found_as_on_other_nodes() -> None:
    given = about()
    lines = given["gres"].splitlines(keepends=True)
    fewer = {**given, "gres": "".join(line for line in lines if "slot005" not in line)}
    assert "error COUNT_MISMATCH slurm.conf:7" in rules(**fewer)
    other = {**given, "gres": given["gres"].replace("nvidia-cap12,", "nvidia-cap21,")}
    assert any(rule.startswith("error WRONG_MINOR") for rule in rules(**other))


def test_a_board_without_a_last_record_leaves_the_administrators_capabilities_open() -> None:
    given = about()
    open_ = given["gres"].replace("/dev/nvidia-caps/nvidia-cap[1-", "/dev/nvidia-caps/nvidia-cap[3-")
    assert any(rule.startswith("warning ADMIN_NOT_FENCED") for rule in rules(**{**given, "gres": open_}))
