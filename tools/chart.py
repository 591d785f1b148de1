"""The Helm chart: the same objects as deploy/kubernetes, with a few holes for values. No logic of its own.

A hole is a value of ``Values`` that holds a template expression, or an entry of ``HOLES``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tools.yaml_text import Path, Text, insert_before

from aliquot import __version__
from aliquot.integrations.kubernetes import names
from aliquot.integrations.kubernetes.manifests import bundle
from aliquot.integrations.kubernetes.manifests.notes import notes
from aliquot.integrations.kubernetes.manifests.values import AGENT, BESIDE, CONTROLLER, Object, Values

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
)  # fmt: skip

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
    for name, objects in bundle.files(VALUES).items():
        if name != "00-namespace":
            condition = ".Values.migManager.enabled"
            if name.startswith(bundle.OPTIONAL):
                condition = f"and {condition} .Values.metrics.serviceMonitor.enabled"
            body = "---\n".join(_template(item) for item in objects)
            text = f"{HEAD}{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n"
            found[f"templates/{name.rpartition('/')[2]}.yaml"] = text
    return found


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
    insert_before(item["spec"], ("replicas",), text.line("replicas: {{ .Values.controller.replicas }}"))
    del item["spec"]["replicas"]


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


VALUES_YAML = """\
# Made by tools/build_manifests.py: change tools/chart.py. Names are those of the GPU Operator's chart where it has one.
image:
  # where you pushed the image that deploy/Containerfile builds
  repository: localhost/aliquot
  # empty: the chart's appVersion
  tag: ""
  pullPolicy: IfNotPresent
imagePullSecrets: []

# true where the GPU Operator stays in this namespace: it deletes what has the names of its own MIG manager
besideOperator: false

mig:
  # none, single or mixed
  strategy: single

migManager:
  enabled: true
  # variables for the agent; they replace those of the chart. WITH_REBOOT=true reboots a node where MIG needs it
  env: []
  config:
    # ConfigMap with the named configs (key config.yaml); empty: generated on each node
    name: ""
    # make that ConfigMap from data
    create: false
    data: {}
    # named config of a MIG-capable node without the label nvidia.com/mig.config; empty: none
    default: all-disabled
  gpuClientsConfig:
    # ConfigMap with clients.yaml; empty: default-gpu-clients
    name: ""
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 256Mi}

driver:
  # false: the driver was installed on the host, so the host's GPU services are stopped around a change
  enabled: true

cdi:
  enabled: true

# what the agent does in the place of NVIDIA's device plugin and gpu-feature-discovery
devicePlugin:
  enabled: true
gfd:
  enabled: true

daemonsets:
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}

controller:
  replicas: 1
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 256Mi}

metrics:
  serviceMonitor:
    enabled: false

# more settings, as in the ConfigMap aliquot-settings, for example {holders: {policy: drain}}
settings: {}
"""

CUSTOM = """\
{{- if and .Values.migManager.enabled .Values.migManager.config.create .Values.migManager.config.data }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ required "migManager.config.create needs migManager.config.name" .Values.migManager.config.name }}
  namespace: '{{ .Release.Namespace }}'
  labels:
    app.kubernetes.io/name: aliquot
    app.kubernetes.io/component: agent
data:
  {{- toYaml .Values.migManager.config.data | nindent 2 }}
{{- end }}
"""

NOTES = """\
Aliquot {{ .Chart.AppVersion }} divides the GPUs of this cluster; MIG strategy: {{ .Values.mig.strategy }}.

Where the GPU Operator runs its own MIG manager, device plugin or gpu-feature-discovery, turn them off first:

  kubectl patch clusterpolicies.nvidia.com/cluster-policy --type=merge \\
    -p '{"spec":{"migManager":{"enabled":false},"devicePlugin":{"enabled":false},"gfd":{"enabled":false}}}'

Divide a node:

  kubectl label nodes NODE nvidia.com/mig.config=all-balanced --overwrite
  kubectl get node NODE -L nvidia.com/mig.config,nvidia.com/mig.config.state
  kubectl logs -n {{ .Release.Namespace }} -l app=nvidia-mig-manager -c nvidia-mig-manager

The named configs of a node:

  kubectl get configmap -n {{ .Release.Namespace }} NODE-mig-config -o yaml
"""


def schema() -> dict[str, Any]:
    """The values that the chart takes, and nothing else: a misspelt one is refused."""
    text, flag = {"type": "string"}, {"type": "boolean"}
    variable = {**_section(name=text, value=text, valueFrom={"type": "object"}), "required": ["name"]}
    config = _section(
        name=text,
        create=flag,
        data={"type": ["object", "null"], "additionalProperties": text},
        default={"enum": ["all-disabled", ""]},
    )
    manager = _section(
        enabled=flag,
        env={"type": "array", "items": variable},
        config=config,
        gpuClientsConfig=_section(name=text),
        resources={"type": "object"},
    )
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | _section(
        **{"global": {"type": "object"}},
        image=_section(repository=text, tag=text, pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]}),
        imagePullSecrets={"type": "array", "items": {"type": "object"}},
        besideOperator=flag,
        mig=_section(strategy={"enum": list(names.STRATEGIES)}),
        migManager=manager,
        driver=_section(enabled=flag),
        cdi=_section(enabled=flag),
        devicePlugin=_section(enabled=flag),
        gfd=_section(enabled=flag),
        daemonsets=_section(tolerations={"type": "array", "items": {"type": "object"}}),
        controller=_section(replicas={"type": "integer", "minimum": 1}, resources={"type": "object"}),
        metrics=_section(serviceMonitor=_section(enabled=flag)),
        settings={"type": "object"},
    )


def _section(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
