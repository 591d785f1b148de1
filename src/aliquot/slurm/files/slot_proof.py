"""The proof that a new slot board keeps every running job: what slurmd reads from the files, before and after. Pure.

Slurm's order of records is undocumented, so no change relies on it. ``slurmd -G`` lists the records as slurmd itself
numbers them, and two lists show whether a running job keeps its index, its type and its files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from aliquot.slurm.files.slot_board import PAD, records
from aliquot.slurm.files.slurmd_validation import ParsedFiles


def unproved_order(lines: Sequence[str], parsed: ParsedFiles) -> tuple[str, ...]:
    """Return why slurmd does not number the lines of a board by slot, as sentences; () if it does."""
    expected = records(lines)
    if len(parsed.devices) != len(expected):
        return (f"slurmd reads {len(parsed.devices)} records, not {len(expected)}",)
    found = []
    for slot, (ours, (kind, _, files)) in enumerate(zip(expected, parsed.devices, strict=True)):
        if (kind, files) != ours:
            what = f"slurmd reads {kind or 'no type'} ({files[0]}) at index {slot}"
            found.append(f"{what}, where slot {slot} is of type {ours[0]}")
    return tuple(found)


def broken_jobs(before: ParsedFiles, after: ParsedFiles, busy: Collection[int]) -> tuple[str, ...]:
    """Return why the change from one list of records to another would harm running jobs, as sentences.

    ``busy`` are the indices of records that jobs have. Their type and files must stay, and so must the total: Slurm
    kills jobs if it changes. The last record may only be busy if it stays, because its job can open its files.
    """
    if len(before.devices) != len(after.devices):
        return (f"the node has {len(before.devices)} records, and would have {len(after.devices)}",)
    return tuple(_changes(before, after, busy))


def _changes(before: ParsedFiles, after: ParsedFiles, busy: Collection[int]) -> Iterator[str]:
    for index in sorted(busy):
        if index >= len(before.devices):
            yield f"a job has record {index}, which slurmd does not have"
        elif before.devices[index] != after.devices[index]:
            old, new = before.devices[index][0], after.devices[index][0]
            what = "it has the unused capabilities" if old == new == PAD else f"it would be of type {new}"
            yield f"a job has slot {index} ({old}): {what}"
