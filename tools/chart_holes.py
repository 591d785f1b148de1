"""Template expressions of the chart: values, and the objects that they go into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.yaml_text import Path, Text, insert_before

from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests import dashboard, toolkit, webhooks
from aliquot.kubernetes.manifests.values import (
    AGENT,
    CLAIMS,
    CONTROLLER,
    DASHBOARD,
    DEVICES,
    EXTENDER,
    NAMES_BESIDE_OPERATOR,
    VGPUS_DAEMON_SET,
    WEBHOOK,
    Object,
    Values,
)


def _named(name: str, around: str = "{{ %s }}") -> str:
    """Return an object's name, which differs beside the GPU Operator."""
    return around % f'(ternary "{NAMES_BESIDE_OPERATOR[name]}" "{name}" .Values.besideOperator)'


def _nodes(plugin: str, dra: str) -> tuple[str, str]:
    """Return the operator for each value of ``allocation``, and the label's value that is not the default."""
    here = '(eq .Values.allocation "plugin")'
    return f'{{{{ ternary "{plugin}" "{dra}" {here} }}}}', f'{{{{ ternary "dra" "plugin" {here} }}}}'


VALUES = Values(
    namespace="{{ .Release.Namespace }}",
    image='{{ required "image.repository is empty: name the registry and the image that you pushed" '
    '.Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}',
    strategy="{{ .Values.mig.strategy }}",
    stop_host_clients="{{ not .Values.driver.enabled }}",
    cdi="{{ .Values.cdi.enabled }}",
    daemon_set=_named(AGENT),
    fallback_map=_named(names.DEFAULT_CONFIG_MAP),
    clients_made=_named(names.DEFAULT_CLIENTS_MAP),
    clients_map=_named(names.DEFAULT_CLIENTS_MAP, "{{ .Values.migManager.gpuClientsConfig.name | default %s }}"),
    driver="{{ .Values.devices.driver }}",
    all_devices="{{ .Values.devices.allDevices }}",
    driver_namespace="{{ ternary .Release.Namespace .Values.devices.driverNamespace .Values.driverToolkit.enabled }}",
    kubevirt_namespace="{{ .Values.devices.kubevirtNamespace }}",
    plugin_nodes=_nodes("NotIn", "In"),
    claim_nodes=_nodes("In", "NotIn"),
    dra_driver="{{ .Values.dra.driver }}",
    dra_score="{{ .Values.dra.score }}",
    dra_mode_changes="{{ .Values.dra.modeChanges }}",
    dra_vms="{{ .Values.dra.vms }}",
    vgpu_default_config="{{ .Values.vgpuDeviceManager.config.default }}",
    extender_score="{{ .Values.dra.extender.score }}",
    extender_certificates='{{ ternary "/extender-certificate" "" (ne .Values.dra.extender.tlsSecret "") }}',
    certificates='{{ ternary "/webhook-certificate" "" .Values.webhook.certManager.enabled }}',
)  # fmt: skip

TOOLKIT = toolkit.DriverToolkit(
    image="{{ .Values.driverToolkit.image.repository }}:{{ .Values.driverToolkit.image.tag }}",
    location="{{ .Values.driverToolkit.location }}",
)
MANAGED = ".Values.webhook.certManager.enabled"
CERTIFICATE = f"{WEBHOOK}-cert-manager"
"""The Secret of cert-manager's certificate. The controller's own certificate is in another Secret."""
_POD: Path = ("spec", "template", "spec")
_CONTAINER: Path = (*_POD, "containers", 0)
_PULL = "{{ .Values.image.pullPolicy }}"


def fill(item: Object, text: Text) -> None:
    """Insert the template expressions into one object."""
    change = _CHANGES.get((item["kind"], item["metadata"]["name"]))
    if change is not None:
        change(item, text)


def _agent(item: Object, text: Text) -> None:
    container = _at(item, _CONTAINER)
    container["env"] = _environment(container["env"], text)
    _claims(item, text)


def _vgpus(item: Object, text: Text) -> None:
    _container_agent(item, text, ".Values.vgpuDeviceManager.resources")


def _claims(item: Object, text: Text) -> None:
    _container_agent(item, text, ".Values.migManager.resources")


def _container_agent(item: Object, text: Text, resources: str) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    _block(container, "resources", resources, text)
    _block(pod, "tolerations", ".Values.daemonsets.tolerations", text)
    _pull_secrets(pod, text)


def _controller(item: Object, text: Text) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    _block(container, "resources", ".Values.controller.resources", text)
    _pull_secrets(pod, text)
    here = f"and .Values.devices.enabled {MANAGED}"
    secret = "and .Values.dra.extender.enabled .Values.dra.extender.tlsSecret"
    either = f"or ({here}) ({secret})"
    mounts = (
        (here, "- {name: certificate, mountPath: /webhook-certificate, readOnly: true}"),
        (secret, "- {name: extender-certificate, mountPath: /extender-certificate, readOnly: true}"),
    )
    volumes = (
        (here, f"- {{name: certificate, secret: {{secretName: {CERTIFICATE}}}}}"),
        (secret, "- {name: extender-certificate, secret: {secretName: '{{ .Values.dra.extender.tlsSecret }}'}}"),
    )
    for target, before, key, rows in (
        (container, "securityContext", "volumeMounts", mounts),
        (pod, "containers", "volumes", volumes),
    ):
        lines = [f"{{{{- if {either} }}}}", f"{key}:"]
        lines += [line for condition, row in rows for line in (f"{{{{- if {condition} }}}}", row, "{{- end }}")]
        for line in (*lines, "{{- end }}"):
            insert_before(target, (before,), text.line(line))
    insert_before(item["spec"], ("replicas",), text.line("replicas: {{ .Values.controller.replicas }}"))
    del item["spec"]["replicas"]


def _dashboard(item: Object, text: Text) -> None:
    pod, container = _at(item, _POD), _at(item, _CONTAINER)
    container["imagePullPolicy"] = _PULL
    tls = ".Values.dashboard.tlsSecret"
    container["args"] += [
        text.line("{{- range .Values.dashboard.hosts }}"),
        "--allowed-host={{ . }}",
        text.line("{{- end }}"),
        text.line(f"{{{{- if {tls} }}}}"),
        f"--tls-cert={dashboard.TLS}/tls.crt",
        f"--tls-key={dashboard.TLS}/tls.key",
        text.line("{{- end }}"),
        text.line("{{- if .Values.dashboard.readOnly }}"),
        "--read-only",
        text.line("{{- end }}"),
    ]
    for key in ("livenessProbe", "readinessProbe"):
        container[key]["httpGet"]["scheme"] = f'{{{{ ternary "HTTPS" "HTTP" (ne {tls} "") }}}}'
    _block(container, "resources", ".Values.dashboard.resources", text)
    _pull_secrets(pod, text)
    mount = f"volumeMounts: [{{name: tls, mountPath: {dashboard.TLS}, readOnly: true}}]"
    _given(container, "securityContext", tls, mount, text)
    volume = "volumes: [{name: tls, secret: {secretName: '{{ " + tls + " }}'}}]"
    _given(pod, "containers", tls, volume, text)


def _network(item: Object, text: Text) -> None:
    """Let in the clients that the values name, or none."""
    spec = item["spec"]
    insert_before(spec, ("ingress",), text.line("{{- if .Values.dashboard.from }}"))
    rule = "ingress: [{from: {{ toJson .Values.dashboard.from }}}]"
    insert_before(spec, ("ingress",), text.line(rule))
    insert_before(spec, ("ingress",), text.line("{{- else }}"))
    del spec["ingress"]
    spec[text.line("ingress: []")] = None
    spec[text.line("{{- end }}")] = None


def _reached(item: Object, text: Text) -> None:
    """Restrict clients of metrics and webhooks, and the destinations of the pods, as the values say."""
    spec, value = item["spec"], ".Values.networkPolicy"
    for rule in spec["ingress"]:
        if isinstance(rule, str):
            continue
        if rule.pop("from", None):
            rule[text.line(f"from: {{{{ toJson {value}.metricsFrom }}}}")] = None
            continue
        for line in (f"{{{{- if {value}.webhookFrom }}}}", f"from: {{{{ toJson {value}.webhookFrom }}}}", "{{- end }}"):
            rule[text.line(line)] = None
    spec["policyTypes"] += [text.line(f"{{{{- if {value}.egress }}}}"), "Egress", text.line("{{- end }}")]
    _given(spec, "ingress", f"{value}.egress", f"egress: {{{{ toJson {value}.egress }}}}", text)


def _reached_by_all(item: Object, text: Text) -> None:
    """Restrict the clients of the extender as those of the webhooks: both are parts of the control plane."""
    value = ".Values.networkPolicy.webhookFrom"
    (rule,) = (each for each in item["spec"]["ingress"] if not isinstance(each, str))
    for line in (f"{{{{- if {value} }}}}", f"from: {{{{ toJson {value} }}}}", "{{- end }}"):
        rule[text.line(line)] = None


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
    """Set the failure policy, and let cert-manager inject its authority. With cert-manager the controller has no right
    to register the webhooks, so they are registered from the start. Unless the values say otherwise, requests do not
    wait for them.
    """
    if "webhooks" not in item:
        return
    item["metadata"]["annotations"] = {"cert-manager.io/inject-ca-from": f"{VALUES.namespace}/{WEBHOOK}"}
    for hook in item["webhooks"]:
        if hook["failurePolicy"] == "Fail":
            hook["failurePolicy"] = "{{ .Values.webhook.certManager.failurePolicy }}"


def _settings(item: Object, text: Text) -> None:
    output = (
        '(dict "version" "aliquot/v1"'
        ' "mig" (dict "config-map" .Values.migManager.config.name "default-config" .Values.migManager.config.default)'
        ' "vgpu" (dict "config-map" .Values.vgpuDeviceManager.config.name)'
        ' "device-plugin" (dict "enabled" .Values.devicePlugin.enabled)'
        ' "labels" (dict "enabled" .Values.gfd.enabled))'
    )
    item["data"] = {
        text.line(f"{names.SETTINGS_KEY}: |"): None,
        text.line(f"{{{{- toYaml (mergeOverwrite {output} .Values.settings) | nindent 4 }}}}"): None,
    }


_CHANGES: dict[tuple[str, str], Callable[[Object, Text], None]] = {
    ("DaemonSet", VALUES.daemon_set): _agent,
    ("DaemonSet", CLAIMS): _claims,
    ("DaemonSet", VGPUS_DAEMON_SET): _vgpus,
    ("Deployment", CONTROLLER): _controller,
    ("DaemonSet", DEVICES): _devices,
    ("Deployment", DASHBOARD): _dashboard,
    ("NetworkPolicy", DASHBOARD): _network,
    ("NetworkPolicy", VALUES.daemon_set): _reached,
    ("NetworkPolicy", CLAIMS): _reached,
    ("NetworkPolicy", VGPUS_DAEMON_SET): _reached,
    ("NetworkPolicy", CONTROLLER): _reached,
    ("NetworkPolicy", DEVICES): _reached,
    ("NetworkPolicy", EXTENDER): _reached_by_all,
    ("DaemonSet", toolkit.NAME): _driver,
    (webhooks.VALIDATING, WEBHOOK): _webhooks,
    (webhooks.MUTATING, WEBHOOK): _webhooks,
    ("ConfigMap", names.SETTINGS_MAP): _settings,
}


def _given(item: Object, before: str, condition: str, line: str, text: Text) -> None:
    """Insert a line before a key, under a condition."""
    for each in (f"{{{{- if {condition} }}}}", line, "{{- end }}"):
        insert_before(item, (before,), text.line(each))


def _at(item: Any, path: Path) -> Any:
    for step in path:
        item = item[step]
    return item


def _block(item: Object, key: str, value: str, text: Text) -> None:
    """Replace the value at ``key`` by a whole value of the chart."""
    insert_before(item, (key,), text.line(f"{key}: {{{{- toYaml {value} | nindent {{inner}} }}}}"))
    del item[key]


def _pull_secrets(pod: Object, text: Text) -> None:
    insert_before(pod, ("containers",), text.line("{{- with .Values.imagePullSecrets }}"))
    insert_before(pod, ("containers",), text.line("imagePullSecrets: {{- toYaml . | nindent {inner} }}"))
    insert_before(pod, ("containers",), text.line("{{- end }}"))


def _environment(entries: list[Object], text: Text) -> list[Any]:
    """Return each variable unless the values have one of that name, then those of the values."""
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
