"""An orderly reboot of the host: pods are notified (kubelet listens to logind), services stop, disks are synced.

``org.freedesktop.systemd1.Manager.Reboot`` is not used: it reboots at once without stopping anything
(org.freedesktop.systemd1(5)).
"""

from __future__ import annotations

from aliquot.hardware.systemd.bus import ABSENT, Bus, open_bus, reachable
from aliquot.hardware.systemd.errors import BusError, BusLostError, NoSystemdError, RebootError

LOGIND = "org.freedesktop.login1"
_ABSENT = (*ABSENT, "UnknownMethod", "UnknownInterface", "UnknownObject")


async def reboot(root: str = "/") -> str:
    """Ask the host whose root directory is ``root`` to reboot. Return who accepted the request: logind, else systemd
    itself. Returns before the host goes down. Raises NoSystemdError without a systemd on the host, and RebootError with
    the inhibitors if it refuses.
    """
    if not reachable(root):
        raise NoSystemdError(
            f"the host at {root} runs no systemd that could reboot it", next_step="reboot the host manually"
        )
    async with open_bus(root) as bus:
        try:
            await bus.call(
                "Reboot", "b", False, to=LOGIND, path="/org/freedesktop/login1", interface=f"{LOGIND}.Manager"
            )
            return "logind"
        except BusLostError:
            return "logind"  # it went down before it answered
        except BusError as error:
            if error.short not in _ABSENT:
                raise await _refused(bus, error) from error
        try:
            await bus.call("StartUnit", "ss", "reboot.target", "replace-irreversibly")
        except BusLostError:
            return "systemd"
        except BusError as error:
            if error.short in _ABSENT:
                raise NoSystemdError(f"neither logind nor systemd is on the host's bus at {root}") from error
            raise await _refused(bus, error) from error
        return "systemd"


async def _refused(bus: Bus, error: BusError) -> RebootError:
    return RebootError(
        f"the host refuses to reboot: {error.brief}", details=await _inhibitors(bus), next_step="systemd-inhibit --list"
    )


async def _inhibitors(bus: Bus) -> tuple[str, ...]:
    """Return a line for each inhibitor that blocks a shutdown."""
    try:
        (found,) = await bus.call(
            "ListInhibitors", to=LOGIND, path="/org/freedesktop/login1", interface=f"{LOGIND}.Manager"
        )
    except BusError:
        return ()
    return tuple(
        f"{who} (process {pid}) blocks it: {why}"
        for what, who, why, mode, _, pid in found
        if "shutdown" in what.split(":") and mode.startswith("block")
    )
