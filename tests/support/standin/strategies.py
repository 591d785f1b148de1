"""Differences between kinds: the fields that the server fills in, resets or refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from support.standin import crds, disruption, events, nodes, policies, webhooks, workloads
from support.standin.answers import Cause
from support.standin.kinds import Kind

JSON = dict[str, Any]
Fill = Callable[[JSON], None]
"""Change a new object in place."""
Check = Callable[[JSON, JSON | None], list[Cause]]
"""Returns errors of an object. The second argument is the replaced object, None on create."""


def nothing(_: JSON) -> None:
    return None


def unchanged(_: JSON, __: JSON) -> None:
    return None


def fine(_: JSON, __: JSON | None) -> list[Cause]:
    return []


class Strategy(msgspec.Struct, frozen=True):
    """The rules of one kind."""

    fill: Fill = nothing
    """Defaults, on create and update."""
    on_update: Callable[[JSON, JSON], None] = unchanged
    """Counters that an update of the old into the new object changes."""
    on_create: Fill = nothing
    admit: Fill = nothing
    """Fields that the built-in admission plugins add to a new object."""
    check: Check = fine
    generation: bool = False
    """Whether changes of its spec count in ``metadata.generation``."""
    status: bool = False
    """Status is only written through its subresource, and dropped on create."""
    keeps_status: bool = False
    """Like ``status``, but a create may bring it."""
    unconditional: bool = True
    """An update may leave out resourceVersion."""
    create_on_update: bool = False
    graceful: bool = False
    """Whether deletion waits until another actor ends it."""
    returns_deleted: bool = False


def _namespace(value: JSON) -> None:
    value["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = value["metadata"]["name"]


def _new_namespace(value: JSON) -> None:
    value["spec"]["finalizers"] = ["kubernetes"]
    value["status"] = {"phase": "Active"}


def _config_map(new: JSON, old: JSON | None) -> list[Cause]:
    if old is None or not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [Cause.forbidden("immutable", "field is immutable when `immutable` is set")]
    why = "field is immutable when `immutable` is set"
    return found + [Cause.forbidden(k, why) for k in ("data", "binaryData") if old.get(k) != new.get(k)]


def _secret(value: JSON) -> None:
    import base64

    for key, text in (value.pop("stringData", None) or {}).items():
        value.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
    value.setdefault("type", "Opaque")


def _role_ref(new: JSON, old: JSON | None) -> list[Cause]:
    if old is not None and old["roleRef"] != new["roleRef"]:
        printed = {"APIGroup": new["roleRef"].get("apiGroup", ""), "Kind": new["roleRef"]["kind"]}
        return [Cause.invalid("roleRef", {**printed, "Name": new["roleRef"]["name"]}, "cannot change roleRef")]
    return []


def _binding(value: JSON) -> None:
    value["roleRef"].setdefault("apiGroup", "rbac.authorization.k8s.io")
    for subject in value.get("subjects") or []:
        if not subject.get("apiGroup") and subject["kind"] in ("User", "Group"):
            subject["apiGroup"] = "rbac.authorization.k8s.io"


def _lease(new: JSON, _: JSON | None) -> list[Cause]:
    spec, found = new.get("spec") or {}, []
    if "leaseDurationSeconds" in spec and spec["leaseDurationSeconds"] <= 0:
        found.append(Cause.invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        why = "must be greater than or equal to 0"
        found.append(Cause.invalid("spec.leaseTransitions", spec["leaseTransitions"], why))
    return found


_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_TABLE: dict[str, Strategy] = {
    "nodes.": Strategy(fill=nodes.fill, check=nodes.check, keeps_status=True),
    "pods.": Strategy(
        fill=workloads.fill_pod,
        on_create=workloads.new_pod,
        admit=workloads.admit_pod,
        check=workloads.check_pod,
        generation=True,
        status=True,
        graceful=True,
        returns_deleted=True,
    ),
    "namespaces.": Strategy(fill=_namespace, on_create=_new_namespace, status=True),
    "configmaps.": Strategy(check=_config_map),
    "secrets.": Strategy(fill=_secret),
    "serviceaccounts.": Strategy(returns_deleted=True),
    "services.": Strategy(status=True),
    "events": Strategy(check=events.check, create_on_update=True),
    "daemonsets.apps": Strategy(
        fill=workloads.fill_daemon_set,
        on_update=workloads.count_template,
        check=workloads.check_daemon_set,
        generation=True,
        status=True,
    ),
    "deployments.apps": Strategy(fill=workloads.fill_deployment, generation=True, status=True),
    "replicasets.apps": Strategy(fill=workloads.fill_template, generation=True, status=True),
    "statefulsets.apps": Strategy(fill=workloads.fill_template, generation=True, status=True),
    "controllerrevisions.apps": Strategy(),
    "jobs.batch": Strategy(fill=workloads.fill_template, generation=True, status=True),
    "leases.coordination.k8s.io": Strategy(check=_lease, unconditional=False, create_on_update=True),
    "poddisruptionbudgets.policy": Strategy(
        fill=disruption.fill, check=disruption.check, generation=True, status=True, unconditional=False
    ),
    f"roles.{_RBAC}": Strategy(create_on_update=True),
    f"clusterroles.{_RBAC}": Strategy(create_on_update=True),
    f"rolebindings.{_RBAC}": Strategy(fill=_binding, check=_role_ref, create_on_update=True),
    f"clusterrolebindings.{_RBAC}": Strategy(fill=_binding, check=_role_ref, create_on_update=True),
    "customresourcedefinitions.apiextensions.k8s.io": Strategy(
        fill=crds.fill, on_create=crds.accept, check=crds.check, generation=True, status=True, unconditional=False
    ),
    f"validatingwebhookconfigurations.{_ADMISSION}": Strategy(
        fill=webhooks.fill, check=webhooks.check, generation=True, unconditional=False
    ),
    f"mutatingwebhookconfigurations.{_ADMISSION}": Strategy(
        fill=webhooks.fill, check=webhooks.check, generation=True, unconditional=False
    ),
    f"validatingadmissionpolicies.{_ADMISSION}": Strategy(
        fill=policies.fill, check=policies.check, generation=True, status=True, unconditional=False
    ),
    f"validatingadmissionpolicybindings.{_ADMISSION}": Strategy(
        fill=policies.fill_binding, check=policies.check_binding, generation=True, unconditional=False
    ),
    "priorityclasses.scheduling.k8s.io": Strategy(generation=True),
    "resourceslices.resource.k8s.io": Strategy(generation=True),
    "deviceclasses.resource.k8s.io": Strategy(generation=True),
    "resourceclaims.resource.k8s.io": Strategy(status=True),
}


def of(kind: Kind) -> Strategy:
    """Return the rules of a kind. The status of a custom resource with that subresource is written separately."""
    if kind.custom is not None:
        return Strategy(
            check=crds.validator(kind), generation=True, status="status" in kind.subresources, unconditional=False
        )
    if kind.group == events.NEW_GROUP:
        return Strategy(check=lambda new, old: events.check_new(events.stored(kind, new), old), create_on_update=True)
    return _TABLE.get(kind.bucket, Strategy(status="status" in kind.subresources))
