"""The kernel's refusals in words: an errno, where it came from, what it means there and what to do."""

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

CLIENTS = "nvidia-persistenced, dcgm and every other monitor of the GPU is a client too"

_MEANING = {
    errno.EBUSY: "something is using it",
    errno.EACCES: "the caller may not do this",
    errno.EPERM: "the caller may not do this",
    errno.EROFS: "/sys is mounted read-only here",
    errno.ENOENT: "it is not there (any more)",
    errno.ENODEV: "the device is not there (any more), or its driver did not take it",
    errno.ENXIO: "the device is not there (any more)",
    errno.EINVAL: "the kernel does not accept that here",
    errno.EEXIST: "it exists already",
    errno.ENOSPC: "there is no room left for it",
    errno.ERANGE: "the device cannot have that many",
    errno.EIO: "the driver refused it",
}
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_TAKEN = (errno.EBUSY, errno.EEXIST)


def errno_name(failure: OSError) -> str:
    """``EBUSY`` for errno 16."""
    return errno.errorcode.get(failure.errno or 0, str(failure.errno))


def kernel_file_error(
    failure: OSError, attempt: str, path: str, meaning: Mapping[int, str] | None = None, following: str | None = None
) -> AliquotError:
    """The error for one refused read or write. ``attempt`` is a noun phrase that starts the sentence; ``meaning`` says
    what an errno stands for at this path, where that is more than the errno itself tells.
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
