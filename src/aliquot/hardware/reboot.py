"""Reboot of the host by its own program, for hosts whose init is not systemd or whose bus is not mounted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aliquot.errors import BlockedError

if TYPE_CHECKING:
    from aliquot.foundation.bounded_process import ProcessResult

TIMEOUT_S = 30.0
PROGRAMS = (("/usr/bin/systemctl", "reboot"), ("/bin/systemctl", "reboot"), ("/usr/sbin/reboot",), ("/sbin/reboot",))


class RebootRefusedError(BlockedError):
    """The host has no program to reboot with, or the program failed."""

    code = "REBOOT_REFUSED"


def reboot(root: str = "/", *, timeout_s: float = TIMEOUT_S, chroot: str = "chroot") -> str:
    """Run the first such program of the host whose root directory is ``root``, and return its name. Returns when the
    program ends, or after ``timeout_s`` seconds: it may be waiting for the reboot. Raises RebootRefusedError.
    """
    from aliquot.foundation import bounded_process

    found = next((p for p in PROGRAMS if os.access(os.path.join(root, p[0].lstrip("/")), os.X_OK)), None)
    if found is None:
        raise RebootRefusedError(
            f"the host at {root} has no program to reboot with ({', '.join(p[0] for p in PROGRAMS)})",
            next_step="reboot the host manually",
        )
    command = list(found) if os.path.realpath(root) == "/" else [chroot, root, *found]
    text = " ".join(found)
    try:
        # systemctl takes a chroot for an installation that is being prepared: it does nothing and reports success.
        environment = {**os.environ, "SYSTEMD_IGNORE_CHROOT": "1", "LC_ALL": "C"}
        result = bounded_process.run(command, timeout_s, env=environment)
    except TimeoutError:
        return text
    except OSError as failure:
        raise RebootRefusedError(
            f"{text} cannot be run on the host: {failure.strerror}", next_step="reboot the host manually"
        ) from failure
    _check_result(text, result)
    return text


def _check_result(text: str, result: ProcessResult) -> None:
    """Raise RebootRefusedError if the program failed or reported that it did nothing."""
    lines = tuple(line.strip() for line in (result.out + result.err).splitlines() if line.strip())
    if result.code:
        raise RebootRefusedError(
            f"{text} on the host ended with status {result.code}",
            details=lines[:8],
            next_step="reboot the host manually",
        )
    if any("ignoring" in line for line in lines):
        raise RebootRefusedError(
            f"{text} on the host did nothing", details=lines[:8], next_step="run the pod with hostPID"
        )
