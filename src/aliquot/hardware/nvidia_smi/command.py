"""One nvidia-smi command and its answer, or the error that its words stand for.

Its exit status is NVML's return code for most commands, but not for all (a warning ends with 0, ``mig`` lists end with
6 where there is nothing): the words decide where they are known. Sources: nvidia-smi(1), captures of public hosts.
"""

from __future__ import annotations

from aliquot.core.engine.programs import Programs, Ran
from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import AliquotError, NoDriverError
from aliquot.foundation.driver_calls import Running

NVIDIA_SMI = "nvidia-smi"
LOOK_S = 60.0
"""How long a listing may take. A GPU in trouble answers late; eight healthy ones take some seconds."""
ACT_S = 180.0
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
"""Words of nvidia-smi, and the NVML code that they stand for; the first that is found counts."""


class Smi:
    """nvidia-smi where ``programs`` run."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs
        self.calls = 0

    def run(self, *words: str, timeout_s: float = LOOK_S) -> Ran:
        """The command's end, whatever it says. Raises NoDriverError where there is no such program."""
        self.calls += 1
        command = (NVIDIA_SMI, *words)
        # A listing hangs as any call does; only what changes a GPU may take its time.
        bound_s = timeout_s if timeout_s > LOOK_S else 0.0
        with Running(f"{' '.join(command)} ({self.programs.place})", bound_s=bound_s):
            ran = self.programs.run(command, timeout_s)
        if ran.status in _CANNOT_RUN:
            raise NoDriverError(
                f"there is no {NVIDIA_SMI} ({self.programs.place})",
                details=tuple(_lines(ran)),
                next_step="install the NVIDIA driver there, then run: aliquot show",
            )
        return ran

    def ok(self, attempt: str, *words: str, gpu: str = "", timeout_s: float = LOOK_S) -> str:
        """What a command printed. ``attempt`` starts the sentence of an error. Raises what its words stand for."""
        ran = self.run(*words, timeout_s=timeout_s)
        if ran.status:
            raise self.error(attempt, ran, words, gpu)
        return ran.out

    def listed(self, attempt: str, *words: str, gpu: str = "") -> str:
        """As ``ok``, but nothing to list is an empty text. Any other refusal is none: instances that cannot be seen
        must not be taken for gone.
        """
        ran = self.run(*words)
        if ran.status and not any(nothing in ran.words.lower() for nothing in _NOTHING):
            raise self.error(attempt, ran, words, gpu)
        return "" if ran.status else ran.out

    def error(self, attempt: str, ran: Ran, words: tuple[str, ...], gpu: str = "") -> AliquotError:
        """The error for a command that was refused."""
        error = codes.error(code_of(ran), attempt, gpu=gpu)
        command = " ".join((NVIDIA_SMI, *words))
        said = f"{command} ended with status {ran.status} ({self.programs.place})"
        error.details = (*error.details, said, *_lines(ran))
        return error


def code_of(ran: Ran) -> int:
    """The NVML code that a refusal stands for."""
    said = ran.words.lower()
    for words, code in _WORDS:
        if words in said:
            return code
    return ran.status if ran.status in codes.TABLE else codes.UNKNOWN


def _lines(ran: Ran) -> list[str]:
    return [line.strip() for line in ran.words.splitlines() if line.strip()][:_LINES]
