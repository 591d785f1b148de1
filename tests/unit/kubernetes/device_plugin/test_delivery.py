"""Allocation of devices that containers get through a variable and device files."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from grpclib.exceptions import GRPCError

from aliquot.kubernetes.device_plugin.allocate import AllocationOptions, ResourceSnapshot
from aliquot.kubernetes.device_plugin.protos import deviceplugin_pb2 as pb
from aliquot.kubernetes.device_plugin.service import ResourcePlugin
from aliquot.kubernetes.gpu.device_resources import Delivery, ResourceDevice

VARIABLE = "USB_RESOURCE_KUBEVIRT_IO_N-0951-1666-001002"
PATH = "/dev/bus/usb/001/002"


def snapshot(**delivery: object) -> ResourceSnapshot:
    given = Delivery(VARIABLE, **delivery)  # type: ignore[arg-type]
    device = ResourceDevice(id="stick", gpu="", paths=(PATH,), index="", numa=None, delivery=given)
    return ResourceSnapshot("kubevirt.io/n-0951-1666-001002", (device,))


def test_a_variable_holds_the_value_of_a_device_or_its_id() -> None:
    answer = snapshot(value="1:2").response(["stick"], AllocationOptions())
    assert dict(answer.envs) == {VARIABLE: "1:2"}
    assert [(each.host_path, each.container_path, each.permissions) for each in answer.devices] == [(PATH, PATH, "mrw")]
    assert dict(snapshot().response(["stick"], AllocationOptions()).envs) == {VARIABLE: "stick"}


def test_only_devices_with_an_owner_have_their_files_changed() -> None:
    assert snapshot(owner=107).ownerships(["stick"], "/host") == {f"/host{PATH}": 107}
    assert snapshot().ownerships(["stick"], "") == {}


class Call:
    """A call of kubelet: one request, one answer."""

    def __init__(self) -> None:
        self.answer: Any = None

    async def recv_message(self) -> pb.AllocateRequest:
        return pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["stick"])])

    async def send_message(self, answer: Any) -> None:
        self.answer = answer


def allocate(path: Path) -> Any:
    given = ResourceDevice("stick", "", (str(path),), "", None, delivery=Delivery(VARIABLE, owner=107))
    plugin = ResourcePlugin("kubevirt.io/stick", AllocationOptions(), "packed", lambda: None)
    plugin.publish(ResourceSnapshot("kubevirt.io/stick", (given,)))
    call: Any = Call()
    asyncio.run(plugin.Allocate(call))
    return call.answer


def test_the_file_belongs_to_qemu_before_a_vm_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(os, "chown", lambda path, user, group, **how: changed.append((path, user, group, how)))
    assert len(allocate(tmp_path / "002").container_responses) == 1
    assert changed == [(str(tmp_path / "002"), 107, 107, {"follow_symlinks": False})]


def test_a_device_that_was_unplugged_just_now_is_not_allocated(tmp_path: Path) -> None:
    with pytest.raises(GRPCError, match="002 cannot be given to user 107: No such file or directory"):
        allocate(tmp_path / "002")
