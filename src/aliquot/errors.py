"""The hierarchy of errors. Each says what is wrong, where, which rule or holder, and the next command to type.

The class sets the exit code:

- 1 internal error
- 2 invalid input
- 20 blocked: valid, but cannot be applied here or now
- 30 drift
- 40 the hardware refused
- 128 + N stopped by signal N
"""

from __future__ import annotations

from typing import NamedTuple

_NEXT = " | next: "


class Message(NamedTuple):
    """A sentence and the next step: a command to type, or "". Its text is one line, the wire format of conditions,
    events and annotations.
    """

    sentence: str
    next_step: str = ""

    @classmethod
    def parse(cls, line: str) -> Message:
        """Parse a line that another process, or an earlier one, wrote. Within a process pass the value instead."""
        sentence, _, step = line.partition(_NEXT)
        return cls(sentence, step)

    def __str__(self) -> str:
        return f"{self.sentence}{_NEXT}{self.next_step}" if self.next_step else self.sentence

    def cut(self, limit: int) -> Message:
        """Return a message whose line has at most ``limit`` characters."""
        line = str(self)
        if len(line) <= limit:
            return self
        room = limit - 1 - len(self.sentence) - len(_NEXT)
        return Message(line[: limit - 1] + "…") if room < 0 else Message(self.sentence, self.next_step[:room] + "…")


class AliquotError(Exception):
    """Base of every error that a user may see.

    ``brief`` is one sentence; ``details`` are more lines; ``next_step`` is a command to type or another action.
    ``code`` names the rule of a single case, where its class stands for many.
    """

    code = "INTERNAL"
    exit_code = 1

    def __init__(
        self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None, code: str = ""
    ) -> None:
        super().__init__(brief)
        self.code = code or type(self).code
        self.brief = brief
        self.details = details
        self.next_step = next_step

    @property
    def one_line(self) -> str:
        """The brief and the next step, for a log line, a condition or a probe."""
        return str(Message(self.brief, self.next_step or ""))

    def document(self) -> dict[str, object]:
        """Return the JSON object that ``-o json`` prints on stderr."""
        return {
            "apiVersion": "aliquot/v1",
            "kind": "Error",
            "code": self.code,
            "message": self.brief,
            "details": list(self.details),
            "next": self.next_step,
            "exit_code": self.exit_code,
        }


class UsageError(AliquotError):
    """The command line itself is wrong."""

    code = "USAGE"
    exit_code = 2


class ConfigError(AliquotError):
    """Invalid input: a file or an argument. ``details`` holds all errors, one per line."""

    code = "CONFIG"
    exit_code = 2


class BlockedError(AliquotError):
    """Valid, but cannot be applied here or now."""

    code = "BLOCKED"
    exit_code = 20


class NoDriverError(BlockedError):
    """The NVIDIA driver of this host is missing or too old."""

    code = "NO_DRIVER"


class PermissionDeniedError(BlockedError):
    """The caller lacks the right to do this (root, or the mig/config capability)."""

    code = "NO_PERMISSION"


class StalePlanError(BlockedError):
    """The node changed after the plan was made."""

    code = "MOVED"


class PlanMismatchError(BlockedError):
    """A saved plan differs from the plan that the planner makes for its desired state: the file was edited, or the
    holders of its instances changed.
    """

    code = "PLAN_MISMATCH"


class LockedError(BlockedError):
    """Another process is changing this node's GPUs. ``holder`` names it; "" if it is not known."""

    code = "LOCKED"

    def __init__(
        self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None, holder: str = ""
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.holder = holder


class NoSuchGpuError(BlockedError):
    """This node does not have a GPU with that name."""

    code = "NO_SUCH_GPU"


class InUseError(BlockedError):
    """The hardware reports that a client still uses what is to be changed."""

    code = "IN_USE"


class ApplyInterruptedError(AliquotError):
    """A signal stopped an apply in the middle: SIGINT (2, Ctrl-C), SIGTERM (15) or SIGHUP (1)."""

    code = "INTERRUPTED"
    exit_code = 130

    @classmethod
    def from_signal(cls, number: int) -> ApplyInterruptedError:
        """Build the error for a signal number; its exit code is 128 plus that number, as a shell expects."""
        why = {1: "stopped by SIGHUP: the terminal or the connection is gone", 15: "stopped by SIGTERM"}
        error = cls(why.get(number, "interrupted from the keyboard"), next_step="run the same command again")
        error.exit_code = 128 + number
        return error


class ForeignFileError(BlockedError):
    """A file that is to be written exists, and Aliquot did not write its content."""

    code = "NOT_OURS"


class DriftError(AliquotError):
    """The inventory differs from the desired state."""

    code = "DRIFT"
    exit_code = 30


class HardwareError(AliquotError):
    """The driver refused or failed. ``nvml_code`` is NVML's return code, if there was one."""

    code = "HARDWARE"
    exit_code = 40

    def __init__(
        self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None, nvml_code: int | None = None
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.nvml_code = nvml_code


class DriverHangsError(HardwareError):
    """A driver call does not return. It continues: only the driver can end it."""

    code = "DRIVER_HANGS"


class GpuLostError(HardwareError):
    """The GPU has fallen off the bus."""

    code = "GPU_LOST"


class StorageError(AliquotError):
    """The journal, lock or state directory cannot be written. Nothing was started without a journal entry."""

    code = "STORAGE"
    exit_code = 20


class StorageDeniedError(PermissionDeniedError, StorageError):
    """The caller may not read or write the journal, lock or state directory."""
