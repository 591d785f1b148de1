"""Labels that look like ones we act on and are not: a sentence for each, since nothing would happen without a word.

NVIDIA's own documentation has one (``nvidia.con/mig.config``, GPU Operator with MIG, "Disabling MIG").
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher

from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.label_text import product_value

PRODUCT_LABEL = "nvidia.com/gpu.product"

_DOMAIN, _, _WANTED = names.CONFIG_LABEL.partition("/")
_OTHERS = ("mig.config.state", "mig.strategy", "mig.capable", "vgpu.config", "vgpu.config.state", "gpu.count")
"""Names of NVIDIA's own labels: what is nearer to one of them was meant to be that."""

_CLOSE_NAME = 0.8
_CLOSE_DOMAIN = 0.85
"""How alike two texts must be, 0 to 1, separators and case aside: a letter or two of either part."""


def near_misses(labels: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence for each label of a node that was surely meant to be ``nvidia.com/mig.config``; by name."""
    return tuple(
        f"label {name}={labels[name]} does nothing: {names.CONFIG_LABEL} was probably meant"
        for name in sorted(labels)
        if _near(name)
    )


def _near(label: str) -> bool:
    domain, slash, name = label.rpartition("/")
    if label == names.CONFIG_LABEL:
        return False
    if not slash:
        return _alike(name, _WANTED) == 1
    if not _plain(domain).startswith("nvidia") and _alike(domain, _DOMAIN) < _CLOSE_DOMAIN:
        return False
    alike = _alike(name, _WANTED)
    return alike >= _CLOSE_NAME and all(_alike(name, other) < alike for other in _OTHERS)


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, _plain(one), _plain(other), autojunk=False).ratio()


def _plain(name: str) -> str:
    """A name without what people get wrong: case, separators of words."""
    return "".join(c for c in name.lower() if c not in "-_. ")


def near_products(selector: Mapping[str, str], present: Mapping[str, str]) -> tuple[str, ...]:
    """Why a pod's node selector misses a node that has the GPU: a sentence where its ``nvidia.com/gpu.product`` is not
    the node's (``present``) but stands for the same product: without ``NVIDIA-``, in another case, with other
    separators, or without the MIG profile that strategy single adds.
    """
    asked, label = selector.get(PRODUCT_LABEL), present.get(PRODUCT_LABEL)
    if asked is None or label is None or asked == label:
        return ()
    if _product(asked) == _product(label):
        why = "is spelled otherwise"
    elif _product(asked) == _product(label.partition("-MIG-")[0]):
        why = "has its MIG profile in the name under strategy single"
    else:
        return ()
    return (f"node selector {PRODUCT_LABEL}={asked} finds nothing: the product {why}, {PRODUCT_LABEL}={label}",)


def _product(text: str) -> str:
    return product_value(text.replace("_", "-")).lower().removeprefix("nvidia-")
