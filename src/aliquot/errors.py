"""One hierarchy of errors. Each says what is wrong, where, which rule or holder, and the next command to type.

The exit code lives on the class: 1 internal fault, 2 wrong on every machine, 20 blocked (valid, but not on this
machine or not now), 30 drift, 40 the hardware refused, 128 + N stopped by signal N.
"""

from __future__ import annotations


class AliquotError(Exception):
    """Base of every error that a user may see.

    ``brief`` is one sentence; ``details`` are further lines; ``next_step`` is a command to type or a thing to do.
    """

    code = "INTERNAL"
    exit_code = 1

    def __init__(self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None) -> None:
        super().__init__(brief)
        self.brief = brief
        self.details = details
        self.next_step = next_step

    @property
    def one_line(self) -> str:
        """The brief and what to do, for a log line, a condition or a probe."""
        return f"{self.brief} | next: {self.next_step}" if self.next_step else self.brief

    def document(self) -> dict[str, object]:
        """The error as the JSON object that ``-o json`` prints on stderr."""
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
    """A file, or a wish typed by hand, is wrong on every machine. ``details`` holds all faults, one per line."""

    code = "CONFIG"
    exit_code = 2


class BlockedError(AliquotError):
    """Valid, but not on this machine or not now."""

    code = "BLOCKED"
    exit_code = 20


class NoDriverError(BlockedError):
    """No NVIDIA driver, or one that is too old, answers on this machine."""

    code = "NO_DRIVER"


class PermissionDeniedError(BlockedError):
    """The caller lacks the right to do this (root, or the mig/config capability)."""

    code = "NO_PERMISSION"


class StalePlanError(BlockedError):
    """The machine changed since the plan was made."""

    code = "MOVED"


class PlanMismatchError(BlockedError):
    """A saved plan is not the one that the planner makes for its desired state: the file was edited, or processes that
    hold its instances came or went.
    """

    code = "PLAN_MISMATCH"


class LockedError(BlockedError):
    """Another process is changing this node's GPUs. ``holder`` names it, "" where that is not known."""

    code = "LOCKED"

    def __init__(
        self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None, holder: str = ""
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.holder = holder


class NoSuchGpuError(BlockedError):
    """This node has no GPU of that name."""

    code = "NO_SUCH_GPU"


class InUseError(BlockedError):
    """The hardware says that a client is still on the thing to be changed."""

    code = "IN_USE"


class ApplyInterruptedError(AliquotError):
    """A signal stopped an apply in the middle: SIGINT (2, Ctrl-C), SIGTERM (15) or SIGHUP (1)."""

    code = "INTERRUPTED"
    exit_code = 130

    @classmethod
    def from_signal(cls, number: int) -> ApplyInterruptedError:
        """Build the error for the signal of that number; it exits with 128 more, as a shell expects."""
        why = {1: "stopped by SIGHUP: the terminal or the connection is gone", 15: "stopped by SIGTERM"}
        error = cls(why.get(number, "interrupted from the keyboard"), next_step="run the same command again")
        error.exit_code = 128 + number
        return error


class ForeignFileError(BlockedError):
    """A file that is to be written exists, and Aliquot did not write what is in it."""

    code = "NOT_OURS"


class DriftError(AliquotError):
    """What is differs from what should be."""

    code = "DRIFT"
    exit_code = 30


class HardwareError(AliquotError):
    """The driver refused or failed. ``nvml_code`` is NVML's return code where there was one."""

    code = "HARDWARE"
    exit_code = 40

    def __init__(
        self, brief: str, *, details: tuple[str, ...] = (), next_step: str | None = None, nvml_code: int | None = None
    ) -> None:
        super().__init__(brief, details=details, next_step=next_step)
        self.nvml_code = nvml_code


class DriverHangsError(HardwareError):
    """A driver call does not return. It goes on: nothing but the driver ends it."""

    code = "DRIVER_HANGS"


class GpuLostError(HardwareError):
    """The GPU has fallen off the bus."""

    code = "GPU_LOST"


class StorageError(AliquotError):
    """The journal, lock or state directory cannot be written: nothing was started without a record of it."""

    code = "STORAGE"
    exit_code = 20


class StorageDeniedError(PermissionDeniedError, StorageError):
    """The caller may not read or write the journal, lock or state directory."""
