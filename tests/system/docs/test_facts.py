"""Handwritten pages name what the code has: versions, GPU families, reasons and codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from aliquot.core.model.driver_branches import FLOOR
from contract.test_driver_branches import VERSIONS

from .pages import HOUSE

SUPPORT = HOUSE / "docs/support.md"
TROUBLESHOOTING = HOUSE / "docs/troubleshooting.md"


def source(folder: str) -> str:
    """Return all modules of a folder as one text."""
    return "\n".join(path.read_text() for path in sorted((HOUSE / folder).rglob("*.py")))


_SOURCE = source("src/aliquot")
_FAILURE = re.compile(r'(?:ConfigFailure|failure_of|DriverPodLookup)\(\s*(?:None,|error,)?\s*"([A-Z]\w+)"')
_CODE = re.compile(r"`(?:(?:blocked|error)\[)?([A-Z][A-Z_]{3,}|(?:[A-Z][a-z]+){2,}|Held|Locked|Drift|Undone)\]?`")


def section(path: Path, heading: str) -> str:
    """Return the text of one section of the second order."""
    found = path.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    assert found, f"{path.name} has no section {heading!r}"
    return found


def first_cells(text: str) -> Iterator[str]:
    """Yield the first cell of each row of each table, without heads and rules."""
    for line in text.splitlines():
        cell = re.match(r"\| ((?:\\\||[^|])+) \|", line)
        if cell and set(cell[1]) != {"-"}:
            yield cell[1]


def in_source(code: str) -> bool:
    """Report whether the source has a code or reason. It may be a planner rule: ``NoIommu`` is ``NO_IOMMU``."""
    rule = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", code).upper()
    return f'"{code}"' in _SOURCE or f'"{rule}"' in _SOURCE


def test_the_drivers_are_those_of_the_test() -> None:
    text = section(SUPPORT, "Driver")
    assert tuple(re.findall(r"^\| (\d+\.\d+\.\d+) \|", text, re.MULTILINE)) == VERSIONS
    assert f"R{FLOOR}" in text


def test_every_family_and_count_of_the_catalog_is_named() -> None:
    text = section(SUPPORT, "GPUs")
    table = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    families = [path.stem for path in (HOUSE / "catalog/mig").glob("*.yaml")]
    assert sorted(re.findall(r"`([^`]+)`", table)) == sorted(families)
    vgpu = len(list((HOUSE / "catalog/vgpu").glob("*.yaml")))
    assert f"{len(families)} families" in text
    assert f"{vgpu} GPUs" in text


def test_every_reason_of_a_failure_is_in_troubleshooting() -> None:
    reasons = set(_FAILURE.findall(source("src/aliquot/kubernetes")))
    assert len(reasons) > 25
    text = TROUBLESHOOTING.read_text()
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in text] == []


def test_every_code_in_troubleshooting_is_in_the_source() -> None:
    codes = {code for cell in first_cells(TROUBLESHOOTING.read_text()) for code in _CODE.findall(cell)}
    codes -= {"InvalidImageName", "UnexpectedAdmissionError", "CUDA_VISIBLE_DEVICES"}  # codes of Kubernetes and CUDA
    assert len(codes) > 100
    assert [code for code in sorted(codes) if not in_source(code)] == []


def test_a_code_that_nothing_has_is_not_in_the_source() -> None:
    assert in_source("NoIommu")
    assert in_source("HELD")
    assert not in_source("NoSuchReasonAtAll")
