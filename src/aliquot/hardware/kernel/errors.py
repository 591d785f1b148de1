"""Errors of the kernel's files in words: the errno, its path, what it means there, and the next step."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from aliquot.errors import AliquotError, HardwareError, InUseError, PermissionDeniedError

NVRM_CODES = (
    "the kernel log has the driver's own code (dmesg | grep -i nvrm): 0x38 invalid operation (wrong mode, or taken), "
    "0x40 invalid state (no place or no GPU instance for it), 0x56 not supported (another size than the GPU's vGPUs), "
    "0x1a insufficient resources (no more of that type), 0x17 in use"
)
"""RM status codes as the driver prints them (open-gpu-kernel-modules); sysfs shows all of them as EIO."""

CLIENTS = "nvidia-persistenced, dcgm, Aliquot's agent and every other monitor of the GPU is a client too"

_MEANING = {
    errno.EBUSY: "it is in use",
    errno.EACCES: "the caller may not do this",
    errno.EPERM: "the caller may not do this",
    errno.EROFS: "/sys is mounted read-only here",
    errno.ENOENT: "it does not exist (any more)",
    errno.ENODEV: "the device does not exist (any more), or its driver did not accept it",
    errno.ENXIO: "the device does not exist (any more)",
    errno.EINVAL: "the kernel does not accept that here",
    errno.EEXIST: "it exists already",
    errno.ENOSPC: "no capacity is left for it",
    errno.ERANGE: "the device cannot have that many",
    errno.EIO: "the driver refused it",
}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_TAKEN = (errno.EBUSY, errno.EEXIST)


def errno_name(failure: OSError) -> str:
    """Return the name of an errno, such as ``EBUSY``."""
    return errno.errorcode.get(failure.errno or 0, str(failure.errno))


def kernel_file_error(
    failure: OSError, attempt: str, path: str, meaning: Mapping[int, str] | None = None, following: str | None = None
) -> AliquotError:
    """Return the error for a refused read or write. ``attempt`` is a noun phrase that starts the sentence. ``meaning``
    explains an errno at this path, if that is more specific than the errno alone.
    """
    number = failure.errno or 0
    known = (meaning or {}).get(number) or _MEANING.get(number) or (os.strerror(number) if number else str(failure))
    brief = f"{attempt} failed: {known}"
    details: tuple[str, ...] = (f"{path}: {errno_name(failure)}",)
    if number == errno.EIO:
        details += (NVRM_CODES,)
    if number in _TAKEN:
        return InUseError(
            brief,
            details=details,
            next_step="see who holds it with aliquot show, end that work, then run the command again",
        )
    if number in _DENIED and not (meaning and number in meaning):
        return PermissionDeniedError(brief, details=details, next_step="run it as root, where /sys can be written")
    return HardwareError(brief, details=details, next_step=following or "aliquot show")
