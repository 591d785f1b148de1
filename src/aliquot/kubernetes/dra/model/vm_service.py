"""The devices that a node gives VMs of a GPU, as far as the planner can ever create them there. Pure.

A GPU that serves VMs offers nothing to pods: NVIDIA's vGPU host driver runs no CUDA program beside its vGPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.core.model.actions import Reset, SetMode
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.plan import plan
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED, profile_of
from aliquot.core.planner.vgpu.rules import find_type
from aliquot.errors import UsageError
from aliquot.kubernetes.dra.model.device import ModeChanges

ALL_GPUS, MIG_BACKED = "all", "mig-backed"


class VmService(msgspec.Struct, frozen=True):
    """The devices that VMs may get of a GPU. The whole function is always among them."""

    time_sliced: str = ""
    """The one time-sliced vGPU type of the GPU, by full or short name. Its size is then the size of all vGPUs at a
    time, which the driver demands and no counter can choose. Empty for none.
    """
    mig_backed: bool = False
    """For each MIG profile, the vGPU type that has a GPU instance for itself."""


class VmPolicy(msgspec.Struct, frozen=True):
    """The GPUs of a node that serve VMs, and what they offer. By default none does."""

    every: VmService | None = None
    """For every GPU that is not named."""
    named: dict[str, VmService] = {}
    """By PCI address."""

    def __bool__(self) -> bool:
        return self.every is not None or bool(self.named)

    def of(self, inventory: Inventory) -> dict[str, VmService]:
        """Return the service of each GPU that serves VMs, by PCI address."""
        found = {gpu.pci: self.named.get(gpu.pci, self.every) for gpu in inventory.gpus}
        return {pci: service for pci, service in found.items() if service is not None}


def read_vm_policy(text: str) -> VmPolicy:
    """Read ``GPU[=KIND[+KIND]]`` in a comma list: GPU is ``all`` or a PCI address, KIND ``mig-backed`` or a type.

    Raises UsageError.
    """
    every: VmService | None = None
    named: dict[str, VmService] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        word, _, kinds = entry.partition("=")
        service = _read_service(entry, [kind.strip() for kind in kinds.split("+") if kind.strip()])
        if word == ALL_GPUS:
            _refuse_second(word, every)
            every = service
            continue
        try:
            pci = pci_address(word)
        except ValueError as error:
            step = f"aliquot agent --claims --dra-vm {ALL_GPUS}"
            raise UsageError(
                f"--dra-vm {entry}: {word} is neither a PCI address nor {ALL_GPUS}", next_step=step
            ) from error
        _refuse_second(word, named.get(pci))
        named[pci] = service
    return VmPolicy(every, named)


def _refuse_second(word: str, previous: VmService | None) -> None:
    if previous is not None:
        raise UsageError(f"--dra-vm: {word} is named twice", next_step="name each GPU once, and all its kinds with +")


def _read_service(entry: str, kinds: list[str]) -> VmService:
    types = [kind for kind in kinds if kind != MIG_BACKED]
    if len(types) > 1:
        raise UsageError(
            f"--dra-vm {entry}: {' and '.join(types)} are several types, and a GPU has time-sliced vGPUs of one",
            next_step="name one type for each GPU",
        )
    return VmService(types[0] if types else "", MIG_BACKED in kinds)


class ServedTypes(msgspec.Struct, frozen=True):
    """The devices that the planner can create on a GPU for VMs."""

    passthrough: bool = False
    time_sliced: VgpuType | None = None
    count: int = 0
    """How many time-sliced vGPUs fit."""
    mig_backed: tuple[tuple[Profile, VgpuType], ...] = ()
    refusals: tuple[str, ...] = ()
    """A sentence for each part of the service that is impossible."""


def served_types(inventory: Inventory, gpu: Gpu, service: VmService, mode_changes: ModeChanges) -> ServedTypes:
    """Ask the planner what of a service is possible on this GPU while nothing is on it."""
    bare = _emptied(gpu)
    node = msgspec.structs.replace(inventory, gpus=tuple(bare if g.pci == gpu.pci else g for g in inventory.gpus))
    refusals: list[str] = []

    def possible(desired: DesiredGpu, what: str) -> bool:
        refusal = _refusal(node, desired, mode_changes)
        if refusal:
            refusals.append(f"GPU {gpu.pci} does not offer VMs {what}: {refusal}")
        return not refusal

    passthrough = possible(DesiredGpu(gpu.pci, None, None, passthrough=True), "the whole GPU")
    if not gpu.uuid:  # what others did is not undone for a claim
        if service != VmService():
            refusals.append(
                f"GPU {gpu.pci} offers VMs only the whole GPU: another program passed it through. "
                f"For its vGPUs too, type: aliquot passthrough disable {gpu.pci}"
            )
        return ServedTypes(passthrough, refusals=tuple(refusals))
    table = inventory.vgpu_table(gpu)
    sliced: VgpuType | None = None
    if service.time_sliced:
        found = find_type(table, 0, service.time_sliced, gpu.product)
        if isinstance(found, RuleRefusal) or found.mig_backed:
            why = found.message if isinstance(found, RuleRefusal) else "it is MIG-backed: name mig-backed instead"
            what = f"{service.time_sliced}: {why} (see aliquot vgpu types {gpu.pci})"
            refusals.append(f"GPU {gpu.pci} does not offer VMs {what}")
        elif possible(_sliced(gpu, found), found.short):
            sliced = found
    known = _backed_types(inventory, gpu) if service.mig_backed else ()
    if service.mig_backed and not known:
        refusals.append(f"GPU {gpu.pci} does not offer VMs MIG-backed vGPUs: {gpu.product} has none")
    backed = tuple((profile, each) for profile, each in known if possible(_backed(gpu, profile, each), each.short))
    return ServedTypes(passthrough, sliced, _count(gpu, sliced), backed, tuple(refusals))


def _backed_types(inventory: Inventory, gpu: Gpu) -> tuple[tuple[Profile, VgpuType], ...]:
    table = inventory.vgpu_table(gpu)
    if table is None or not (gpu.mig.capable and gpu.family):
        return ()
    return tuple(backed_types(inventory.family(gpu), table))


def backed_types(family: Family, table: VgpuTable) -> Iterator[tuple[Profile, VgpuType]]:
    """Yield for each profile the first type that has a GPU instance for itself, in the order of profiles.

    Of types that share an instance, the scheduler could not know which one an instance has.
    """
    numbers = {name: profile.id for name, profile in family.by_name.items()}
    types = [each for each in table.types if each.mig_backed and each.per_instance == 1 and each.id is not None]
    for profile in family.profiles:
        found = next((each for each in types if profile_of(each, numbers) == profile.id), None)
        if found is not None:
            yield profile, found


def _emptied(gpu: Gpu) -> Gpu:
    virtual = gpu.virtual
    if virtual is not None:
        functions = tuple(msgspec.structs.replace(each, driver="", holders=()) for each in virtual.functions)
        listed = None if gpu.vgpus or gpu.instances else virtual.creatable  # the driver lists what fits beside them
        virtual = msgspec.structs.replace(virtual, functions=functions, creatable=listed)
    return msgspec.structs.replace(gpu, holders=(), instances=(), vgpus=(), virtual=virtual)


def _sliced(gpu: Gpu, vgpu_type: VgpuType) -> DesiredGpu:
    return DesiredGpu(gpu.pci, False if gpu.mig.capable else None, (), vgpus=(_wanted(vgpu_type),))


def _backed(gpu: Gpu, profile: Profile, vgpu_type: VgpuType) -> DesiredGpu:
    instance = DesiredInstance(profile.id, profile.name, (profile.default_compute.id,))
    return DesiredGpu(gpu.pci, True, (instance,), vgpus=(_wanted(vgpu_type),))


def _wanted(vgpu_type: VgpuType) -> DesiredVgpu:
    return DesiredVgpu(vgpu_type.id or 0, vgpu_type.name)


def _refusal(node: Inventory, desired: DesiredGpu, mode_changes: ModeChanges) -> str:
    """Return why the GPU cannot get there by a plan that a claim may run; "" if it can."""
    made = plan(node, Desired((desired,)))
    if made.blockers:
        return made.blockers[0].message
    if made.reboots:
        return "MIG mode changes only with a reboot"
    changes = any(isinstance(action, SetMode) for action in made.actions)
    resets = any(isinstance(action, Reset) for action in made.actions)
    if (changes and mode_changes == "never") or (resets and mode_changes != "any"):
        how = "any" if resets else "without-reset"
        return f"its MIG mode would have to change (to allow it: --dra-mode-changes {how}, or dra.modeChanges)"
    return ""


def _count(gpu: Gpu, vgpu_type: VgpuType | None) -> int:
    """Return how many time-sliced vGPUs of a type fit. Each needs a virtual function, unless the GPU has none."""
    if vgpu_type is None:
        return 0
    functions = len(gpu.virtual.addresses) if gpu.virtual is not None else 0
    return min(vgpu_type.max, MOST_TIME_SLICED, functions or MOST_TIME_SLICED)
