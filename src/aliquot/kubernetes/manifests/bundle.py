"""The manifests as files of objects, in the order in which ``kubectl apply -f FOLDER`` takes them.

Two folders, for containers and for virtual machines; each is whole by itself, and what both have is the same in both.
"""

from __future__ import annotations

from aliquot.kubernetes.manifests import access, admission, agent, controller, dashboard, network, webhooks
from aliquot.kubernetes.manifests import admission_vms as admission_devices
from aliquot.kubernetes.manifests import config_maps as maps
from aliquot.kubernetes.manifests import vm_agent as devices
from aliquot.kubernetes.manifests.values import AGENT, AGENT_ACCOUNT, CONTROLLER, DEVICES, Object, Values, labels

OPTIONAL = "optional"
"""The folder of what needs something that not every cluster has, and of rights that not every cluster should give."""
BOTH, CONTAINERS, MACHINES, CERTIFICATE = "both", "containers", "machines", "certificate"
"""Which installations a group of objects belongs to; the last are those for virtual machines whose controller makes
the webhooks' certificate itself, and registers them.
"""
Files = dict[str, list[Object]]


def files(values: Values) -> Files:
    """For containers: file name, without ending, to objects."""
    return _files_of(values, CONTAINERS, BOTH)


def vm_files(values: Values) -> Files:
    """For virtual machines."""
    return _files_of(values, MACHINES, CERTIFICATE, BOTH)


def _files_of(values: Values, *installations: str) -> Files:
    found = {
        name: [item for installation, items in groups for item in items if installation in installations]
        for name, groups in grouped(values).items()
    }
    return {name: items for name, items in found.items() if items}


def grouped(values: Values) -> dict[str, list[tuple[str, list[Object]]]]:
    """Every file, its objects by the installations that they belong to."""
    accounts = {account_name: [access.account(account_name, values)] for account_name in access.COMPONENTS}
    return {
        "00-namespace": [(BOTH, [namespace(values)])],
        "10-accounts": [
            (CONTAINERS, accounts[AGENT_ACCOUNT]),
            (BOTH, accounts[CONTROLLER]),
            (MACHINES, accounts[DEVICES]),
        ],
        "11-rights": [
            (CONTAINERS, access.roles(AGENT_ACCOUNT, values)),
            (BOTH, access.roles(CONTROLLER, values)),
            (MACHINES, access.roles(CONTROLLER, values, devices=True)),
            (CERTIFICATE, access.roles(CONTROLLER, values, devices=True, certificate=True)),
            (MACHINES, access.roles(DEVICES, values, devices=True)),
        ],
        "12-admission": [
            (CONTAINERS, admission.agent(values)),
            (BOTH, admission.controller(values)),
            (MACHINES, [*admission_devices.controller(values), *admission_devices.agent(values)]),
        ],
        "20-configmaps": [
            (CONTAINERS, maps.agent(values)),
            (BOTH, maps.settings_maps(values)),
            (MACHINES, [devices.config_map(values)]),
        ],
        "30-agent": [(CONTAINERS, [agent.daemon_set(values)])],
        "31-controller": [(BOTH, [controller.deployment(values)])],
        "32-devices": [(MACHINES, [devices.daemon_set(values)])],
        "33-webhooks": [(MACHINES, [devices.service(values)]), (CERTIFICATE, webhooks.empty_configurations())],
        "40-metrics": [
            (CONTAINERS, [controller.metrics(AGENT, "agent", values)]),
            (BOTH, [controller.metrics(CONTROLLER, "controller", values)]),
            (MACHINES, [controller.metrics(DEVICES, "devices", values)]),
        ],
        "41-network": [
            (CONTAINERS, [network.policy(values.daemon_set, "agent", values)]),
            (BOTH, [network.policy(CONTROLLER, "controller", values, https=True)]),
            (MACHINES, [network.policy(DEVICES, "devices", values)]),
        ],
        f"{OPTIONAL}/dashboard": [(BOTH, dashboard.objects(values))],
        f"{OPTIONAL}/evictions": [(CONTAINERS, access.roles(AGENT_ACCOUNT, values, evictions=True))],
        f"{OPTIONAL}/servicemonitor": [(BOTH, [controller.service_monitor(values)])],
    }


def namespace(values: Values) -> Object:
    """The agent is privileged: where Pod Security is enforced, its namespace must allow that."""
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": values.namespace, "labels": labels("namespace") | privileged},
    }
