"""Prepared ResourceClaims hold their devices for every program."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import support.vgpufactory as factory
from aliquot.core.model.claims import with_claims
from aliquot.core.planner.plan import plan
from aliquot.errors import StorageDeniedError, StorageError
from aliquot.node.claims import ClaimCollector, HeldBackend
from aliquot.node.holders.prepared_claims import (
    ClaimRecords,
    PreparedClaimFile,
    RecordedClaim,
    RecordedDevice,
    claims_in,
)
from support.simnodes import Node


def _record(folder: Path, uuid: str, gpu: str, *, shared: bool = False) -> None:
    device = RecordedDevice(("r",), "n-aliquot", "part", gpu, 9, "0:4", uuid, shared=shared)
    PreparedClaimFile(str(folder)).save(ClaimRecords((RecordedClaim("u", "team", "train", "boot", (device,)),)))


@pytest.mark.parametrize("shared", [False, True])
def test_every_plan_keeps_the_device_of_a_claim(tmp_path: Path, shared: bool) -> None:
    node = Node("a100-sxm4-40gb").cut("0", "3g.20gb*2")
    backend = HeldBackend(node.whole, ClaimCollector(str(tmp_path), str(tmp_path), (), lambda _: None).claims)
    desired = node.desired_state("0", "7g.40gb")
    assert not plan(backend.read(), desired).blockers
    gpu = node.backend.read().gpus[0]
    _record(tmp_path, gpu.instances[0].compute_instances[0].uuid, gpu.uuid, shared=shared)
    blockers = plan(backend.read(), desired).blockers
    if shared:
        assert blockers == ()
    else:
        assert [str(holder) for holder in blockers[0].holders] == ["claim team/train"]
        assert "kubectl -n team describe resourceclaim train" in str(blockers[0].next_step)


def test_a_claim_holds_its_vgpu_and_its_gpu_while_a_vm_can_have_it(tmp_path: Path) -> None:
    gpu = factory.having(factory.gpu("NVIDIA A2"), (factory.kind("NVIDIA A2", "4Q"), 0))
    whole = RecordedDevice(("r",), "n-aliquot", "vm", gpu.uuid, uuid=gpu.uuid, vm="vfio")
    vgpu = RecordedDevice(("s",), "n-aliquot", "vm-0", gpu.uuid, uuid=gpu.vgpus[0].uuid, vm="A2-4Q")
    PreparedClaimFile(str(tmp_path)).save(ClaimRecords((RecordedClaim("u", "team", "vm", "boot", (whole, vgpu)),)))
    claims = claims_in(str(tmp_path), lambda _: None)
    found = with_claims(factory.node(gpu), claims((gpu,))).gpus[0]
    assert [str(each) for each in found.vgpus[0].holders] == ["claim team/vm"]
    assert found.holders == ()  # after a reboot no VM has the GPU, and the claim gets it again
    bound = msgspec.structs.replace(gpu, passthrough=True, vgpus=())
    assert [str(each) for each in with_claims(factory.node(bound), claims((bound,))).gpus[0].holders] == [
        "claim team/vm"
    ]


def test_a_user_without_rights_gets_one_note_and_a_broken_disk_stops_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    claims = claims_in(str(tmp_path), lines.append)
    assert claims(()) == ()

    def fail(error: StorageError) -> None:
        def load(_: object) -> ClaimRecords:
            raise error

        monkeypatch.setattr(PreparedClaimFile, "load", load)

    fail(StorageDeniedError("permission denied"))
    assert claims(()) == claims(()) == ()
    assert lines == ["note     the prepared ResourceClaims are not shown: permission denied"]
    fail(StorageError("input/output error"))
    with pytest.raises(StorageError):
        claims(())
