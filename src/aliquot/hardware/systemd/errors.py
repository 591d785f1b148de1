"""Errors of the communication with the host's systemd."""

from __future__ import annotations

from aliquot.errors import AliquotError, BlockedError


class NoSystemdError(BlockedError):
    """Services have to be stopped or started, and the host's systemd cannot be reached."""

    code = "NO_SYSTEMD"


class ServicesError(BlockedError):
    """A service of the host did not stop or start. ``details`` has a line for each; ``remaining`` names those that
    should run but do not.
    """

    code = "SERVICES"

    def __init__(
        self,
        brief: str,
        *,
        details: tuple[str, ...] = (),
        next_step: str | None = None,
        remaining: tuple[str, ...] = (),
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.remaining = remaining


class RebootError(BlockedError):
    """The host refused to reboot."""

    code = "REBOOT"


class BusError(AliquotError):
    """An error reply on the bus. ``name`` is D-Bus' own, such as ``org.freedesktop.systemd1.NoSuchUnit``."""

    code = "DBUS"
    exit_code = 20

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message or name)
        self.name = name

    @property
    def short(self) -> str:
        """The last word of the name."""
        return self.name.rpartition(".")[2]


class BusLostError(BusError):
    """The connection to the bus broke, or no answer came in time."""
