"""Manual steps of a change."""

from __future__ import annotations

import pytest

from aliquot.slurm.check.api import check
from aliquot.slurm.check.finding import CheckInput
from aliquot.slurm.conf.statements import ConfSource

PAGE = """\
To change the layout of compute-01:
1. Drain it: `scontrol update NodeName=compute-01 State=DRAIN`
2. Wait, then `sudo nvidia-smi mig -i 0 -dgi` and `sudo nvidia-smi mig -i 0 -cgi 9,9 -C`
3. Write the files, then `sudo systemctl restart slurmd`
4. `scontrol update NodeName=compute-01 State=RESUME`
"""


def found(text: str) -> list[str]:
    return [
        f"{f.location.line} {f.rule}"
        for f in check(CheckInput("", scripts=(ConfSource("page.md", text),)))
        if f.location
    ]


def test_the_seed_documents_steps() -> None:
    assert found(PAGE) == ["2 NO_REASON", "3 INSTANCE_IN_USE", "4 SLURMD_ALONE"]


@pytest.mark.parametrize(
    "text",
    [
        "scontrol update nodename=n1 state=drain reason='new layout'",
        "scontrol update nodename=n1 \\\n  state=drain \\\n  reason=mig",
        "# scontrol update nodename=n1 state=drain",
        "scontrol update partitionname=gpu state=down",
        "scontrol update nodename=n1 state=resume",
        "systemctl restart slurmd\nscontrol reconfigure",
        "systemctl restart slurmd\nssh ctl systemctl restart slurmctld",
        "systemctl restart --no-block slurmctld",
        "nvidia-smi mig -i 0 -dci\nnvidia-smi mig -i 0 -dgi",
        "nvidia-smi mig -dci && nvidia-smi mig -dgi",
    ],
)
def test_right_steps(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scontrol -v update State=DOWN NodeName=n1 Reason=", ["1 NO_REASON"]),
        ("if x; then \\\n scontrol update node=n1 state=drain; fi", ["1 NO_REASON"]),
        ("service slurmd restart", ["1 SLURMD_ALONE"]),
        ("systemctl --quiet restart munge slurmd", ["1 SLURMD_ALONE"]),
        ("nvidia-smi mig --destroy-gpu-instance\n", ["1 INSTANCE_IN_USE"]),
    ],
)
def test_wrong_steps(text: str, expected: list[str]) -> None:
    assert found(text) == expected
