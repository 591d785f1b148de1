"""A stub source with fixed observations: nodes of every kind, healthy and failed, for tests of pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.core.model.inventory import Gpu, Holder, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift, DriftInstance
from aliquot.core.model.usage import Usage
from aliquot.core.rendering import mig_picture
from aliquot.dashboard.change_requests import AnyChangeRequest
from aliquot.dashboard.claim_views import ClaimableGpu, ClaimableProfile, ClaimRow, ClaimsView
from aliquot.dashboard.view_models import (
    SIMULATOR,
    ActionLine,
    ChangeOutcome,
    ChangePreview,
    GpuPicture,
    MigRow,
    ObservedFleet,
    ObservedNode,
    Obstacle,
    PastChange,
    Person,
    ProfileRow,
    SriovRow,
    VgpuRow,
    VirtualizationView,
    VmDeviceRow,
    VmRow,
)
from support import factory, vgpufactory

NOW = 1_790_000_000.0
replace = msgspec.structs.replace
PROCESS = Holder("process", "4711", "python")

HOSTILE = (
    "<script>alert('name')</script>",
    "rtl-\u202egnp.exe\u202c-\u05e9\u05dc\u05d5\u05dd",
    "x" * 300,
    "line\nbreak\r\n and\ttab\x00",
    "\"'><img src=x onerror=alert(1)>&amp;{{ 7*7 }}",
    "space and ünïcödé 🦜",
    "../../etc/passwd",
)
"""Names that break careless pages."""


def held(inventory: Inventory, index: int, *numbers: int, by: Holder = PROCESS) -> Inventory:
    """Add a holder to the instances with these numbers, in the order of slices."""
    gpu = inventory.gpus[index]
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    chosen = {ordered[n].id for n in numbers}
    made = tuple(replace(i, held=True, holders=(by,)) if i.id in chosen else i for i in gpu.instances)
    return with_gpu(inventory, index, replace(gpu, instances=made))


def with_gpu(inventory: Inventory, index: int, gpu: Gpu) -> Inventory:
    gpus = tuple(gpu if n == index else g for n, g in enumerate(inventory.gpus))
    return replace(inventory, gpus=gpus)


def dgx(name: str = "dgx-1") -> Inventory:
    """Build eight A100: full, with holes, empty, held without MIG, with attributes, lost, with drift."""
    made = replace(factory.inventory("a100-sxm4-40gb*8", enabled=True), node=name)
    made = factory.with_instances(made, 0, "1g.5gb@1", "3g.20gb@4")
    made = factory.with_instances(made, 1, *(f"1g.5gb@{n}" for n in range(7)))
    made = factory.with_instances(made, 2, "4g.20gb@0", "2g.10gb@4", "1g.5gb@6")
    made = factory.with_instances(made, 4, "1g.5gb+me@0", "3g.20gb@4:1c.3g.20gb;2c.3g.20gb")
    made = factory.with_instances(made, 5, "7g.40gb@0")
    made = factory.with_instances(made, 6, "1g.5gb@0", "1g.5gb@2", "2g.10gb@4")
    made = held(held(held(made, 0, 1), 1, *range(7)), 2, 0, 2)
    made = held(held(made, 4, 0), 6, 1)
    off = factory.gpu("a100-sxm4-40gb", 7)
    made = with_gpu(made, 7, replace(off, holders=(Holder("pod", "training/bert-0", ""),)))
    return with_gpu(made, 5, replace(made.gpus[5], lost=True))


def a2(name: str = "edge-a2") -> Inventory:
    """Build an A2 with virtual functions and four A2-4Q, which is full."""
    gpu = vgpufactory.gpu("NVIDIA A2")
    kind = vgpufactory.kind("NVIDIA A2", "4Q")
    full = vgpufactory.having(gpu, *((kind, n) for n in range(4)), held=(1,))
    return replace(vgpufactory.node(full), node=name)


def l40s(name: str = "render-l40s") -> Inventory:
    """Build an L40S in mixed-size mode, and one that is passed through whole."""
    gpu = vgpufactory.gpu("NVIDIA L40S", mixed=True)
    small, large = vgpufactory.kind("NVIDIA L40S", "8Q"), vgpufactory.kind("NVIDIA L40S", "16Q")
    mixed = vgpufactory.having(gpu, (large, 0, 0), (small, 1, 16), (small, 2, 40), held=(0,))
    unavailable = replace(vgpufactory.gpu("NVIDIA L40S", pci="0000:0a:00.0", on=False), passthrough=True, index=1)
    return replace(vgpufactory.node(mixed, unavailable), node=name)


def usage(inventory: Inventory) -> tuple[Usage, ...]:
    """Build usage for the instances of every other GPU."""
    out = []
    for gpu in inventory.gpus[::2]:
        for n, i in enumerate(gpu.instances):
            total = 4864 * i.place.size
            since = None if i.held else NOW - 3 * 3600
            out.append(
                Usage(gpu.pci, i.id, i.profile, 900 * (n + 1), total, 0.37 if i.held else None, "gpm", since, 2048)
            )
    return tuple(out)


def fleet() -> ObservedFleet:
    """Build a fleet with everything that a page must be able to show."""
    one = dgx()
    drift = (
        Drift(
            one.gpus[6].pci,
            "missing",
            f"GPU {one.gpus[6].pci}: 1 x 3g.20gb at memory slice 4 missing",
            "x",
            "y",
            DriftInstance("3g.20gb", "4:4"),
        ),
        Drift(
            one.gpus[6].pci,
            "extra",
            f"GPU {one.gpus[6].pci}: 2g.10gb at 4:2 (id 3) should not be there",
            "x",
            "y",
            DriftInstance("2g.10gb", "4:2", 3, ("2g.10gb",)),
        ),
    )
    h100 = replace(factory.inventory("h100-80gb-hbm3*2", enabled=True), node="dgx-h100")
    h100 = factory.with_instances(h100, 0, "1g.10gb@0", "2g.20gb@2", "3g.40gb@4")
    observations = [
        ObservedNode("dgx-1", one, NOW, desired="train", drift=drift, usage=usage(one), revision=1),
        ObservedNode("dgx-h100", h100, NOW, changing="ana, from the page", revision=2),
        ObservedNode("edge-a2", a2(), NOW, revision=3),
        ObservedNode("render-l40s", l40s(), NOW, revision=4),
        ObservedNode(
            "gone-1",
            replace(dgx("gone-1"), gpus=dgx().gpus[:2]),
            NOW - 4000,
            "the agent has not answered since 09:12",
            "kubectl get pods -n aliquot",
            revision=5,
        ),
        ObservedNode("never-read", error="no route to host", revision=6),
        *(
            ObservedNode(name, replace(dgx(name), gpus=dgx().gpus[:1]), NOW, error=name if n % 2 else "", revision=7)
            for n, name in enumerate(HOSTILE)
        ),
    ]
    return ObservedFleet(tuple(sorted(observations, key=lambda n: n.name)), 1, ready=True)


def many(count: int, gpus: int = 8) -> ObservedFleet:
    """Build a large fleet with the GPUs of ``dgx-1`` in other orders."""
    observations = []
    base = dgx()
    for n in range(count):
        turned = tuple(base.gpus[(n + k) % 8] for k in range(gpus))
        inventory = replace(base, node=f"node-{n:04}", gpus=turned)
        failure = "does not answer" if n % 97 == 0 else ""
        observations.append(ObservedNode(f"node-{n:04}", inventory, NOW, failure, revision=n + 1))
    return ObservedFleet(tuple(observations), 1, ready=True)


def virtual() -> VirtualizationView:
    """Build rows: a full and an idle A2, an unmet MIG configuration, VMs with and without rules."""
    full = [
        VgpuRow("edge-a2", f"0000:08:0{n // 8}.{n % 8}", f"0000:08:0{n // 8}.{n % 8}", "0000:08:00.0", "NVIDIA A2")
        for n in range(4, 20)
    ]
    rows = [
        replace(r, type="NVIDIA A2-4Q", uuid=f"00000000-0000-4000-8000-{n:012}", holders=("vm win-1",) * (n == 1))
        if n < 4
        else r
        for n, r in enumerate(full)
    ]
    rows[1] = replace(rows[1], why_not="it is held by vm win-1")
    free = VgpuRow("edge-b", "0000:09:00.4", "0000:09:00.4", "0000:09:00.0", "NVIDIA A2", types=("A2-4Q", "A2-8Q"))
    profiles = (ProfileRow("1g.5gb", 19, 2, 1, 4, 7), ProfileRow("3g.20gb", 9, 1, 1, 0, 2))
    q = VmDeviceRow("0000:08:00.5", "edge-a2", "NVIDIA A2-4Q", "0000:08:00.0", several=True)
    c = VmDeviceRow("0000:08:00.6", "edge-a2", "NVIDIA A2-4C", "0000:08:00.0", several=False)
    return VirtualizationView(
        sriov=(
            SriovRow("edge-a2", "0000:08:00.0", "NVIDIA A2", "edge-a2-000008000", True, 16, 16, 4, "16 functions"),
            SriovRow("edge-b", "0000:09:00.0", "NVIDIA A2", "0000:09:00.0", False, 0, 16, 0, "off"),
            SriovRow("edge-c", "0000:0a:00.0", "NVIDIA A2", "0000:0a:00.0", False, 0, 16, 0, "", "it is in use"),
        ),
        vgpus=(*rows, free),
        migs=(
            MigRow("dgx-1", "0000:07:00.0", "NVIDIA A100-SXM4-40GB", "x", True, "out-of-sync", profiles),
            MigRow("dgx-1", "0000:0f:00.0", "NVIDIA A100-SXM4-40GB", "y", False, "disabled", profiles, "it is in use"),
        ),
        vms=(
            VmRow("win-1", "default", "edge-a2", True, (q,), (q, c), ("of an A2 only Q-series may be several",)),
            VmRow("lonely", "", "edge-b", False),
            VmRow(HOSTILE[0], HOSTILE[1], HOSTILE[3], True, (c,), (replace(c, id=HOSTILE[4]),), (HOSTILE[0],)),
        ),
    )


def claims() -> ClaimsView:
    """Build claims with and without problems, and what is left of a GPU."""
    product, gpu = "NVIDIA A100-SXM4-40GB", "0000:07:00.0"
    rows = (
        ClaimRow("ml", "train", "dgx-1", gpu, product, "gpu-0-mig-3g20gb-9-4", "3g.20gb at 4:4", ("train-0",)),
        ClaimRow("ml", "watch", "dgx-1", gpu, product, "gpu-0", "whole GPU", (), True),
        ClaimRow("ml", "lost", "dgx-1", "", "", "gpu-9", "", ("a", "b"), problem="no slice has it"),
        *(ClaimRow(name, name, name, name, name, name, name, (name, name), problem=name) for name in HOSTILE),
    )
    profiles = (
        ClaimableProfile("1g.5gb", 3, more=True),
        ClaimableProfile("3g.20gb", 1),
        ClaimableProfile("7g.40gb", 0, "claim ml/train has room that it needs"),
        *(ClaimableProfile(name, 0, name) for name in HOSTILE),
    )
    problems = ("gpu-9 is allocated and not published", HOSTILE[0])
    room = ClaimableGpu("gpu.aliquot.dev", "dgx-1-aliquot", gpu, product, profiles, problems)
    return ClaimsView(rows, (room, msgspec.structs.replace(room, gpu="0000:0f:00.0", profiles=())))


def changing(node: str = "dgx-1") -> ChangePreview:
    """Build a preview that destroys two instances and creates one."""
    inventory = dgx(node)
    before = mig_picture.current_instances(inventory.gpus[2])
    after = (before[0], mig_picture.DrawnInstance("d", "3g.20gb", Placement(4, 4), fresh=True))
    picture = GpuPicture(
        node, inventory.gpus[2].pci, mig_picture.title(inventory.gpus[2]), 8, before, after, "now", "then"
    )
    pci = inventory.gpus[2].pci
    actions = (
        ActionLine(node, pci, "destroy", "b", "2g.10gb at 4:2", "blocks d", "2g.10gb", "4:2"),
        ActionLine(node, pci, "destroy", "c", "1g.5gb at 6:1", "blocks d", "1g.5gb", "6:1"),
        ActionLine(node, pci, "create", "d", "3g.20gb at 4:4", "asked", "3g.20gb", "4:4"),
    )
    summary = "keep 1, destroy 2, create 1"
    return ChangePreview("3g.20gb on GPU 2", (node,), (picture,), actions, summary=summary, kept=1)


def blocked(node: str = "dgx-1") -> ChangePreview:
    obstacle = Obstacle(
        "HELD", "c is held", node, "0000:47:00.0", ("process 4711 (python)",), "4g.20gb,2g.10gb", "aliquot show"
    )
    return ChangePreview("3g.20gb on GPU 2", (node,), changing(node).pictures, obstacles=(obstacle,))


CHANGES = (
    PastChange(
        "dgx-1", NOW - 60, NOW - 58, "ana", "3g.20gb on GPU 2", "done", ("create d 3g.20gb at 4:4",), "all as asked"
    ),
    PastChange("dgx-1", 0, 0, "", "cut off", "cut off"),
    PastChange(HOSTILE[0], NOW - 90, NOW - 30, HOSTILE[1], HOSTILE[4], "undone", (HOSTILE[3],), HOSTILE[2]),
)


class StubSource:
    """A source that shows ``fleet``. Every preview is ``preview``, every outcome ``done``."""

    title = "canned"

    def __init__(
        self,
        fleet: ObservedFleet,
        virtual: VirtualizationView | None = None,
        *,
        preview: ChangePreview | None = None,
        done: ChangeOutcome | None = None,
        forbidden: Sequence[str] = (),
        configs: tuple[str, ...] = (),
        changes: tuple[PastChange, ...] = CHANGES,
        claimed: ClaimsView | None = None,
        kind: str = SIMULATOR,
    ) -> None:
        self.kind = kind
        self.fleet = fleet
        self._claims = claimed or ClaimsView()
        self.steps: StepListener = ignore_step
        self.virtual = virtual or VirtualizationView()
        self.configs = configs
        self._preview, self._done, self._forbidden = (
            preview or changing(),
            done or ChangeOutcome("done", "as asked"),
            forbidden,
        )
        self._changes = changes
        self.asked: list[AnyChangeRequest] = []

    def claims(self, node: str = "") -> ClaimsView:
        if not node:
            return replace(self._claims, room=())
        return replace(self._claims, rows=tuple(row for row in self._claims.rows if row.node == node))

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def changed(self, since: int) -> None:
        while self.fleet.revision == since:
            await asyncio.sleep(0.01)

    async def preview(self, ask: AnyChangeRequest, who: Person) -> ChangePreview:
        self.asked.append(ask)
        return self._preview

    async def execute(self, preview: ChangePreview, who: Person, report: Callable[[str], None]) -> ChangeOutcome:
        for act in preview.actions:
            report(f"{act.verb} {act.letter} {act.what}")
        return self._done

    async def history(self, node: str | None = None, most: int = 200) -> tuple[PastChange, ...]:
        return tuple(c for c in self._changes if node in (None, c.node))[:most]

    async def may(self, who: Person, what: str) -> str:
        return f"you may not ask for {what}" if what in self._forbidden else ""

    async def aclose(self) -> None:
        pass
