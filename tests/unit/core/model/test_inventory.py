"""Display of names in an inventory that other programs chose."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Holder


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("python train.py", "process 7 (python train.py)"),
        ("x)\n0 kept, 0 to destroy", "process 7 (x)?0 kept, 0 to destroy)"),
        ("\x1b[2Jx\r\x9b", "process 7 (?[2Jx??)"),
        ("a\u202eb\u2028c", "process 7 (a?b?c)"),
        ("", "process 7"),
    ],
)
def test_a_holder_is_on_one_line_whatever_its_name(name: str, shown: str) -> None:
    assert str(Holder("process", "7", name)) == shown
