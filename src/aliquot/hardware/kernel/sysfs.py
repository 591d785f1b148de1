"""Reading attributes: one that is not there is an answer, one that says nonsense names its file."""

from __future__ import annotations

import errno

from aliquot.hardware.kernel_files import KernelFiles

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV})
"""What the kernel answers where there is no such thing: ENXIO for ``gpu_instance_id`` and ``placement_id`` of a
virtual function without a vGPU (kernel/hypeman, on real hosts).
"""


class MalformedError(ValueError):
    """An attribute that says what nobody understands."""


def is_absent(failure: OSError) -> bool:
    """Whether a failure means that there is no such thing."""
    return failure.errno in _ABSENT


def read_optional(files: KernelFiles, path: str) -> str | None:
    """The stripped text of an attribute, None where there is none. Raises OSError otherwise."""
    try:
        return files.read(path).strip()
    except OSError as failure:
        if is_absent(failure):
            return None
        raise


def read_number(files: KernelFiles, path: str) -> int | None:
    """An attribute that is a number, decimal or with 0x. None where there is none; raises MalformedError."""
    text = read_optional(files, path)
    if not text:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise MalformedError(f"{path} says {text[:40]!r}, which is no number") from None


def read_count(files: KernelFiles, path: str) -> int:
    """A number that stands for none where there is no such attribute. One that is there and says nothing is no zero: by
    it something that runs would be taken for gone. Raises MalformedError.
    """
    found = read_number(files, path)
    if found is None and read_optional(files, path) is not None:
        raise MalformedError(f"{path} says nothing")
    return found or 0


def list_names(files: KernelFiles, path: str) -> tuple[str, ...]:
    """The entries of a folder; none where there is no folder."""
    try:
        return files.names(path)
    except OSError as failure:
        if is_absent(failure):
            return ()
        raise


def link_target(files: KernelFiles, path: str) -> str:
    """The last part of where a link points (``nvidia`` for ``../../bus/pci/drivers/nvidia``); empty without a link."""
    try:
        return files.link(path).rpartition("/")[2]
    except OSError as failure:
        if is_absent(failure) or failure.errno == errno.EINVAL:  # EINVAL: there is something, but it is no link
            return ""
        raise
