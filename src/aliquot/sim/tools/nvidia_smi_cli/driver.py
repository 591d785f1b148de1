"""The driver for nvidia-smi: an NVML session with a simulated node, opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError

PROFILE_INDEXES = 18
"""GPU instance profile indexes of the newest library; an older one refuses those that it does not know."""

_LAST_OF_ITS_SIZE = {13: 18, 14: 19}
"""Profiles without media engines come after those with all of them, although their NVML index is lower (captured)."""

WORDS = {
    codes.SUCCESS: "Success",
    codes.UNINITIALIZED: "Uninitialized",
    codes.INVALID_ARGUMENT: "Invalid Argument",
    codes.NOT_SUPPORTED: "Not Supported",
    codes.NO_PERMISSION: "Insufficient Permissions",
    codes.NOT_FOUND: "Not Found",
    codes.DRIVER_NOT_LOADED: "Driver Not Loaded",
    codes.TIMEOUT: "Timeout",
    codes.GPU_IS_LOST: "GPU is lost",
    codes.RESET_REQUIRED: "GPU requires reset",
    codes.LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    codes.IN_USE: "In use by another client",
    codes.INSUFFICIENT_RESOURCES: "Insufficient Resources",
}


def words(code: int) -> str:
    """Return nvidia-smi's text for a return code (captured, or nvmlErrorString)."""
    return WORDS.get(code, "Unknown Error")


class InitRefusalError(NvmlRefusalError):
    """NVML could not be opened."""


class SmiInstance(NamedTuple):
    """An existing GPU instance or compute instance: its id, its profile's id, and its placement."""

    id: int
    profile: int
    start: int
    size: int


class SmiProfile(NamedTuple):
    """A GPU instance profile as the driver describes it: its NVML index (``position``), memory in MiB, and counts of
    engines.
    """

    position: int
    id: int
    name: str
    slices: int
    total: int
    sm: int
    ce: int
    dec: int
    enc: int
    jpeg: int
    ofa: int
    memory_mib: int


class SmiComputeProfile(NamedTuple):
    """A compute instance profile inside one GPU instance."""

    id: int
    name: str
    slices: int
    total: int
    sm: int
    ce: int
    dec: int
    enc: int
    jpeg: int
    ofa: int


class SmiDevice:
    """A GPU. Calls use its ``handle``, users its ``index``."""

    def __init__(self, driver: SmiDriver, facts: dict[str, Any]) -> None:
        self.driver = driver
        self.facts = facts
        self.handle = int(facts["handle"])
        self.index = int(facts["index"])
        self.pci = str(facts["pci"])

    @property
    def bus_id(self) -> str:
        """The address in nvidia-smi's form: eight digits of domain, uppercase."""
        domain, _, rest = self.pci.partition(":")
        return f"{int(domain, 16):08X}:{rest.upper()}"

    @property
    def capable(self) -> bool:
        return bool(self.facts["mig"]["capable"])

    @property
    def enabled(self) -> bool:
        return str(self.facts["mig"]["current"]) == "enabled"

    def request(self, call: str, *numbers: int, gi: int = -1, ci: int = -1) -> list[int]:
        """Execute one call about this GPU, or an instance of it. Raises NvmlRefusalError."""
        return self.driver.request(call, self.handle, gi, ci, *numbers)[0]

    def text(self, call: str, *numbers: int, gi: int = -1, ci: int = -1) -> str:
        return self.driver.request(call, self.handle, gi, ci, *numbers)[1]

    def number(self, call: str, *numbers: int) -> int | None:
        """Return one number, None if this GPU does not have it."""
        try:
            return self.request(call, *numbers)[0]
        except NvmlRefusalError:
            return None

    @cached_property
    def profiles(self) -> list[SmiProfile]:
        """The profiles in the order of ``mig -lgip``: by size, then in the library's order."""
        found = []
        for index in range(PROFILE_INDEXES):
            try:
                numbers, name = self.driver.request("DeviceGetGpuInstanceProfileInfo", self.handle, -1, -1, index)
            except NvmlRefusalError:
                continue  # not on this GPU, or not known to this library
            number, _p2p, slices, total, sm, ce, dec, enc, jpeg, ofa, memory, _caps = numbers
            found.append(SmiProfile(index, number, name, slices, total, sm, ce, dec, enc, jpeg, ofa, memory))
        return sorted(found, key=lambda p: (p.slices, _LAST_OF_ITS_SIZE.get(p.position, p.position)))

    def instances(self) -> list[tuple[SmiProfile, SmiInstance]]:
        """Return the GPU instances in the order of ``mig -lgi``: by profile, then by id."""
        found = []
        for profile in self.profiles:
            for number in sorted(self.request("DeviceGetGpuInstances", profile.id)):
                found.append((profile, SmiInstance(*self.request("GpuInstanceGetInfo", gi=number)[:4])))
        return found

    def compute_profiles(self, gi: int) -> list[SmiComputeProfile]:
        found = []
        for index in range(codes.COMPUTE_PROFILE_INDEXES):
            call = "GpuInstanceGetComputeInstanceProfileInfo"
            try:
                numbers, name = self.driver.request(call, self.handle, gi, -1, index, 0)
            except NvmlRefusalError:
                continue  # not in a GPU instance of this size
            number, slices, total, sm, ce, dec, enc, jpeg, ofa, _caps = numbers
            found.append(SmiComputeProfile(number, name, slices, total, sm, ce, dec, enc, jpeg, ofa))
        return found

    def compute_instances(self, gi: int) -> list[tuple[SmiComputeProfile, SmiInstance]]:
        found = []
        for profile in self.compute_profiles(gi):
            for number in sorted(self.request("GpuInstanceGetComputeInstances", profile.id, gi=gi)):
                found.append((profile, SmiInstance(*self.request("ComputeInstanceGetInfo", gi=gi, ci=number)[:4])))
        return found


def default(profiles: list[SmiComputeProfile], name: str) -> SmiComputeProfile:
    """Return the compute instance profile that covers a whole GPU instance, which has the same name."""
    return next((p for p in profiles if p.name == name), max(profiles, key=lambda p: p.slices))


class SmiDriver:
    """Calls by name over ``send``, a line each way. ``token`` names the session."""

    def __init__(self, send: Callable[[str], str], token: str) -> None:
        self._send = send
        self._token = token
        self._open = False

    def request(self, call: str, *numbers: int) -> tuple[list[int], str]:
        """Return the numbers and the text of an answer. Raises NvmlRefusalError with NVML's code."""
        if not self._open:
            code = int(self._send(f"hello {self._token}").partition(" ")[0])
            if code:
                raise InitRefusalError(code)
            self._open = True
        return self.without_session(call, *numbers)

    def without_session(self, call: str, *numbers: int) -> tuple[list[int], str]:
        """Execute a call without an open NVML session: the reset of a GPU."""
        head, _, text = self._send(" ".join((call, *map(str, numbers)))).partition("|")
        code, *answer = map(int, head.split())
        if code:
            raise NvmlRefusalError(code)
        return answer, text

    def close(self) -> None:
        if self._open:
            self._open = False
            self._send("bye")

    @cached_property
    def snapshot(self) -> dict[str, Any]:
        """NVML's whole view of the node, in one answer."""
        return msgspec.json.decode(self.request("Snapshot")[1], type=dict[str, Any])

    @cached_property
    def devices(self) -> list[SmiDevice]:
        return [SmiDevice(self, gpu) for gpu in self.snapshot["gpus"]]

    @property
    def version(self) -> str:
        return str(self.snapshot["driver"])

    @property
    def major(self) -> int:
        word = self.version.partition(".")[0]
        return int(word) if word.isdigit() else 0

    @property
    def cuda(self) -> str:
        number = self.request("SystemGetCudaDriverVersion")[0][0]
        return f"{number // 1000}.{number % 1000 // 10}"
