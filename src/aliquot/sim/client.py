"""A client of a simulated node for actions outside the driver: holding instances, manual changes, faults, reboot."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from aliquot.errors import UsageError
from aliquot.sim import lifecycle as control
from aliquot.sim.lifecycle import LineConnection
from aliquot.sim.state import FaultKind

_ATTEMPTS = {"create": "creating an instance", "destroy": "destroying an instance", "reset": "resetting a GPU"}


class SimClient:
    """A simulated node. It opens no NVML session, so it does not count as a client of the GPUs.
    Threads may share it.
    """

    def __init__(self, state_dir: str, name: str) -> None:
        if not control.node_exists(state_dir, name):
            raise control.unknown_node(state_dir, name)
        self.state_dir = state_dir
        self.name = name
        self.directory = control.folder(state_dir, name)
        self._connection: LineConnection | None = None
        self._turn = threading.Lock()

    def request(self, verb: str, *args: int, text: str = "") -> list[str]:
        """Send one raw request. Return the answer's code and numbers, then its text if it has one."""
        words = " ".join([verb, *map(str, args)])
        with self._turn:
            head, bar, tail = self._send(f"{words}|{text}" if text else words).partition("|")
        return [*head.split(), *([tail] if bar else [])]

    def _send(self, line: str) -> str:
        for attempt in range(2):
            try:
                if self._connection is None:
                    control.ensure_server(self.state_dir)
                    self._connection = control.connect(self.directory, "nvml.sock")
                return self._connection.request(line)
            except (FileNotFoundError, ConnectionError) as error:
                self.close()
                if attempt or not control.node_exists(self.state_dir, self.name):
                    raise control.unknown_node(self.state_dir, self.name) from error
        raise AssertionError("unreachable: the second attempt returns or raises")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _control(self, do: str, **facts: object) -> dict[str, Any]:
        from aliquot.core.model.nvml_return_codes import error

        answer = self.request("control", text=control.request_text({"do": do, **facts}))
        code, text = int(answer[0]), answer[1] if len(answer) > 1 else ""
        if code == 0:
            return msgspec.json.decode(text, type=dict[str, Any])
        if text:
            step = (
                "aliquot sim fault --help" if do == "fault" and "call" not in facts else f"aliquot sim show {self.name}"
            )
            raise UsageError(text, next_step=f"{step} --calls" if "call" in facts else step)
        raise error(code, f"{_ATTEMPTS.get(do, do)} on {self.name}")

    def show(self) -> dict[str, Any]:
        """Return the whole state of the node."""
        return self._control("show")

    def calls(self) -> list[dict[str, Any]]:
        """Return the call log: every driver call that reached the node, in order."""
        with open(os.path.join(self.directory, "calls.jsonl"), "rb") as log:
            # Read at once: the server may add the second half of a line between two reads.
            *lines, _half = log.read().split(b"\n")
        return [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]

    def hold(
        self,
        gpu: int | str,
        instance: int | str | None = None,
        pid: int | None = None,
        name: str = "python3",
        **use: float | None,
    ) -> int:
        """Put a process on an instance (``7`` or ``7/1``), or on the whole GPU. Return its pid. ``memory`` is the
        memory that it uses, in MiB, and ``busy`` the share of multiprocessors that it keeps busy; the simulator chooses
        missing values.
        """
        return int(self._control("hold", gpu=gpu, instance=instance, pid=pid, name=name, **use)["pid"])

    def release(self, gpu: int | str, instance: int | str | None = None) -> int:
        """End the processes on an instance. Return their number."""
        return int(self._control("release", gpu=gpu, instance=instance)["released"])

    def terminate(self, pid: int) -> int:
        """End a process by its pid. Return the number of instances that it used."""
        return int(self._control("terminate", pid=pid)["released"])

    def create(self, gpu: int | str, profile: str | int, start: int | None = None, compute: bool = True) -> int:
        """Create an instance manually, with the compute instance that covers it. Return its id."""
        facts = {"gpu": gpu, "profile": str(profile), "start": start, "compute": compute}
        return int(self._control("create", **facts)["instance"])

    def destroy(self, gpu: int | str, instance: int | str) -> None:
        """Destroy an instance manually, its compute instances first, or one compute instance (``7/1``)."""
        self._control("destroy", gpu=gpu, instance=instance)

    def set_mode(self, gpu: int | str, enabled: bool) -> int:
        """Request MIG mode manually. Return the activation status (0 active, 19 pending: in use)."""
        return int(self._control("mode", gpu=gpu, enabled=enabled)["activation"])

    def inject_fault(self, kind: FaultKind | Literal["none"], **facts: object) -> None:
        """Set a fault (for kinds and fields see ``faults``). The kind ``none`` clears all. ``seconds`` and ``after``
        count from now.
        """
        self._control("fault", kind=kind, **facts)

    def reboot(self, kernel: str | None = None) -> None:
        """Restart the node: all sessions, processes and instances end. ``kernel`` selects another kind of vGPU host
        driver for the next boot (mdev, vfio, none).
        """
        self._control("reboot", kernel=kernel)

    def files(self, op: str, path: str, data: str = "", hand: bool = False) -> tuple[Any, int]:
        """Send one request for the kernel's files (see ``sim.files``). Return the value and the
        errno (0 for success).
        """
        answer = self._control("fs", op=op, path=path, data=data, hand=hand)
        return answer.get("value"), int(answer.get("errno") or 0)

    def many_files(self, requests: Sequence[tuple[str, str]]) -> list[tuple[Any, int]]:
        """Send several reads of the kernel's files, each an operation and a path, in one request. Return values and
        errnos.
        """
        reply = self._control("fs-many", asks=list(requests))
        return [(value, int(code)) for value, code in reply["answers"]]

    def sriov_manage(self, action: str, address: str) -> dict[str, Any]:
        """Run NVIDIA's program: ``-e`` or ``-d`` for a GPU or ALL. Return its exit code ``rc`` and its output."""
        return self._control("sriov-manage", action=action, address=address)

    def start_vm(self, name: str, *devices: str, busy: float = 0.5, licensed: bool = True) -> int:
        """Start a VM that opens the VFIO handles of functions (by address) or mdevs (by UUID). Return its pid.

        ``busy`` is the share of the GPU that it wants through each vGPU, ``licensed`` whether its guest has a license.
        """
        facts = {"name": name, "devices": devices, "busy": busy, "licensed": licensed}
        return int(self._control("vm-start", **facts)["pid"])

    def stop_vm(self, name: str) -> None:
        self._control("vm-stop", name=name)

    def plug_usb(self, ids: str, product: str = "") -> str:
        """Connect a USB device with these ids (``0951:1666``). Return its file."""
        return str(self._control("usb-plug", ids=ids, product=product)["path"])

    def unplug_usb(self, path: str) -> None:
        """Remove the USB device with this file."""
        self._control("usb-unplug", path=path)

    def reset(self, gpu: int | str) -> None:
        """Reset one GPU. Raises InUseError while any NVML session is open on the node or a process is on the GPU."""
        self._control("reset", gpu=gpu)
