"""Verdicts on drivers and modes."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model import driver_branches
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.inventory import Gpu, Inventory, Mig, MigMode


def gpu(index: int = 0, *, current: MigMode = "disabled", pending: MigMode | None = None, **facts: object) -> Gpu:
    made = Gpu(
        pci=f"0000:{index:02x}:00.0",
        uuid="",
        index=index,
        product="NVIDIA H100 80GB HBM3",
        family="h100-80gb-sxm",
        mig=Mig(True, current, pending or current),
    )
    return msgspec.structs.replace(made, **facts)


def messages(driver: str, *gpus: Gpu) -> str:
    return "\n".join(drivers.verdicts(Inventory(node="n", gpus=gpus, driver=driver)))


def test_a_healthy_node_has_none() -> None:
    assert messages("580.65.06", gpu(), gpu(1, current="enabled")) == ""


@pytest.mark.parametrize("driver", drivers.BAD_WITH_MIXED_MODES)
def test_known_bad_drivers_with_mixed_modes(driver: str) -> None:
    assert "570.86.15" in messages(driver, gpu(), gpu(1, current="enabled"))
    assert messages(driver, gpu(), gpu(1)) == ""
    assert messages(driver, gpu(current="enabled"), gpu(1, current="enabled")) == ""


def test_the_good_driver_is_good() -> None:
    assert messages(drivers.GOOD_INSTEAD, gpu(), gpu(1, current="enabled")) == ""


def test_535_lists_nothing_while_mig_mode_is_off() -> None:
    assert "535.183.01" in messages("535.183.01", gpu())
    assert messages("535.183.01", gpu(current="enabled")) == ""


def test_older_than_the_family_needs() -> None:
    assert "needs driver" in messages("515.86.01", gpu())


def test_older_than_the_floor() -> None:
    assert "R470" in messages("460.32.03", gpu(family="a100-40gb"))


def test_pending_modes() -> None:
    assert "reset" in messages("580.65.06", gpu(pending="enabled"))
    assert "reboot" in messages("580.65.06", gpu(pending="enabled", resettable=False))


def test_lost_and_tableless() -> None:
    assert "fallen off the bus" in messages("580.65.06", gpu(lost=True))
    assert "no geometry table" in messages("580.65.06", gpu(current="enabled", family=None))


@pytest.mark.parametrize(
    ("version", "minimum", "expected"),
    [
        ("570.86.15", "570.86.16", True),
        ("570.86.15", "570.86.15", False),
        ("525.60.13", "R525", False),
        ("470.57.02", "R525", True),
        ("", "R525", False),
        ("570.86", None, False),
        ("570.86.abc", "571", True),
        ("460.73.01-grid", "470", True),
        ("unknown", "571", False),
        ("1000.1", "999.9", False),
    ],
)
def test_versions_compare_as_numbers(version: str, minimum: str | None, expected: bool) -> None:
    assert driver_branches.older(version, minimum) is expected
