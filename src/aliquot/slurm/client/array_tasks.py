"""The waiting tasks of a job array, as Slurm writes them: ``1-16``, ``0-20:4``, ``1,3,7-9%4``."""

from __future__ import annotations

import re

_PART = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def task_count(text: str) -> int:
    """Count the tasks of a list; 0 for other text.

    Slurm may end a long list with ``...``, and then the count is the least number. Slurm's programs do not with
    ``SLURM_BITSTR_LEN=0``.
    """
    total = 0
    for part in text.partition("%")[0].split(","):
        match = _PART.fullmatch(part)
        if match:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            total += max(0, (last - first) // max(1, step) + 1)
    return total
