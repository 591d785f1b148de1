"""Prediction of a node's labels and resources for a request, before anything is changed.

The predicted node (``predicted_node``) goes through the same functions as the real one. Sources for the limits of a
strategy: NVIDIA's GPU Operator documentation ("MIG strategy") and the behaviour of its plugin.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu.container_gpus import ContainerGpu, single_strategy_error, size_mismatch, usable_gpus
from aliquot.kubernetes.gpu.device_resources import WHOLE_GPU, resource_counts
from aliquot.kubernetes.gpu.gfd_labels import OURS, PREFIX, PRESENT, labels
from aliquot.kubernetes.gpu.label_names import product_value
from aliquot.kubernetes.gpu.predicted_node import assumed_facts, predicted_node

Remedy = Callable[[MigStrategy], str]
"""Returns the command that sets a MIG strategy for the cluster."""

_WITHOUT_FACTS = ("gpu.machine", "gpu.mode", "mps.capable", "vgpu.present")


class Prediction(msgspec.Struct, frozen=True):
    """The predicted labels and resources of a node."""

    labels: dict[str, str]
    """All labels except the timestamp."""
    resources: dict[str, int]
    """Number of devices by resource name."""
    warnings: tuple[str, ...] = ()
    """Sentences for people."""
    refusals: tuple[str, ...] = ()
    """Sentences for people; any of them refuses the request."""
    next_step: str | None = None
    """The command that resolves the refusals."""


def cluster_policy(strategy: MigStrategy) -> str:
    """Return the command for a cluster with NVIDIA's GPU Operator, as in its documentation."""
    return (
        "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type='json' "
        f"""-p='[{{"op":"replace", "path":"/spec/mig/strategy", "value":"{strategy}"}}]'"""
    )


def settings_map(namespace: str) -> Remedy:
    """Return the remedy for a cluster without the operator: to edit Aliquot's settings.

    A patch would replace the whole text of the settings.
    """

    def command(strategy: MigStrategy) -> str:
        return (
            f"kubectl -n {namespace} edit configmap aliquot-settings   # settings.yaml: mig: {{strategy: {strategy}}}"
        )

    return command


def predict(
    inventory: Inventory,
    desired: Desired,
    strategy: MigStrategy,
    facts: Facts | None = None,
    remedy: Remedy = cluster_policy,
) -> Prediction:
    """Predict labels and resources of the node after the request.

    Labels that need ``facts`` are omitted without them. Values that no table has are always omitted.
    """
    node, known = predicted_node(inventory, facts or assumed_facts(inventory), desired)
    gpus, _ = usable_gpus(node, known)
    refusals, better = _refusals(gpus, desired.name, strategy)
    return Prediction(
        labels=_labels(node, known, strategy, bool(facts)),
        resources=resource_counts(node, known, strategy),
        warnings=_warnings(gpus, node.driver, strategy),
        refusals=refusals,
        next_step=remedy(better) if better else None,
    )


def _labels(node: Inventory, known: Facts, strategy: MigStrategy, with_facts: bool) -> dict[str, str]:
    found = labels(node, known, strategy, now=0)
    del found[PREFIX + "gfd.timestamp"]
    return found if with_facts else {k: v for k, v in found.items() if _is_predictable(k)}


def _is_predictable(name: str) -> bool:
    """Report whether a label can be predicted from only the inventory."""
    plain = name.removeprefix(PREFIX)
    return plain == PRESENT or OURS in name or (not plain.startswith("cuda.") and plain not in _WITHOUT_FACTS)


def _refusals(
    gpus: tuple[ContainerGpu, ...], config: str, strategy: MigStrategy
) -> tuple[tuple[str, ...], MigStrategy | None]:
    """Return the reasons why the strategy cannot offer the devices, and the strategy that can.

    GPUs in MIG mode are not refused if the node has no MIG device: this is an intermediate state, with a warning.
    """
    partitioned = [container_gpu for container_gpu in gpus if container_gpu.devices]
    if not partitioned or strategy == "mixed":
        return (), None
    name = f"config {config}" if config else "the request"
    error = single_strategy_error(gpus)
    if strategy == "none":
        better: MigStrategy = "single" if error is None and size_mismatch(gpus) is None else "mixed"
        sentence = f"{name} creates MIG devices, but strategy none would offer whole GPUs as {WHOLE_GPU}"
        return (sentence,), better
    if error is not None:
        label = _invalid(gpus)
        return (f"{name} does not fit strategy single, which would label the node {label}: {error}",), "mixed"
    error = size_mismatch(gpus)
    if error is not None:
        return (f"{name} does not fit strategy single, which would offer nothing: {error}",), "mixed"
    return (), None


def _invalid(gpus: tuple[ContainerGpu, ...]) -> str:
    """Return the product label of a node to which strategy single cannot apply."""
    first = next(container_gpu for container_gpu in gpus if container_gpu.enabled)
    return product_value(first.gpu.product, "MIG", "INVALID")


def _warnings(gpus: tuple[ContainerGpu, ...], driver: str, strategy: MigStrategy) -> tuple[str, ...]:
    sentences = []
    mig_gpus = [container_gpu for container_gpu in gpus if container_gpu.enabled]
    empty = [container_gpu for container_gpu in mig_gpus if not container_gpu.devices]
    if mig_gpus and len(mig_gpus) < len(gpus):
        bad = drivers.bad_with_mixed_modes(driver)
        sentences += [bad] if bad else []
    if empty and strategy == "none":
        sentences.append(f"{len(empty)} GPUs in MIG mode have no MIG devices: strategy none offers them as whole GPUs")
    elif empty:
        sentences.append(
            f"{len(empty)} GPUs in MIG mode have no MIG devices: they offer nothing until they are partitioned"
        )
    return tuple(sentences)
