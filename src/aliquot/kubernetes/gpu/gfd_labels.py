"""Node labels of gpu-feature-discovery (GFD), and labels per product that GFD does not have.

Names, values and the order of the checks are GFD's, so that schedulers, dashboards and selectors keep working. If a
node has several products, GFD's result depends on the order of an unordered map, and Aliquot chooses one of the
possible results. A product with a GPU outside MIG mode comes first, then the one with the most GPUs, then the one with
the lowest index.

Labels per product have the prefix ``<product>.aliquot.dev/`` with the product in lower case, which no label of GFD or
the GPU Operator has. Every node with the product has ``<product>.aliquot.dev/gpu.present``, so one node selector finds
them all. On a node with several products, each product also has the whole set of labels that GFD would write for a
node with only that product, such as ``nvidia-a100-sxm4-40gb.aliquot.dev/gpu.count``.
"""

from __future__ import annotations

import re

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu import label_names as text
from aliquot.kubernetes.gpu.container_gpus import ContainerGpu, attributes, single_strategy_error, usable_gpus

PREFIX = "nvidia.com/"
OURS = ".aliquot.dev/"
PRESENT = "gpu.present"
"""The GPU Operator sets ``nvidia.com/gpu.present`` from PCI ids. Aliquot sets it for clusters without the operator, but
never removes it: the operator counts GPUs bound to VFIO as present, but the driver does not see them.
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


def labels(inventory: Inventory, facts: Facts, strategy: MigStrategy, *, now: int) -> dict[str, str]:
    """Return all labels of a node under a MIG strategy (none, single, mixed). ``now`` is in seconds since the epoch.

    Only GPUs that containers can use (``usable_gpus``) count. Without any, only the timestamp remains.
    """
    found = {"gfd.timestamp": str(now)}
    gpus, _ = usable_gpus(inventory, facts)
    if not gpus:
        return {PREFIX + name: value for name, value in found.items()}
    found |= _version_labels(facts) | _node_labels(gpus, facts) | {PRESENT: "true"} | _resource_labels(gpus, strategy)
    return {PREFIX + name: value for name, value in found.items()} | _product_labels(gpus, strategy)


def is_own_label(name: str) -> bool:
    """Report whether Aliquot may remove a label that ``labels`` no longer returns.

    True for all labels that it writes except ``nvidia.com/gpu.present`` (see ``PRESENT``), and False for labels of
    other programs under ``nvidia.com/``.
    """
    if name.startswith(PREFIX):
        plain = name.removeprefix(PREFIX)
        return plain in _VERSIONS or plain in _NODE or bool(_GPU.fullmatch(plain) or _PROFILE.fullmatch(plain))
    product, dot, plain = name.partition(OURS)
    whole = plain == PRESENT or bool(_GPU.fullmatch(plain) or _PROFILE.fullmatch(plain))
    return bool(product and dot) and "/" not in product and whole


# -- the node


def _version_labels(facts: Facts) -> dict[str, str]:
    """Return the parts of the driver version under GFD's new and old names, and of the CUDA version if known."""
    major, minor, revision = text.version_parts(facts.driver)
    full = text.value(facts.driver)
    found = dict(zip(_VERSIONS, (major, minor, revision, major, minor, revision, full), strict=False))
    if facts.cuda != (0, 0):
        cuda_major, cuda_minor = map(str, facts.cuda)
        both = (cuda_major, cuda_minor, cuda_major, cuda_minor, f"{cuda_major}.{cuda_minor}")
        found |= dict(zip(_VERSIONS[-5:], both, strict=True))
    return found


def _node_labels(gpus: tuple[ContainerGpu, ...], facts: Facts) -> dict[str, str]:
    """Return the labels of the node.

    As in GFD, ``gpu.mode`` is unknown if the GPUs differ, and ``gpu.clique`` exists only if all GPUs on a fabric share
    one. MPS is always off, as Aliquot's device plugin does not share devices. Of the host of a vGPU, nothing is known.
    """
    modes = {"graphics" if container_gpu.facts.display else "compute" for container_gpu in gpus}
    found = {
        "gpu.machine": text.value(facts.host_product) or "unknown",
        "gpu.mode": modes.pop() if len(modes) == 1 else "unknown",
        "mig.capable": str(any(container_gpu.gpu.mig.capable for container_gpu in gpus)).lower(),
        "mps.capable": "false",
        "vgpu.present": str(any(container_gpu.facts.vgpu for container_gpu in gpus)).lower(),
    }
    cliques = {container_gpu.facts.clique for container_gpu in gpus if container_gpu.facts.clique}
    if len(cliques) == 1:
        found["gpu.clique"] = text.value(cliques.pop())
    return found


# -- GPUs and MIG devices


def _resource_labels(gpus: tuple[ContainerGpu, ...], strategy: MigStrategy) -> dict[str, str]:
    """Return the labels of some GPUs under a strategy, without prefix."""
    found = _whole_gpu_labels(gpus)
    if strategy == "none":
        return found
    found["mig.strategy"] = strategy
    mig_gpus = tuple(container_gpu for container_gpu in gpus if container_gpu.enabled)
    if strategy == "single":
        if mig_gpus:
            found.pop("gpu.memory", None)  # a GPU's memory is not that of its devices, which may be unknown
        return found | (_single_labels(gpus, mig_gpus) if mig_gpus else {})
    for word in dict.fromkeys(
        text.profile_word(device.profile) for container_gpu in mig_gpus for device in container_gpu.devices
    ):
        profile_labels = _mig_labels(f"mig-{word}", word, mig_gpus)
        found |= {
            name: value for name, value in profile_labels.items() if text.is_name(name) and _PROFILE.fullmatch(name)
        }
    return found


def _whole_gpu_labels(gpus: tuple[ContainerGpu, ...]) -> dict[str, str]:
    """Return the labels of whole GPUs, in MIG mode or not like GFD. Replicas are 0 if all are in MIG mode."""
    product_gpus = _leading_product(gpus)
    outside = [container_gpu for container_gpu in product_gpus if not container_gpu.enabled]
    sample = (outside or product_gpus)[0]
    found = {
        "gpu.product": text.product_value(sample.gpu.product),
        "gpu.count": str(len(product_gpus)),
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


def _single_labels(gpus: tuple[ContainerGpu, ...], mig_gpus: tuple[ContainerGpu, ...]) -> dict[str, str]:
    """Return the labels with which strategy single replaces those of whole GPUs: of the one profile, or invalid."""
    if single_strategy_error(gpus) is None:
        return _mig_labels("gpu", text.profile_word(mig_gpus[0].devices[0].profile), mig_gpus)
    invalid = {"count": "0", "replicas": "0", "memory": "0", "sharing-strategy": ""}
    invalid["product"] = text.product_value(mig_gpus[0].gpu.product, "MIG", "INVALID")
    return {f"gpu.{name}": value for name, value in invalid.items()}


def _mig_labels(resource: str, word: str, mig_gpus: tuple[ContainerGpu, ...]) -> dict[str, str]:
    """Return the labels of the MIG devices of one profile; ``word`` is the profile as written in labels."""
    all_of_it = {
        container_gpu.gpu.pci: [d for d in container_gpu.devices if text.profile_word(d.profile) == word]
        for container_gpu in mig_gpus
    }
    sample = _leading_product(tuple(container_gpu for container_gpu in mig_gpus if all_of_it[container_gpu.gpu.pci]))[0]
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


def _leading_product(gpus: tuple[ContainerGpu, ...]) -> tuple[ContainerGpu, ...]:
    """Return the GPUs of the product that the unprefixed labels describe; the module docstring has the order."""
    groups: dict[str, list[ContainerGpu]] = {}
    for container_gpu in gpus:
        groups.setdefault(container_gpu.gpu.product, []).append(container_gpu)

    def weight(group: list[ContainerGpu]) -> tuple[bool, int, int]:
        return any(not container_gpu.enabled for container_gpu in group), len(group), -group[0].gpu.index

    chosen = max(groups.values(), key=weight)
    return tuple(chosen)


def _product_labels(gpus: tuple[ContainerGpu, ...], strategy: MigStrategy) -> dict[str, str]:
    """Return the labels with a product's prefix."""
    groups: dict[str, list[ContainerGpu]] = {}
    for container_gpu in gpus:
        groups.setdefault(text.subdomain(container_gpu.gpu.product), []).append(container_gpu)
    found: dict[str, str] = {}
    for product, product_gpus in groups.items():
        own = {PRESENT: "true"} | (_resource_labels(tuple(product_gpus), strategy) if len(groups) > 1 else {})
        own.pop("mig.strategy", None)  # the node's, not the product's
        found |= {f"{product}{OURS}{name}": value for name, value in own.items() if product}
    return found
