"""The node labels of gpu-feature-discovery (GFD), and those that it has no room for.

Names, values and the order of the checks are GFD's, so that schedulers, dashboards and selectors go on working. Where
GFD's outcome depends on chance (several products on a node: it goes through an unordered map), one of its possible
outcomes is always taken: the product with a GPU outside MIG mode before one without, then the one with the most GPUs,
then the one with the lowest index.

What that set cannot say stands under ``<product>.aliquot.dev/``, the product in lower case: no label of GFD or of the
GPU Operator has such a prefix. ``<product>.aliquot.dev/gpu.present`` is on every node that has the product, so that one
node selector finds it everywhere; on nodes with several products the whole set follows, as GFD would write it if that
product were alone (``nvidia-a100-sxm4-40gb.aliquot.dev/gpu.count``).
"""

from __future__ import annotations

import re

from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.errors import ConfigError
from aliquot.kubernetes.gpu import label_names as text
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.container_gpus import Card, attributes, cards, single_fault

PREFIX = "nvidia.com/"
OURS = ".aliquot.dev/"
PRESENT = "gpu.present"
"""The GPU Operator sets ``nvidia.com/gpu.present`` from PCI ids. We write it for clusters without the operator, and
leave its removal to the operator: GPUs bound to VFIO are present for it and unknown to the driver.
"""

_BASE = ("product", "count", "replicas", "sharing-strategy", "memory")
_MIG = (
    *("multiprocessors", "slices.gi", "slices.ci"),
    *("engines.copy", "engines.decoder", "engines.encoder", "engines.jpeg", "engines.ofa"),
)
_WHOLE = ("family", "compute.major", "compute.minor")
_VERSIONS = (
    *("cuda.driver.major", "cuda.driver.minor", "cuda.driver.rev"),
    *("cuda.driver-version.major", "cuda.driver-version.minor"),
    *("cuda.driver-version.revision", "cuda.driver-version.full"),
    *("cuda.runtime.major", "cuda.runtime.minor"),
    *("cuda.runtime-version.major", "cuda.runtime-version.minor", "cuda.runtime-version.full"),
)
_NODE = (
    "gfd.timestamp",
    "gpu.machine",
    "gpu.mode",
    "gpu.clique",
    "mig.capable",
    "mig.strategy",
    "mps.capable",
    "vgpu.present",
)
_GPU = re.compile("gpu[.](" + "|".join(map(re.escape, (*_BASE, *_MIG, *_WHOLE))) + ")")
_PROFILE = re.compile("mig-[0-9][A-Za-z0-9._-]*[.](" + "|".join(map(re.escape, (*_BASE, *_MIG))) + ")")


def labels(inventory: Inventory, facts: Facts, strategy: str, *, now: int) -> dict[str, str]:
    """Every label for a node under a MIG strategy (none, single, mixed). ``now``: seconds of the epoch. A GPU that
    containers cannot have (``cards``) counts nowhere; without any, only the time is left. Raises ConfigError.
    """
    if strategy not in names.STRATEGIES:
        raise ConfigError(f"{strategy!r} is not a MIG strategy", details=(f"known: {', '.join(names.STRATEGIES)}",))
    found = {"gfd.timestamp": str(now)}
    present, _ = cards(inventory, facts)
    if not present:
        return {PREFIX + name: value for name, value in found.items()}
    found |= _versions(facts) | _node(present, facts) | {PRESENT: "true"} | _resources(present, strategy)
    return {PREFIX + name: value for name, value in found.items()} | _keyed(present, strategy)


def owned(name: str) -> bool:
    """Whether a label is ours to remove when ``labels`` no longer gives it. All that it writes is, except
    ``nvidia.com/gpu.present`` (see ``PRESENT``); what others write below ``nvidia.com/`` never is.
    """
    if name.startswith(PREFIX):
        plain = name.removeprefix(PREFIX)
        return plain in _VERSIONS or plain in _NODE or bool(_GPU.fullmatch(plain) or _PROFILE.fullmatch(plain))
    product, dot, plain = name.partition(OURS)
    whole = plain == PRESENT or bool(_GPU.fullmatch(plain) or _PROFILE.fullmatch(plain))
    return bool(product and dot) and "/" not in product and whole


# -- the node


def _versions(facts: Facts) -> dict[str, str]:
    """The driver's version in its parts, twice, as GFD keeps its older names; CUDA's where it is known."""
    major, minor, revision = text.version_parts(facts.driver)
    full = text.value(facts.driver)
    found = dict(zip(_VERSIONS, (major, minor, revision, major, minor, revision, full), strict=False))
    if facts.cuda != (0, 0):
        cuda_major, cuda_minor = map(str, facts.cuda)
        both = (cuda_major, cuda_minor, cuda_major, cuda_minor, f"{cuda_major}.{cuda_minor}")
        found |= dict(zip(_VERSIONS[-5:], both, strict=True))
    return found


def _node(present: tuple[Card, ...], facts: Facts) -> dict[str, str]:
    """As in GFD, ``gpu.mode`` is unknown where GPUs differ, and ``gpu.clique`` is told only if all GPUs on a fabric
    share one. MPS is never on: this plugin does not share devices. Of a vGPU's host nothing but its being is known.
    """
    modes = {"graphics" if card.facts.display else "compute" for card in present}
    found = {
        "gpu.machine": text.value(facts.machine) or "unknown",
        "gpu.mode": modes.pop() if len(modes) == 1 else "unknown",
        "mig.capable": str(any(card.gpu.mig.capable for card in present)).lower(),
        "mps.capable": "false",
        "vgpu.present": str(any(card.facts.vgpu for card in present)).lower(),
    }
    cliques = {card.facts.clique for card in present if card.facts.clique}
    if len(cliques) == 1:
        found["gpu.clique"] = text.value(cliques.pop())
    return found


# -- GPUs and MIG devices


def _resources(present: tuple[Card, ...], strategy: str) -> dict[str, str]:
    """The set of some GPUs under a strategy, names without their prefix."""
    found = _whole(present)
    if strategy == "none":
        return found
    found["mig.strategy"] = strategy
    on = tuple(card for card in present if card.enabled)
    if strategy == "single":
        if on:
            found.pop("gpu.memory", None)  # the whole GPU's says nothing of its devices, whose own may be unknown
        return found | (_single(present, on) if on else {})
    for word in dict.fromkeys(text.profile_word(device.profile) for card in on for device in card.devices):
        of_it = _devices(f"mig-{word}", word, on)
        found |= {name: value for name, value in of_it.items() if text.is_name(name) and _PROFILE.fullmatch(name)}
    return found


def _whole(present: tuple[Card, ...]) -> dict[str, str]:
    """Whole GPUs, MIG mode or not: GFD counts them all. Replicas are 0 where every one is in MIG mode."""
    mine = _leading(present)
    outside = [card for card in mine if not card.enabled]
    sample = (outside or mine)[0]
    found = {
        "gpu.product": text.product_value(sample.gpu.product),
        "gpu.count": str(len(mine)),
        "gpu.replicas": "1" if outside else "0",
        "gpu.sharing-strategy": "none",
    }
    if sample.facts.memory_mib:
        found["gpu.memory"] = str(sample.facts.memory_mib)
    if sample.facts.compute_capability[0]:
        major, minor = map(str, sample.facts.compute_capability)
        found |= {"gpu.compute.major": major, "gpu.compute.minor": minor}
        found["gpu.family"] = text.family(sample.facts.compute_capability)
    return found


def _single(present: tuple[Card, ...], on: tuple[Card, ...]) -> dict[str, str]:
    """What strategy single says instead of the whole GPUs' values: of the one profile, or that there is not one."""
    if single_fault(present) is None:
        return _devices("gpu", text.profile_word(on[0].devices[0].profile), on)
    invalid = {"count": "0", "replicas": "0", "memory": "0", "sharing-strategy": ""}
    invalid["product"] = text.product_value(on[0].gpu.product, "MIG", "INVALID")
    return {f"gpu.{name}": value for name, value in invalid.items()}


def _devices(resource: str, word: str, on: tuple[Card, ...]) -> dict[str, str]:
    """The MIG devices of one profile, which is written ``word``."""
    all_of_it = {card.gpu.pci: [d for d in card.devices if text.profile_word(d.profile) == word] for card in on}
    sample = _leading(tuple(card for card in on if all_of_it[card.gpu.pci]))[0]
    device = all_of_it[sample.gpu.pci][0]
    found = {
        "product": text.product_value(sample.gpu.product, "MIG", word),
        "count": str(sum(map(len, all_of_it.values()))),
        "replicas": "1",
        "sharing-strategy": "none",
    }
    found |= {name: str(number) for name, number in attributes(device).items() if number >= 0}
    return {f"{resource}.{name}": value for name, value in found.items()}


# -- several products


def _leading(some: tuple[Card, ...]) -> tuple[Card, ...]:
    """The GPUs of the product that speaks for all (see above)."""
    groups: dict[str, list[Card]] = {}
    for card in some:
        groups.setdefault(card.gpu.product, []).append(card)

    def weight(group: list[Card]) -> tuple[bool, int, int]:
        return any(not card.enabled for card in group), len(group), -group[0].gpu.index

    chosen = max(groups.values(), key=weight)
    return tuple(chosen)


def _keyed(present: tuple[Card, ...], strategy: str) -> dict[str, str]:
    """The labels under a prefix of the product's own."""
    groups: dict[str, list[Card]] = {}
    for card in present:
        groups.setdefault(text.subdomain(card.gpu.product), []).append(card)
    found: dict[str, str] = {}
    for product, mine in groups.items():
        own = {PRESENT: "true"} | (_resources(tuple(mine), strategy) if len(groups) > 1 else {})
        own.pop("mig.strategy", None)  # the node's, not the product's
        found |= {f"{product}{OURS}{name}": value for name, value in own.items() if product}
    return found
