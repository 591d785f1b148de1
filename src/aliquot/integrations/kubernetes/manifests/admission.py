"""What RBAC cannot say: an agent acts on its own node alone. ValidatingAdmissionPolicies, judged by the API server.

An agent's token is bound to its pod, and so to a node, whose name the API server puts into the request's user info
(Kubernetes 1.30 and later). Requests of anybody else are not looked at.
"""

from __future__ import annotations

from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.manifests.rights import LEASE
from aliquot.integrations.kubernetes.manifests.values import AGENT_ACCOUNT, CONTROLLER, Object, Values, metadata

_API = "admissionregistration.k8s.io/v1"
_NODE = {
    "name": "node",
    "expression": "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][0].orValue('')",
}
_MAPS = [
    {"name": f"{when}{kind.capitalize()}", "expression": f"{value}.metadata.?{kind}.orValue({{}})"}
    for kind in ("labels", "annotations")
    for when, value in (("old", "oldObject"), ("new", "object"))
]
_SAME_FINALIZERS = "object.metadata.?finalizers.orValue([]) == oldObject.metadata.?finalizers.orValue([])"


def policies(values: Values) -> list[Object]:
    """Each policy, followed by its binding."""
    found = [
        _policy("aliquot-agent-nodes", AGENT_ACCOUNT, [("", "nodes", "UPDATE")], _agent_node(), values),
        _policy("aliquot-agent-pods", AGENT_ACCOUNT, [("", "pods", "DELETE")], _agent_pods(), values),
        _policy("aliquot-agent-evictions", AGENT_ACCOUNT, [("", "pods/eviction", "CREATE")], _evictions(), values),
        _policy("aliquot-agent-configmaps", AGENT_ACCOUNT, [("", "configmaps", "*")], _agent_maps(), values),
        _policy("aliquot-agent-events", AGENT_ACCOUNT, [("", "events", "*")], _agent_events(), values),
        _policy("aliquot-controller-events", CONTROLLER, [("", "events", "*")], _controller_events(), values),
        _policy("aliquot-controller-nodes", CONTROLLER, [("", "nodes", "UPDATE")], _controller_node(), values),
        _policy(
            "aliquot-controller-objects",
            CONTROLLER,
            [("", "configmaps", "*"), ("coordination.k8s.io", "leases", "*")],
            _controller_objects(),
            values,
        ),
    ]
    return [each for policy in found for each in (policy, _binding(policy))]


def _policy(
    name: str, who: str, rules: list[tuple[str, str, str]], validations: list[Object], values: Values
) -> Object:
    component = who.removeprefix("aliquot-")
    variables = ([_NODE] if who == AGENT_ACCOUNT else []) + (_MAPS if name.endswith("-nodes") else [])
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata(name, component),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource]}
                    for group, resource, operation in rules
                ]
            },
            "matchConditions": [
                {"name": "ours", "expression": f"request.userInfo.username == '{values.account(who)}'"}
            ],
            **({"variables": variables} if variables else {}),
            "validations": validations,
        },
    }


def _binding(policy: Object) -> Object:
    name = policy["metadata"]["name"]
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": policy["metadata"],
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }


def _agent_node() -> list[Object]:
    spec = "object.spec.?{0}.orValue({1}) == oldObject.spec.?{0}.orValue({1})"
    return [
        _says("variables.node != '' && object.metadata.name == variables.node", "an agent changes its own node alone"),
        _says(
            _only(
                "Labels", f"k.startsWith('nvidia.com/') && k != '{names.CONFIG_LABEL}' || k.contains('.aliquot.dev/')"
            ),
            f"an agent changes labels nvidia.com/* and *.aliquot.dev/* alone, and never {names.CONFIG_LABEL}, the wish",
        ),
        _says(
            _only("Annotations", f"k.startsWith('aliquot.dev/') && k != '{names.RESERVED_ANNOTATION}'"),
            f"an agent changes annotations aliquot.dev/* alone, and never {names.RESERVED_ANNOTATION}",
        ),
        _says(
            f"{spec.format('taints', '[]')} && {spec.format('providerID', repr(''))} && {_SAME_FINALIZERS}",
            "an agent may cordon its node, and changes nothing else of its spec",
        ),
    ]


def _only(maps: str, may: str) -> str:
    """An expression: old and new differ in keys that ``may`` alone. A value that stays is fine in any key."""
    old, new = f"variables.old{maps}", f"variables.new{maps}"
    return (
        f"{new}.all(k, ({may}) || (k in {old} && {old}[k] == {new}[k])) && "
        f"{old}.all(k, ({may}) || (k in {new} && {old}[k] == {new}[k]))"
    )


def _agent_pods() -> list[Object]:
    on_node = "variables.node != '' && oldObject.spec.?nodeName.orValue('') == variables.node"
    return [_says(on_node, "an agent deletes pods of its own node alone")]


def _evictions() -> list[Object]:
    return [
        _says("variables.node != ''", "an agent evicts with a token that is bound to its pod"),
        _says("request.namespace != 'kube-system'", "an agent evicts nothing from kube-system"),
    ]


def _agent_maps() -> list[Object]:
    own = "variables.node != '' && object.metadata.name == variables.node + '-mig-config'"
    return [_says(own, "an agent writes the ConfigMap <node>-mig-config of its own node alone")]


def _agent_events() -> list[Object]:
    own = (
        "variables.node != '' && object.?involvedObject.?kind.orValue('') == 'Node' && "
        "object.?involvedObject.?name.orValue('') == variables.node"
    )
    return [_says(own, "an agent writes events about its own node alone")]


def _controller_node() -> list[Object]:
    keys = f"k in ['{names.DEPLOY_LABEL}', '{names.CONFIG_LABEL}']"
    return [
        _says(_only("Labels", keys), f"the controller changes {names.DEPLOY_LABEL} and {names.CONFIG_LABEL} alone"),
        _says(
            _only("Annotations", f"k == '{names.RESERVED_ANNOTATION}'"),
            f"the controller changes the annotation {names.RESERVED_ANNOTATION} alone",
        ),
        _says(f"object.spec == oldObject.spec && {_SAME_FINALIZERS}", "the controller changes no node's spec"),
    ]


def _controller_events() -> list[Object]:
    own = (
        "object.?involvedObject.?kind.orValue('') == 'Pod' && object.?reason.orValue('') == 'NearMiss' && "
        f"object.?reportingComponent.orValue('') == '{CONTROLLER}'"
    )
    return [_says(own, "the controller writes events of its own about pods alone, with the reason NearMiss")]


def _controller_objects() -> list[Object]:
    own = f"object.metadata.name in ['{names.EFFECTIVE_MAP}', '{LEASE}']"
    return [_says(own, f"the controller writes {names.EFFECTIVE_MAP} and its lease alone")]


def _says(expression: str, message: str) -> Object:
    return {"expression": expression, "message": message, "reason": "Forbidden"}
