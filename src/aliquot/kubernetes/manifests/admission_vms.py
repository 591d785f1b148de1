"""ValidatingAdmissionPolicies for the rights for VMs. See ``admission`` for how an agent's node is known.

An object belongs to the node in ``spec.nodeName``, which never changes. PCIDevices, USBDevices and their claims do not
have it: each belongs to the node in its name.
"""

from __future__ import annotations

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import GROUP
from aliquot.kubernetes.kinds.kubevirt import LAUNCHER_COMMAND, LAUNCHER_CONTAINER, PERMITTED_ANNOTATION
from aliquot.kubernetes.kinds.vgpu_pools import GROUP as POOLS
from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL
from aliquot.kubernetes.manifests.policy import (
    MAPS,
    SAME_LIFE,
    SAME_OWNERS,
    Rule,
    only_keys,
    policy,
    same_except,
    validation,
)
from aliquot.kubernetes.manifests.rbac_vms import (
    CLAIMS,
    CONTAINER,
    EXTENSIONS,
    KUBEVIRT,
    PLURALS,
    POOLED,
    USB,
    USB_CLAIMS,
)
from aliquot.kubernetes.manifests.values import CONTROLLER, DEVICES, WEBHOOK, Object, Values

_OBJECTS = [plural + part for plural in PLURALS for part in ("", "/status")]
_BOTH = "[object, oldObject].filter(o, o != null)"
_SPECS = [
    {"name": f"{when}{name}", "expression": f"{base}.?{path}.orValue({{}})"}
    for when, root in (("new", "object"), ("old", "oldObject"))
    for name, base, path in (
        ("Spec", root, "spec"),
        ("Template", f"variables.{when}Spec", "template"),
        ("Machine", f"variables.{when}Template", "spec"),
        ("Domain", f"variables.{when}Machine", "domain"),
        ("Devices", f"variables.{when}Domain", "devices"),
    )
]
_TOP_SPECS = _SPECS[0], _SPECS[5]
_SETTINGS = [
    {"name": f"{when}{name}", "expression": expression}
    for when, root in (("new", "object"), ("old", "oldObject"))
    for name, expression in (
        ("Spec", f"{root}.?spec.orValue({{}})"),
        ("Configuration", f"variables.{when}Spec.?configuration.orValue({{}})"),
    )
]


def agent(values: Values) -> list[Object]:
    """Return the policies about the devices agent, each followed by its binding."""
    written: list[Rule] = [(GROUP, resource, verb) for resource in _OBJECTS for verb in ("CREATE", "UPDATE", "DELETE")]
    specs: list[Rule] = [(GROUP, plural, "UPDATE") for plural in PLURALS]
    vm: list[Rule] = [(KUBEVIRT, "virtualmachines", "UPDATE")]
    return [
        *policy("aliquot-devices-nodes", DEVICES, [("", "nodes", "UPDATE")], _node(), values, MAPS),
        *policy("aliquot-devices-objects", DEVICES, written, _node_objects(), values),
        *policy("aliquot-devices-wishes", DEVICES, specs, _unchanged_spec(), values),
        *policy("aliquot-devices-claims", DEVICES, [(GROUP, CLAIMS, "DELETE")], _claim(), values),
        *policy("aliquot-devices-machines", DEVICES, vm, _virtual_machine(), values, [*MAPS, *_SPECS]),
        *policy("aliquot-devices-exec", DEVICES, [("", "pods/exec", "CONNECT")], _exec(values), values),
        *policy("aliquot-devices-configmaps", DEVICES, [("", "configmaps", "*")], _maps(), values),
        *policy("aliquot-devices-events", DEVICES, [("", "events", "*")], _events(), values),
    ]


def controller(values: Values) -> list[Object]:
    """Return the policies about the controller's rights for VMs, each followed by its binding."""
    claims, settings = [(GROUP, each, "UPDATE") for each in (CLAIMS, USB_CLAIMS)], [(KUBEVIRT, "kubevirts", "UPDATE")]
    definitions = [(EXTENSIONS, "customresourcedefinitions", "UPDATE")]
    pooled, pools = [(GROUP, plural, "UPDATE") for plural in POOLED], [(POOLS, "vgpupools", "UPDATE")]
    return [
        *policy("aliquot-controller-pooled", CONTROLLER, pooled, _pooled(), values, MAPS),
        *policy("aliquot-controller-pools", CONTROLLER, pools, _pools(), values, MAPS),
        *policy("aliquot-controller-claims", CONTROLLER, claims, _finalizers(), values, MAPS),
        *policy("aliquot-controller-kubevirt", CONTROLLER, settings, _permitted(), values, [*MAPS, *_SETTINGS]),
        *policy("aliquot-controller-definitions", CONTROLLER, definitions, _definition(), values, [*MAPS, *_TOP_SPECS]),
        *policy("aliquot-controller-secrets", CONTROLLER, [("", "secrets", "*")], _secret(), values),
    ]


def _node() -> list[Object]:
    return [
        validation(
            "variables.node != '' && object.metadata.name == variables.node", "an agent may change only its own node"
        ),
        validation(
            only_keys("Labels", f"k == '{names.DRIVER_NEEDED_LABEL}'"),
            f"the devices agent may change only the label {names.DRIVER_NEEDED_LABEL}",
        ),
        validation(
            _one_annotation("aliquot.dev/devices"),
            "the devices agent may change only the annotation aliquot.dev/devices",
        ),
        validation(
            f"object.spec == oldObject.spec && {SAME_LIFE}", "the devices agent may not change the spec of a node"
        ),
    ]


def _one_annotation(key: str) -> str:
    return only_keys("Annotations", f"k == '{key}'")


def _node_objects() -> list[Object]:
    """Return the rule about a node's objects. A PCIDevice's name is its node's, a hyphen and an address in hexadecimal
    digits: no other name begins so. A USB device's name goes on with its ids and its number on the bus.
    """
    named = _named("[0-9a-f]{9,13}")
    usb = f"request.resource.resource in ['{USB}', '{USB_CLAIMS}'] ? ({_named('[0-9a-f]{4}-[0-9a-f]{4}-[0-9]{6,9}')})"
    theirs = (
        f"request.resource.resource == 'pcidevices' ? ({named}) : "
        f"({usb} : o.?spec.?nodeName.orValue('') == variables.node)"
    )
    return [
        validation(
            f"variables.node != '' && {_BOTH}.all(o, {theirs})", "an agent may write only objects of its own node"
        )
    ]


def _named(rest: str) -> str:
    """Return an expression: the object's name is the node's, a hyphen, and a text that matches."""
    return (
        "o.metadata.name.startsWith(variables.node + '-') && "
        f"o.metadata.name.substring(size(variables.node) + 1).matches('^{rest}$')"
    )


def _unchanged_spec() -> list[Object]:
    same = "object.?spec.orValue({}) == oldObject.?spec.orValue({})"
    return [validation(same, "an agent may not change spec, the desired state")]


def _claim() -> list[Object]:
    ours = f"oldObject.metadata.?annotations[?'{names.SKIP_BINDING_ANNOTATION}'].orValue('') == 'true'"
    return [validation(ours, "an agent may delete only claims that stand for vGPUs, no user's claims")]


def _virtual_machine() -> list[Object]:
    pairs = (("Spec", "template"), ("Template", "spec"), ("Machine", "domain"), ("Domain", "devices"))
    same = [same_except(f"variables.new{name}", f"variables.old{name}", key) for name, key in pairs]
    same.append(same_except("variables.newDevices", "variables.oldDevices", "gpus", "hostDevices"))
    return [
        validation(
            f"{_one_annotation(names.ALLOCATION_ANNOTATION)} && "
            f"variables.newLabels == variables.oldLabels && {SAME_LIFE}",
            f"an agent may write only the annotation {names.ALLOCATION_ANNOTATION} of a VM",
        ),
        validation(" && ".join(same), "an agent may rename the devices of a VM, and change nothing else of it"),
        *(
            validation(_renamed(key), f"an agent may rename {key}, and change nothing else of them")
            for key in ("gpus", "hostDevices")
        ),
    ]


def _renamed(key: str) -> str:
    """Return an expression: the devices of a list are the same in everything but their names."""
    new, old = (f"variables.{when}Devices.?{key}.orValue([])" for when in ("new", "old"))
    same = "a.all(k, k == 'name' || (k in b && b[k] == a[k])) && b.all(k, k == 'name' || k in a)"
    return (
        f"size({new}) == size({old}) && {new}.all(a, {old}.exists(b, {same})) && {old}.all(a, {new}.exists(b, {same}))"
    )


def _exec(values: Values) -> list[Object]:
    container = "object.?container.orValue('')"
    inside = f"({container} == '{CONTAINER}' || request.name.startsWith('nvidia-driver-'))"
    driver = f"request.namespace == '{values.driver_namespace}' && {inside}"
    launcher = (
        f"request.name.startsWith('virt-launcher-') && {container} == '{LAUNCHER_CONTAINER}' && "
        f"object.?command.orValue([]) == {list(LAUNCHER_COMMAND)!r}"
    )
    text = f"an agent may only run programs in pods nvidia-driver-* in {values.driver_namespace} and 'env' in launchers"
    return [
        validation("variables.node != ''", "an agent may enter pods only with a token that is bound to its pod"),
        validation(f"({driver}) || ({launcher})", text),
    ]


def _maps() -> list[Object]:
    own = "variables.node != '' && object.metadata.name == variables.node + '-vgpus'"
    return [validation(own, "the devices agent may write only the ConfigMap <node>-vgpus of its own node")]


def _events() -> list[Object]:
    about = "object.?involvedObject.?{}.orValue('')"
    kind, name, version = (about.format(field) for field in ("kind", "name", "apiVersion"))
    node = f"{kind} == 'Node' && {name} == variables.node"
    thing = f"{version}.startsWith('{GROUP}/') && {name}.startsWith(variables.node + '-')"
    text = "an agent may write only events about its own node and that node's objects"
    return [validation(f"variables.node != '' && (({node}) || ({thing}))", text)]


def _finalizers() -> list[Object]:
    spec = "object.?spec.orValue({}) == oldObject.?spec.orValue({})"
    same = f"{spec} && variables.newLabels == variables.oldLabels"
    return [
        validation(
            f"{same} && variables.newAnnotations == variables.oldAnnotations && {SAME_OWNERS}",
            "the controller may remove finalizers of claims, and change nothing else of them",
        )
    ]


def _pooled() -> list[Object]:
    keys = "enabled", "vGPUTypeName", "profileSpec"
    label = only_keys("Labels", f"k == '{POOL_LABEL}'")
    annotations = only_keys("Annotations", f"k in ['{names.SKIP_MIG_ANNOTATION}', '{names.POOL_INSTANCES_ANNOTATION}']")
    return [
        validation(
            f"{same_except('object.spec', 'oldObject.spec', *keys)} && {SAME_LIFE}",
            f"the controller may change only {', '.join(keys)} of a GPU's objects",
        ),
        validation(
            f"{label} && {annotations}",
            f"the controller may change only the label {POOL_LABEL} and the annotations {names.SKIP_MIG_ANNOTATION} "
            f"and {names.POOL_INSTANCES_ANNOTATION}",
        ),
    ]


def _pools() -> list[Object]:
    same = "object.spec == oldObject.spec && variables.newLabels == variables.oldLabels"
    return [
        validation(
            f"{same} && variables.newAnnotations == variables.oldAnnotations && {SAME_OWNERS}",
            "the controller may change finalizers of pools, and nothing else of them",
        )
    ]


def _permitted() -> list[Object]:
    same = same_except("variables.newSpec", "variables.oldSpec", "configuration")
    inner = same_except("variables.newConfiguration", "variables.oldConfiguration", "permittedHostDevices")
    return [
        validation(f"{same} && {inner}", "the controller may change only permittedHostDevices of KubeVirt's settings"),
        validation(
            f"{_one_annotation(PERMITTED_ANNOTATION)} && variables.newLabels == variables.oldLabels && {SAME_LIFE}",
            f"the controller may change only the annotation {PERMITTED_ANNOTATION} of KubeVirt's settings",
        ),
    ]


def _definition() -> list[Object]:
    """Return the rule about definitions. A conversion webhook would get every object of the kind."""
    same = same_except("variables.newSpec", "variables.oldSpec", "versions")
    kept = "v.name == w.name && v.served == w.served && v.storage == w.storage"
    return [
        validation(
            f"{same} && variables.oldSpec.versions.all(v, variables.newSpec.versions.exists(w, {kept}))",
            "the controller may add to the versions of a definition, and change nothing else of it",
        ),
        validation(
            f"variables.newLabels == variables.oldLabels && variables.newAnnotations == variables.oldAnnotations && "
            f"{SAME_LIFE}",
            "the controller may not change the metadata of a definition",
        ),
    ]


def _secret() -> list[Object]:
    """Return the rule about the controller's Secret. Kubernetes would fill one of another type with a token of the
    account that it names.
    """
    ours = f"object.metadata.name == '{WEBHOOK}' && object.?type.orValue('') == 'kubernetes.io/tls'"
    return [validation(ours, f"the controller may write only the Secret {WEBHOOK} of the type kubernetes.io/tls")]
