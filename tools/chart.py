"""The Helm chart: the same objects as deploy/kubernetes, with a few holes for values. No logic of its own.

A hole is a value of ``Values`` that holds a template expression, or an entry of ``HOLES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tools.chart_values import CUSTOM, LOCATED, NOTES, VALUES_YAML, schema
from tools.yaml_text import Path, Text, insert_before

from aliquot import __version__
from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.manifests import bundle, toolkit, webhooks
from aliquot.integrations.kubernetes.manifests.notes import notes
from aliquot.integrations.kubernetes.manifests.values import (
    AGENT,
    BESIDE,
    CONTROLLER,
    DEVICES,
    WEBHOOK,
    Object,
    Values,
    metadata,
)

HEAD = "{{- /* Made by tools/build_manifests.py: change tools/chart.py or the package's manifests. */ -}}\n"


def _named(name: str, around: str = "{{ %s }}") -> str:
    """An object's name, which is another one beside the GPU Operator."""
    return around % f'(ternary "{BESIDE[name]}" "{name}" .Values.besideOperator)'


VALUES = Values(
    namespace="{{ .Release.Namespace }}",
    image='{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}',
    strategy="{{ .Values.mig.strategy }}",
    stop_host_clients="{{ not .Values.driver.enabled }}",
    cdi="{{ .Values.cdi.enabled }}",
    daemon_set=_named(AGENT),
    fallback_map=_named(names.DEFAULT_CONFIG_MAP),
    clients_made=_named(names.DEFAULT_CLIENTS_MAP),
    clients_map=_named(names.DEFAULT_CLIENTS_MAP, "{{ .Values.migManager.gpuClientsConfig.name | default %s }}"),
    driver="{{ .Values.devices.driver }}",
    driver_namespace="{{ ternary .Release.Namespace .Values.devices.driverNamespace .Values.driverToolkit.enabled }}",
    kubevirt_namespace="{{ .Values.devices.kubevirtNamespace }}",
    certificates='{{ ternary "/webhook-certificate" "" .Values.webhook.certManager.enabled }}',
)  # fmt: skip

TOOLKIT = toolkit.Toolkit(
    image="{{ .Values.driverToolkit.image.repository }}:{{ .Values.driverToolkit.image.tag }}",
    location="{{ .Values.driverToolkit.location }}",
)
_WHEN = {
    bundle.CONTAINERS: ".Values.migManager.enabled",
    bundle.MACHINES: ".Values.devices.enabled",
    bundle.CERTIFICATE: "and .Values.devices.enabled (not .Values.webhook.certManager.enabled)",
    bundle.BOTH: "or .Values.migManager.enabled .Values.devices.enabled",
}
_MANAGED = ".Values.webhook.certManager.enabled"
CERTIFICATE = f"{WEBHOOK}-cert-manager"
"""The Secret of cert-manager's certificate; the controller's own lies in another."""
_MOUNTED = "volumeMounts: [{name: certificate, mountPath: /webhook-certificate, readOnly: true}]"
_POD: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_POD, "containers", 0)
_PULL = "{{ .Values.image.pullPolicy }}"


def files() -> dict[str, str]:
    """The files of the chart."""
    found = {
        "Chart.yaml": _chart(),
        "values.yaml": VALUES_YAML,
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        "templates/NOTES.txt": NOTES,
        "templates/custom-config.yaml": HEAD + CUSTOM,
    }
    for name, groups in bundle.grouped(VALUES).items():
        if name != "00-namespace":
            more = "and .Values.metrics.serviceMonitor.enabled ({})" if name.startswith(bundle.OPTIONAL) else "{}"
            text = "".join(_part(more.format(_WHEN[place]), objects) for place, objects in groups)
            found[f"templates/{name.rpartition('/')[2]}.yaml"] = HEAD + text
    found["templates/34-certificate.yaml"] = HEAD + _part("and .Values.devices.enabled " + _MANAGED, _certificate())
    driver = toolkit.objects(VALUES, TOOLKIT)
    found["templates/50-driver-toolkit.yaml"] = HEAD + _part(".Values.driverToolkit.enabled", driver, LOCATED)
    return found


def _part(condition: str, objects: list[Object], before: str = "") -> str:
    """Objects that are made under a condition."""
    body = "".join("---\n" + _template(item) for item in objects)
    return f"{{{{- if {condition} }}}}\n{before}{body}{{{{- end }}}}\n"


def _template(item: Object) -> str:
    text = Text()
    item = text.annotate(item, notes(item))
    change = _CHANGES.get((item["kind"], item["metadata"]["name"]))
    if change is not None:
        change(item, text)
    return text.dump(item)


def _agent(item: Object, text: Text) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    container["env"] = _environment(container["env"], text)
    _block(container, "resources", ".Values.migManager.resources", text)
    _block(pod, "tolerations", ".Values.daemonsets.tolerations", text)
    _pull_secrets(pod, text)


def _controller(item: Object, text: Text) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    _block(container, "resources", ".Values.controller.resources", text)
    _pull_secrets(pod, text)
    for line in (f"{{{{- if and .Values.devices.enabled {_MANAGED} }}}}", _MOUNTED, "{{- end }}"):
        insert_before(container, ("securityContext",), text.line(line))
    volume = f"volumes: [{{name: certificate, secret: {{secretName: {CERTIFICATE}}}}}]"
    for line in (f"{{{{- if and .Values.devices.enabled {_MANAGED} }}}}", volume, "{{- end }}"):
        insert_before(pod, ("containers",), text.line(line))
    insert_before(item["spec"], ("replicas",), text.line("replicas: {{ .Values.controller.replicas }}"))
    del item["spec"]["replicas"]


def _devices(item: Object, text: Text) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    _block(container, "resources", ".Values.devices.resources", text)
    _block(pod, "tolerations", ".Values.devices.tolerations", text)
    _pull_secrets(pod, text)


def _driver(item: Object, text: Text) -> None:
    _at(item, _CONTAINER)["imagePullPolicy"] = "{{ .Values.driverToolkit.image.pullPolicy }}"
    _pull_secrets(_at(item, _POD), text)


def _webhooks(item: Object, text: Text) -> None:
    """cert-manager puts its authority in, where it makes the certificate."""
    where = "cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/" + WEBHOOK
    for line in (f"{{{{- if {_MANAGED} }}}}", "annotations: {" + where.replace(": ", ": '") + "'}", "{{- end }}"):
        insert_before(item["metadata"], ("labels",), text.line(line))


def _certificate() -> list[Object]:
    """For cert-manager: an authority of its own, unless an issuer is named, and the certificate."""
    meta = metadata(WEBHOOK, "controller", VALUES.namespace)
    hosts = [f"{WEBHOOK}.{VALUES.namespace}.svc", f"{WEBHOOK}.{VALUES.namespace}.svc.cluster.local"]
    issuer = {"name": f'{{{{ .Values.webhook.certManager.issuer.name | default "{WEBHOOK}" }}}}'}
    issuer["kind"] = "{{ .Values.webhook.certManager.issuer.kind }}"
    return [
        {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": meta, "spec": {"selfSigned": {}}},
        {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": meta,
            "spec": {"secretName": CERTIFICATE, "dnsNames": hosts, "issuerRef": issuer},
        },
    ]


def _settings(item: Object, text: Text) -> None:
    said = (
        '(dict "version" "aliquot/v1"'
        ' "mig" (dict "config-map" .Values.migManager.config.name "default-config" .Values.migManager.config.default)'
        ' "device-plugin" (dict "enabled" .Values.devicePlugin.enabled)'
        ' "labels" (dict "enabled" .Values.gfd.enabled))'
    )
    item["data"] = {
        text.line(f"{names.SETTINGS_KEY}: |"): None,
        text.line(f"{{{{- toYaml (mergeOverwrite {said} .Values.settings) | nindent 4 }}}}"): None,
    }


_CHANGES: dict[tuple[str, str], Callable[[Object, Text], None]] = {
    ("DaemonSet", VALUES.daemon_set): _agent,
    ("Deployment", CONTROLLER): _controller,
    ("DaemonSet", DEVICES): _devices,
    ("DaemonSet", toolkit.NAME): _driver,
    (webhooks.VALIDATING, WEBHOOK): _webhooks,
    (webhooks.MUTATING, WEBHOOK): _webhooks,
    ("ConfigMap", names.SETTINGS_MAP): _settings,
}


def _at(item: Any, path: Path) -> Any:
    for step in path:
        item = item[step]
    return item


def _block(item: Object, key: str, value: str, text: Text) -> None:
    """What is at ``key`` comes from a value, whole."""
    insert_before(item, (key,), text.line(f"{key}: {{{{- toYaml {value} | nindent {{inner}} }}}}"))
    del item[key]


def _pull_secrets(pod: Object, text: Text) -> None:
    insert_before(pod, ("containers",), text.line("{{- with .Values.imagePullSecrets }}"))
    insert_before(pod, ("containers",), text.line("imagePullSecrets: {{- toYaml . | nindent {inner} }}"))
    insert_before(pod, ("containers",), text.line("{{- end }}"))


def _environment(entries: list[Object], text: Text) -> list[Any]:
    """Each variable unless the values give one of that name; then those of the values."""
    found: list[Any] = [
        text.line("{{- $given := dict }}{{ range .Values.migManager.env }}{{ $_ := set $given .name true }}{{ end }}")
    ]
    for entry in entries:
        if "value" in entry:
            found.append(text.line(f'{{{{- if not (hasKey $given "{entry["name"]}") }}}}'))
            found += [entry, text.line("{{- end }}")]
        else:
            found.append(entry)
    found.append(text.line("{{- with .Values.migManager.env }}{{ toYaml . | nindent {indent} }}{{ end }}"))
    return found


def _chart() -> str:
    return f"""\
# Made by tools/build_manifests.py: change tools/chart.py.
apiVersion: v2
name: aliquot
description: Divide NVIDIA GPUs and hand out the pieces, in the place of NVIDIA's MIG manager
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.30.0-0"
"""
