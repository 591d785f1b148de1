"""A runner for nvidia-smi commands, and the errors that their output stands for.

The exit status is NVML's return code for most commands. Exceptions are warnings, which end with 0, and ``mig`` lists,
which end with 6 if there is nothing to list. Therefore known phrases in the output take precedence. Sources:
nvidia-smi(1), captures of public hosts.
"""

from __future__ import annotations

from aliquot.core.engine.programs import DriverPrograms, ProgramResult
from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import AliquotError, NoDriverError
from aliquot.foundation.driver_calls import DriverCall

NVIDIA_SMI = "nvidia-smi"
READ_TIMEOUT_S = 60.0
"""Seconds that a listing may take. A failing GPU answers late; eight healthy ones take some seconds."""
WRITE_TIMEOUT_S = 180.0
_LINES = 8
_CANNOT_RUN = (126, 127)
_NOTHING = ("no gpu instances found", "no compute instances found", "no mig-enabled devices found")

_WORDS: tuple[tuple[str, int], ...] = (
    ("driver/library version mismatch", 18),
    ("couldn't communicate with the nvidia driver", codes.DRIVER_NOT_LOADED),
    ("driver not loaded", codes.DRIVER_NOT_LOADED),
    ("couldn't find libnvidia-ml.so", codes.LIBRARY_NOT_FOUND),
    ("gpu is lost", codes.GPU_IS_LOST),
    ("fallen off the bus", codes.GPU_IS_LOST),
    ("gpu requires reset", codes.RESET_REQUIRED),
    ("in use by another client", codes.IN_USE),
    ("insufficient resources", codes.INSUFFICIENT_RESOURCES),
    ("insufficient permissions", codes.NO_PERMISSION),
    ("no mig-enabled devices found", codes.NOT_SUPPORTED),
    ("no mig-supported devices found", codes.NOT_SUPPORTED),
    ("not supported", codes.NOT_SUPPORTED),
    ("invalid argument", codes.INVALID_ARGUMENT),
    ("timeout", codes.TIMEOUT),
    ("no devices were found", codes.NOT_FOUND),
    ("not found", codes.NOT_FOUND),
    ("unknown error", codes.UNKNOWN),
)
"""Phrases in nvidia-smi's output, and their NVML codes; the first match counts."""


class Smi:
    """The nvidia-smi that ``programs`` run."""

    def __init__(self, programs: DriverPrograms) -> None:
        self.programs = programs
        self.calls = 0

    def run(self, *arguments: str, timeout_s: float = READ_TIMEOUT_S) -> ProgramResult:
        """Run a command and return its result, whatever its status. Raises NoDriverError if the
        program does not exist.
        """
        self.calls += 1
        command = (NVIDIA_SMI, *arguments)
        # A listing counts as hanging like any call; only a command that changes a GPU may take longer.
        bound_s = timeout_s if timeout_s > READ_TIMEOUT_S else 0.0
        with DriverCall(f"{' '.join(command)} ({self.programs.location})", bound_s=bound_s):
            result = self.programs.run(command, timeout_s)
        if result.status in _CANNOT_RUN:
            raise NoDriverError(
                f"{NVIDIA_SMI} was not found ({self.programs.location})",
                details=tuple(_lines(result)),
                next_step="install the NVIDIA driver there, then run: aliquot show",
            )
        return result

    def run_checked(self, attempt: str, *arguments: str, gpu: str = "", timeout_s: float = READ_TIMEOUT_S) -> str:
        """Return what a command printed. ``attempt`` starts the sentence of an error. Raises the error that the output
        stands for.
        """
        result = self.run(*arguments, timeout_s=timeout_s)
        if result.status:
            raise self.error(attempt, result, arguments, gpu)
        return result.out

    def run_listing(self, attempt: str, *arguments: str, gpu: str = "") -> str:
        """Return what a listing printed, "" if there is nothing to list. Any other refusal raises: instances that
        cannot be listed must not be taken for gone.
        """
        result = self.run(*arguments)
        if result.status and not any(nothing in result.output.lower() for nothing in _NOTHING):
            raise self.error(attempt, result, arguments, gpu)
        return "" if result.status else result.out

    def error(self, attempt: str, result: ProgramResult, arguments: tuple[str, ...], gpu: str = "") -> AliquotError:
        """Return the error for a command that was refused."""
        error = codes.error(code_of(result), attempt, gpu=gpu)
        command = " ".join((NVIDIA_SMI, *arguments))
        summary = f"{command} ended with status {result.status} ({self.programs.location})"
        error.details = (*error.details, summary, *_lines(result))
        return error


def code_of(result: ProgramResult) -> int:
    """Return the NVML code that a refusal stands for."""
    output = result.output.lower()
    for phrase, code in _WORDS:
        if phrase in output:
            return code
    return result.status if result.status in codes.TABLE else codes.UNKNOWN


def _lines(result: ProgramResult) -> list[str]:
    return [line.strip() for line in result.output.splitlines() if line.strip()][:_LINES]
