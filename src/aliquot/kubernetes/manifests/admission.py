"""ValidatingAdmissionPolicies for what RBAC cannot express: an agent may act only on its own node.

An agent's token is bound to its pod, and so to a node, whose name the API server puts into the request's user info
(Kubernetes 1.30 and later). Requests of other users are not checked.
"""

from __future__ import annotations

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests.policy import MAPS, SAME_LIFE, only_keys, policy, same_except, validation
from aliquot.kubernetes.manifests.rbac import LEASE
from aliquot.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, Object, Values

SPECS = [
    {"name": f"{when}Spec", "expression": f"{value}.?spec.orValue({{}})"}
    for when, value in (("old", "oldObject"), ("new", "object"))
]


def agent(values: Values) -> list[Object]:
    """Return the policies about the agent, each followed by its binding."""
    account_name = AGENT_ACCOUNT
    return [
        *policy("aliquot-agent-nodes", account_name, [("", "nodes", "UPDATE")], _agent_node(), values, [*MAPS, *SPECS]),
        *policy("aliquot-agent-pods", account_name, [("", "pods", "DELETE")], _agent_pods(), values),
        *policy("aliquot-agent-evictions", account_name, [("", "pods/eviction", "CREATE")], _evictions(), values),
        *policy("aliquot-agent-configmaps", account_name, [("", "configmaps", "*")], _agent_maps(), values),
        *policy("aliquot-agent-events", account_name, [("", "events", "*")], _agent_events(), values),
    ]


def claims(values: Values) -> list[Object]:
    """Return the policies about an agent that prepares ResourceClaims, each followed by its binding."""
    slices = [("resource.k8s.io", "resourceslices", "*")]
    statuses = [("resource.k8s.io", "resourceclaims/status", "UPDATE")]
    return [
        *policy("aliquot-agent-resourceslices", AGENT_ACCOUNT, slices, _agent_slices(), values),
        *policy("aliquot-agent-resourceclaims", AGENT_ACCOUNT, statuses, _agent_claims(), values),
    ]


def controller(values: Values) -> list[Object]:
    """Return the policies about the controller, each followed by its binding."""
    account_name = CONTROLLER
    objects = [("", "configmaps", "*"), ("coordination.k8s.io", "leases", "*")]
    return [
        *policy("aliquot-controller-events", account_name, [("", "events", "*")], _controller_events(), values),
        *policy("aliquot-controller-nodes", account_name, [("", "nodes", "UPDATE")], _controller_node(), values, MAPS),
        *policy("aliquot-controller-objects", account_name, objects, _controller_objects(), values),
    ]


def _agent_node() -> list[Object]:
    return [
        validation(
            "variables.node != '' && object.metadata.name == variables.node", "an agent may change only its own node"
        ),
        validation(
            only_keys(
                "Labels",
                f"k.startsWith('nvidia.com/') && !(k in ['{names.CONFIG_LABEL}', '{names.VGPU_CONFIG_LABEL}']) || "
                "k.contains('.aliquot.dev/')",
            ),
            "an agent may change only labels nvidia.com/* and *.aliquot.dev/*, "
            f"and never {names.CONFIG_LABEL} and {names.VGPU_CONFIG_LABEL}, the desired state",
        ),
        validation(
            only_keys("Annotations", f"k.startsWith('aliquot.dev/') && k != '{names.RESERVED_ANNOTATION}'"),
            f"an agent may change only annotations aliquot.dev/*, and never {names.RESERVED_ANNOTATION}",
        ),
        validation(
            f"{same_except('variables.newSpec', 'variables.oldSpec', 'unschedulable')} && {SAME_LIFE}",
            "an agent may cordon its node, and change nothing else of its spec",
        ),
    ]


def _agent_pods() -> list[Object]:
    on_node = "variables.node != '' && oldObject.spec.?nodeName.orValue('') == variables.node"
    return [validation(on_node, "an agent may delete only pods of its own node")]


def _evictions() -> list[Object]:
    return [
        validation("variables.node != ''", "an agent may evict pods only with a token that is bound to its pod"),
        validation("request.namespace != 'kube-system'", "an agent may not evict pods of kube-system"),
    ]


def _agent_maps() -> list[Object]:
    suffixes = ("mig-config", "vgpu-config", "gpus")
    own = ", ".join(f"variables.node + '-{suffix}'" for suffix in suffixes)
    maps = " and ".join((", ".join(f"<node>-{suffix}" for suffix in suffixes[:-1]), f"<node>-{suffixes[-1]}"))
    return [
        validation(
            f"variables.node != '' && object.metadata.name in [{own}]",
            f"an agent may write only the ConfigMaps {maps} of its own node",
        )
    ]


def _agent_events() -> list[Object]:
    own = (
        "variables.node != '' && object.?involvedObject.?kind.orValue('') == 'Node' && "
        "object.?involvedObject.?name.orValue('') == variables.node"
    )
    return [validation(own, "an agent may write only events about its own node")]


def _agent_slices() -> list[Object]:
    own = "[object, oldObject].filter(o, o != null).all(o, o.spec.?nodeName.orValue('') == variables.node)"
    return [validation(f"variables.node != '' && {own}", "an agent may write only ResourceSlices of its own node")]


def _agent_claims() -> list[Object]:
    same = " && ".join(
        f"object.?status.?{field}.orValue({empty}) == oldObject.?status.?{field}.orValue({empty})"
        for field, empty in (("allocation", "{}"), ("reservedFor", "[]"))
    )
    return [validation(same, "an agent may change only status.devices of a ResourceClaim")]


def _controller_node() -> list[Object]:
    keys = f"k in ['{names.DEPLOY_LABEL}', '{names.CONFIG_LABEL}']"
    return [
        validation(
            only_keys("Labels", keys),
            f"the controller may change only the labels {names.DEPLOY_LABEL} and {names.CONFIG_LABEL}",
        ),
        validation(
            only_keys("Annotations", f"k == '{names.RESERVED_ANNOTATION}'"),
            f"the controller may change only the annotation {names.RESERVED_ANNOTATION}",
        ),
        validation(f"object.spec == oldObject.spec && {SAME_LIFE}", "the controller may not change the spec of a node"),
    ]


def _controller_events() -> list[Object]:
    kind, reason = "object.?involvedObject.?kind.orValue('')", "object.?reason.orValue('')"
    about = (
        f"({kind} == 'Pod' && {reason} == 'NearMiss' || "
        f"{kind} == 'CustomResourceDefinition' && {reason} in ['DefinitionRepaired', 'DefinitionOverwritten'])"
    )
    text = (
        "the controller may write only its own events about pods (NearMiss) and about the definitions that it repairs"
    )
    return [validation(f"{about} && object.?reportingComponent.orValue('') == '{CONTROLLER}'", text)]


def _controller_objects() -> list[Object]:
    own = f"object.metadata.name in ['{names.EFFECTIVE_MAP}', '{LEASE}']"
    return [validation(own, f"the controller may write only {names.EFFECTIVE_MAP} and its lease")]
