"""Reading of sysfs attributes. A missing attribute is a valid result; a malformed one raises an error with its path."""

from __future__ import annotations

import errno

from aliquot.hardware.kernel_files import KernelFiles

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV})
"""Errnos of an attribute that does not exist: ENXIO for ``gpu_instance_id`` and ``placement_id`` of a virtual function
without a vGPU (kernel/hypeman, on real hosts).
"""


class MalformedError(ValueError):
    """An attribute with malformed content."""


def is_absent(failure: OSError) -> bool:
    """Return whether a failure means that the attribute does not exist."""
    return failure.errno in _ABSENT


def read_optional(files: KernelFiles, path: str) -> str | None:
    """Return the stripped text of an attribute, None if it does not exist. Raises OSError otherwise."""
    try:
        return files.read(path).strip()
    except OSError as failure:
        if is_absent(failure):
            return None
        raise


def read_number(files: KernelFiles, path: str) -> int | None:
    """Return the value of a numeric attribute, decimal or with 0x; None if it does not exist. Raises MalformedError."""
    text = read_optional(files, path)
    if not text:
        return None
    try:
        return int(text, 0)
    except ValueError:
        raise MalformedError(f"{path} says {text[:40]!r}, which is not a number") from None


def read_count(files: KernelFiles, path: str) -> int:
    """Return the value of a numeric attribute, 0 if it does not exist. An empty attribute is not 0, because then a
    running vGPU would be taken for gone. Raises MalformedError.
    """
    found = read_number(files, path)
    if found is None and read_optional(files, path) is not None:
        raise MalformedError(f"{path} is empty")
    return found or 0


def list_names(files: KernelFiles, path: str) -> tuple[str, ...]:
    """Return the entries of a directory; none if it does not exist."""
    try:
        return files.names(path)
    except OSError as failure:
        if is_absent(failure):
            return ()
        raise


def link_target(files: KernelFiles, path: str) -> str:
    """Return the last part of a link's target (``nvidia`` for ``../../bus/pci/drivers/nvidia``), or
    "" without a link.
    """
    try:
        return files.link(path).rpartition("/")[2]
    except OSError as failure:
        if is_absent(failure) or failure.errno == errno.EINVAL:  # EINVAL: it exists, but it is not a link
            return ""
        raise
