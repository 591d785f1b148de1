"""XIDs that count, by the two variables of NVIDIA's device plugin, and the devices that they concern."""

from __future__ import annotations

import pytest

from aliquot.core.model.xids import APPLICATION, Xid, policy, unhealthy
from support.factory import inventory, with_instances


@pytest.mark.parametrize(
    ("disable", "enable", "counting", "passed_over"),
    [
        ("", "", {48, 79, 95}, set(APPLICATION)),
        ("48", "", {79}, {48, 13}),
        (" 48 , 79", "", {95}, {48, 79, 31}),
        ("all", "", set(), {48, 13}),
        ("XIDS", "", set(), {48, 13}),
        ("48,all", "", set(), {79}),
        ("all", "48", {48}, {79, 13}),
        ("", "13", {13, 48}, {31}),
        ("48", "48", {48}, {13}),
        ("48", "all", {48, 13}, set()),
        ("all", "xids", {48, 13}, set()),
    ],
)
def test_the_variables(disable: str, enable: str, counting: set[int], passed_over: set[int]) -> None:
    found, wrong = policy({"DP_DISABLE_HEALTHCHECKS": disable, "DP_ENABLE_HEALTHCHECKS": enable})
    assert wrong == ()
    assert all(found.counts(code) for code in counting)
    assert not any(found.counts(code) for code in passed_over)
    assert found.off == (not counting)


def test_words_that_are_no_numbers_are_reported() -> None:
    found, wrong = policy({"DP_DISABLE_HEALTHCHECKS": "48,many,-1", "DP_ENABLE_HEALTHCHECKS": "xid"})
    assert not found.counts(48)
    assert [text.split("'")[1] for text in wrong] == ["many", "-1", "xid"]
    found, wrong = policy({"DP_DISABLE_HEALTHCHECKS": f"48,\u00b2,{'9' * 5000}"})
    assert not found.counts(48)
    assert [text.split("'")[1] for text in wrong] == ["\u00b2", "9" * 20]


def test_whom_an_xid_concerns() -> None:
    node = with_instances(inventory("a100-sxm4-40gb*2"), 0, "3g.20gb@0:1c.3g.20gb;2c.3g.20gb", "3g.20gb@4")
    pci, other = (g.pci for g in node.gpus)
    assert unhealthy([Xid(pci, 79)], node) == {node.gpus[0].uuid}
    assert unhealthy([Xid(pci, 95, 1)], node) == {"MIG-1-0", "MIG-1-1"}
    assert unhealthy([Xid(pci, 95, 1, 1), Xid(pci, 95, 2, 0)], node) == {"MIG-1-1", "MIG-2-0"}
    assert unhealthy([Xid(pci, 95, 9), Xid(other, 95, 1), Xid("0000:ff:00.0", 79)], node) == set()


def test_an_xid_in_words() -> None:
    assert str(Xid("0000:07:00.0", 95, 7, 0)) == "XID 95 on 0000:07:00.0, GPU instance 7, compute instance 0"
