"""The requests of programs and people to the simulated kernel, over a node's socket: files, ``sriov-manage``, VMs."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.kernel import devices, functions, pci, proc, rules, usb, vms
from aliquot.sim.kernel import kernel_writes as writes
from aliquot.sim.kernel.devices import SimPciFunction
from aliquot.sim.kernel.kernel_writes import KernelWrite
from aliquot.sim.kernel.tree import FileAnswer, Tree, handle_request
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import WHOLE, VmState

Request = dict[str, Any]
OPERATIONS = ("read", "write", "names", "link", "real", "exists", "claimed", "stat")


def tree_of(node: SimNode) -> Tree:
    """Return the node's files: one tree for all connections."""
    if not isinstance(node.files, Tree):
        node.files = Tree(node)
    return node.files


def _caller(session: SimSession, request: Request) -> SimSession:
    """Return the writer: the connection's process, or the one that it acts for (``pid``). Faults
    apply unless ``hand``.
    """
    pid = request.get("pid")
    number, hand = session.pid if pid is None else int(pid), bool(request.get("hand"))
    return SimSession("", number, session.privileged, hand=hand, caller_ended=session.caller_ended)


def _files(node: SimNode, session: SimSession, request: Request) -> object:
    op = str(request.get("op"))
    if op not in OPERATIONS:
        raise ValueError(f"no operation {op!r} on files; there are: {', '.join(OPERATIONS)}")
    path, data = str(request.get("path") or ""), str(request.get("data") or "")
    answer = handle_request(tree_of(node), _caller(session, request), op, path, data)
    return {"errno": answer.errno} if answer.errno else {"value": answer.value}


def _many(node: SimNode, session: SimSession, request: Request) -> object:
    """Execute several reads, each ``[op, path]``, in one request: all that one read of a node needs."""
    tree, caller = tree_of(node), _caller(session, request)
    requests = [(str(op), str(path)) for op, path in request.get("asks") or ()]
    wrong = next((op for op, _ in requests if op not in OPERATIONS or op == "write"), None)
    if wrong is not None:
        raise ValueError(f"no operation {wrong!r} among several on files")
    return {"answers": [_plain(handle_request(tree, caller, op, path, "")) for op, path in requests]}


def _plain(answer: FileAnswer) -> list[object]:
    return [answer.value, answer.errno or 0]


def _sriov_manage(node: SimNode, session: SimSession, request: Request) -> object:
    """Run ``sriov-manage``. ``action`` is -e or -d, ``address`` a GPU or ALL. Return ``rc`` and the
    program's output.
    """
    action, word = str(request.get("action")), str(request.get("address"))
    if action not in ("-e", "-d"):
        raise ValueError("sriov-manage needs the action -e or -d")
    found = [g for g in node.visible if word in ("ALL", g.state.pci)]
    if not found:
        return {"rc": 1, "out": [], "err": [f"{word} is not a GPU of the nvidia driver"]}
    lines: list[str] = []
    wrong: list[str] = []
    for gpu in found:
        try:
            lines.append(_manage(node, _caller(session, request), gpu, action))
        except OSError as error:
            wrong.append(_refusal(gpu, error))
    return {"rc": 1 if wrong else 0, "out": lines, "err": wrong}


def _manage(node: SimNode, session: SimSession, gpu: SimGpu, action: str) -> str:
    write = KernelWrite("SriovManage", gpu.state.index, f"/usr/lib/nvidia/sriov-manage {action}", gpu.state.pci)
    writes.execute(node, session, write, lambda: functions.manage(node, gpu, action == "-e"))
    return f"{'Enabling' if action == '-e' else 'Disabling'} VFs on {gpu.state.pci}"


def _refusal(gpu: SimGpu, error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"Cannot obtain unbindLock for {gpu.state.pci}"
    if error.errno == errno.ENOTSUP:
        return f"GPU at {gpu.state.pci} doesn't support SR-IOV"
    return f"{gpu.state.pci}: {error.strerror}"


def _vm_start(node: SimNode, _session: SimSession, request: Request) -> object:
    """Start a VM that opens the VFIO handles of ``devices`` (addresses of functions, UUIDs of mdevs)."""
    name, wanted = str(request.get("name") or ""), [str(d) for d in request.get("devices") or ()]
    if not name or any(vm.name == name for vm in node.state.vms):
        raise ValueError(f"a VM {name!r} runs already" if name else "a VM needs a name")
    busy = float(request.get("busy", 0.5))
    if not 0 <= busy <= 1:
        raise ValueError(f"busy {busy} is not a share of 0 to 1")
    if len(set(wanted)) != len(wanted):
        raise ValueError("a device is named twice")
    with node.lock:
        for device in wanted:
            _openable(node, device)
        pid, node.state.next_pid = node.state.next_pid, node.state.next_pid + 1
        node.state.vms = [*node.state.vms, VmState(pid, name, wanted, busy, bool(request.get("licensed", True)))]
        node.files_changed()
        node.save()
    return {"pid": pid}


def _openable(node: SimNode, name: str) -> None:
    """Raise ValueError with the reason if QEMU could not open a device."""
    running = vms.open_on(node, name)
    if running is not None:
        raise ValueError(f"{name} is open in VM {running.name!r}")
    if any(v.uuid == name for g in node.gpus for v in g.state.vgpus):
        return
    device = next((d for d in devices.all_functions(node) if d.address == name), None)
    if device is None:
        raise ValueError(f"no function and no mdev {name!r} on {node.state.name}")
    driver = device.driver(node.environment.now())
    if driver == devices.VFIO:
        foreign = _foreign(node, device)
        if foreign:
            raise ValueError(f"IOMMU group of {name} is not viable: {', '.join(foreign)} has another driver")
        return
    if device.virtual and any(v.function == name and not v.uuid for v in device.gpu.state.vgpus):
        return
    mdevs = [v.uuid for v in device.gpu.state.vgpus if v.function == name and v.uuid]
    if mdevs:
        raise ValueError(f"{name} carries the mdev {', '.join(mdevs)}: a VM opens the mdev by its UUID")
    raise ValueError(f"{name} has no VFIO handle to open: its driver is {driver or 'none'} and it carries no vGPU")


def _foreign(node: SimNode, device: SimPciFunction) -> list[str]:
    """Return the members of the same IOMMU group that are bound to another driver."""
    own = devices.group(node, device)
    return [
        d.address
        for d in devices.all_functions(node)
        if devices.group(node, d) == own and d.state.driver not in ("", devices.VFIO)
    ]


def _vm_stop(node: SimNode, _session: SimSession, request: Request) -> object:
    name = str(request.get("name") or "")
    if not any(vm.name == name for vm in node.state.vms):
        running = ", ".join(vm.name for vm in node.state.vms) or "none"
        raise ValueError(f"no VM {name!r} on {node.state.name}; running: {running}")
    end(node, lambda vm: vm.name == name)
    return {}


def end(node: SimNode, which: Callable[[VmState], bool]) -> int:
    """End VMs. Return their number."""
    with node.lock:
        staying = [vm for vm in node.state.vms if not which(vm)]
        gone = len(node.state.vms) - len(staying)
        node.state.vms = staying
        if gone:
            node.files_changed()
            node.save()
    return gone


def node_summary(node: SimNode) -> dict[str, object]:
    """Return the kernel's part of ``show``."""
    return {
        "host": proc.host(node),
        "iommu": node.state.iommu,
        "usb": [each.path for each in node.state.usb],
        "vms": [{"pid": vm.pid, "name": vm.name, "devices": list(vm.devices)} for vm in node.state.vms],
    }


def gpu_summary(gpu: SimGpu) -> dict[str, object]:
    """Return a GPU's part of ``show``: driver, virtual functions, vGPUs."""
    state = gpu.state
    kinds = {k.id: k.name for k in rules.types(state)}
    return {
        "driver": state.driver,
        "host": state.host,
        "world": rules.vgpu_framework(state),
        "mixed": state.mixed if rules.mixed_possible(state) else None,
        "scheduler": [state.scheduler.policy, state.scheduler.strict, state.scheduler.time_slice],
        "functions": len(state.functions),
        "total_functions": pci.total_functions(state),
        "vgpus": [
            {
                "function": v.function,
                "type_id": v.type_id,
                "type": kinds.get(v.type_id, ""),
                "uuid": v.uuid,
                "instance": v.gi if v.gi != WHOLE else None,
                "placement": v.placement if v.placement != WHOLE else None,
                "params": v.params,
            }
            for v in state.vgpus
        ],
    }


HANDLERS: dict[str, Callable[[SimNode, SimSession, Request], object]] = {
    "fs": _files,
    "fs-many": _many,
    "sriov-manage": _sriov_manage,
    "vm-start": _vm_start,
    "vm-stop": _vm_stop,
    "usb-plug": usb.plug,
    "usb-unplug": usb.unplug,
}
