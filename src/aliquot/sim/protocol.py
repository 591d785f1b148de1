"""The protocol of a node, one line in and one line out: ``call number ... [|text]`` is answered by ``code number ...
[|text]``.

``hello TOKEN [restricted]`` joins (or opens) an NVML session, with ``restricted`` without permission to change or list
instances. Without a session every driver call is answered UNINITIALIZED. ``bye`` leaves the session, ``Shutdown`` ends
it for all its connections.

``control`` takes a JSON object and offers what no driver does: holding instances, manual changes, faults, reboot (see
``control_api``).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.sim import codes, nvml_functions
from aliquot.sim.call_names import DEVICE_READS, DEVICE_WRITES, METRIC_CALLS, SYSTEM_READS
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.control_api import BadRequestError, control, snapshot
from aliquot.sim.driver.mig_calls import MIG_READS
from aliquot.sim.driver.nvml_calls import GPU_ONLY, IDENTITY, Args, metric
from aliquot.sim.driver.usage import usage
from aliquot.sim.driver.vgpu_calls import VGPU_READS
from aliquot.sim.driver.vgpu_load import VGPU_LOAD_READS, vgpu_usage
from aliquot.sim.facts import facts
from aliquot.sim.faults import EVERY
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import WHOLE

_WHOLE_NODE = {"Snapshot": snapshot, "Facts": facts, "Usage": usage, "VgpuUsage": vgpu_usage}

_NEEDS_GPU = frozenset(GPU_ONLY) | frozenset(MIG_READS) | frozenset(VGPU_READS) | frozenset(VGPU_LOAD_READS)


class NodeLink:
    """A connection to a node."""

    def __init__(
        self, node: SimNode, pid: int, privileged: bool = True, caller_ended: Callable[[], bool] = lambda: False
    ) -> None:
        """Connect to a node. ``caller_ended`` returns whether the caller has ended, so that its hanging call need not
        wait any longer.
        """
        self.node = node
        self.pid = pid
        self.privileged = privileged
        self.session: SimSession | None = None
        self.caller_ended = caller_ended

    def close(self) -> None:
        if self.session is not None:
            self.node.leave(self.session)

    def answer(self, line: str) -> str:
        """Return the answer to one request line. Raises ``CallerGoneError`` if a fault killed the caller."""
        try:
            return self._answer(line)
        except NvmlRefusalError as refusal:
            return str(refusal.code)

    def _answer(self, line: str) -> str:
        head, _, text = line.partition("|")
        words = head.split()
        if not words:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT)
        call = words[0]
        if call == "control":
            return self._control(text)
        if call == "hello":
            return self._hello(words[1] if len(words) > 1 else "", "restricted" in words[2:])
        session = self._session_for(call)
        if not nvml_functions.known(call, self.node.state.driver_major):
            # a function that the driver's library does not export never reaches the driver
            return f"{codes.FUNCTION_NOT_FOUND}"
        try:
            numbers = [int(w) for w in words[1:]] if call != "unimplemented" else []
        except ValueError:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT) from None
        if call in DEVICE_WRITES:
            return _joined(DEVICE_WRITES[call](self.node, session, [*numbers, *[WHOLE] * (4 - len(numbers))]))
        return self._read(session, call, numbers, text, words)

    def _session_for(self, call: str) -> SimSession:
        """Return the open session. A reset needs none."""
        session = self.session
        if session is None or not self.node.is_open(session):
            if call != "DeviceReset":
                raise NvmlRefusalError(codes.UNINITIALIZED)
            session = SimSession("", self.pid, self.privileged)
        session.caller_ended = self.caller_ended
        return session

    def _hello(self, token: str, restricted: bool) -> str:
        if not token or self.session is not None:
            return f"{codes.INVALID_ARGUMENT}"
        privileged = self.privileged and not restricted
        self.session = self.node.join(token, SimSession(token, self.pid, privileged, caller_ended=self.caller_ended))
        return "0"

    def _read(self, session: SimSession, call: str, args: Args, text: str, words: list[str]) -> str:
        node = self.node
        if call in ("Shutdown", "bye"):
            node.stall(session, "Shutdown")
            refused = node.faults.failing("Shutdown", WHOLE)
            if refused:
                return str(refused)
        if call == "Shutdown":
            node.end(session)
            return "0"
        if call == "bye":
            node.leave(session)
            self.session = None
            return "0"
        if call == "unimplemented":
            name = words[1] if len(words) > 1 else ""
            name = name if name.replace("_", "").isalnum() else "unknown"
            node.record(session, name, codes.NOT_SUPPORTED, more=',"implemented":false')
            return f"{codes.NOT_SUPPORTED}"
        known = call in SYSTEM_READS or call in DEVICE_READS or call in METRIC_CALLS or call in _WHOLE_NODE
        gpu, gi, ci = (
            ([*args, WHOLE, WHOLE, WHOLE])[:3] if known and call not in SYSTEM_READS else (WHOLE, WHOLE, WHOLE)
        )
        rc, body = codes.SUCCESS, ""
        try:
            body = self._body(session, call, args, text)
        except NvmlRefusalError as refusal:
            rc = refusal.code
        except IndexError:
            rc = codes.INVALID_ARGUMENT
        if rc != codes.TIMEOUT or call != "EventSetWait":  # not logged: a monitor polls every second, forever
            node.record(session, call if known else "unknown", rc, gpu, gi, ci)
        return _joined(body) if rc == codes.SUCCESS else str(rc)

    def _body(self, session: SimSession, call: str, args: Args, text: str) -> str:
        node = self.node
        node.stall(session, call, _gpu_of(call, args))
        refused = node.faults.failing(call, WHOLE) if call in SYSTEM_READS or call in _WHOLE_NODE else None
        if refused:
            raise NvmlRefusalError(refused)
        if call in _WHOLE_NODE:
            return "|" + msgspec.json.encode(_WHOLE_NODE[call](node)).decode()
        if call in SYSTEM_READS:
            return SYSTEM_READS[call](node, session, args, text)
        read = DEVICE_READS.get(call)
        if read is None and call not in METRIC_CALLS:
            raise NvmlRefusalError(codes.NOT_SUPPORTED)
        gpu = node.gpu(args[0])
        refused = node.faults.failing(call, args[0]) if node.faults.active else None
        if gpu.state.lost and call not in IDENTITY:
            raise NvmlRefusalError(codes.GPU_IS_LOST)
        if refused:
            raise NvmlRefusalError(refused)
        if read is None:
            return metric(gpu, call, args)
        if call in _NEEDS_GPU and args[1] != WHOLE:
            raise NvmlRefusalError(codes.INVALID_ARGUMENT if call in MIG_READS else codes.NOT_SUPPORTED)
        return read(node, session, gpu, args)

    def _control(self, text: str) -> str:
        session = SimSession("", self.pid, self.privileged, hand=True, caller_ended=self.caller_ended)
        try:
            result = control(self.node, session, msgspec.json.decode(text.encode(), type=dict[str, object]))
        except NvmlRefusalError as refusal:
            return str(refusal.code)
        except (BadRequestError, msgspec.MsgspecError, ValueError, TypeError, KeyError) as bad:
            return f"{codes.INVALID_ARGUMENT}|" + str(bad).replace("\n", " ")
        return "0|" + msgspec.json.encode(result).decode()


def _gpu_of(call: str, args: Args) -> int:
    """Return the GPU that a read is about; WHOLE for none."""
    if call in _WHOLE_NODE:
        return EVERY
    return args[0] if args and call not in SYSTEM_READS else WHOLE


def _joined(body: str) -> str:
    if not body:
        return "0"
    return "0" + body if body.startswith("|") else "0 " + body
