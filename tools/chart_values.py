"""Parts of the chart that its user sets and reads: values, their schema, and the notes after an installation."""

from __future__ import annotations

from typing import Any, get_args

from aliquot.core.config.settings import STRATEGIES
from aliquot.kubernetes.dra.model.device import ModeChanges
from aliquot.kubernetes.dra.model.ranking import ScoreName

VALUES_YAML = """\
# Made by tools/build_manifests.py: change tools/chart_values.py. Values are named as in the GPU Operator's chart.
image:
  # required: the repository of the image that deploy/Containerfile builds, for example registry.example/aliquot
  repository: ""
  # empty: the chart's appVersion
  tag: ""
  pullPolicy: IfNotPresent
imagePullSecrets: []

# true if the GPU Operator stays in this namespace, because it deletes objects with the names of its own MIG manager
besideOperator: false

mig:
  # single (the GPU Operator's default): every MIG device is nvidia.com/gpu, and a node has one profile; mixed: each
  # profile is a resource (nvidia.com/mig-1g.10gb), and all-balanced works; none: only whole GPUs are allocated
  strategy: single

# how pods get the GPUs of a node: plugin (the label nvidia.com/mig.config, and a device plugin) or dra (claims, or
# resources that the scheduler turns into claims; Kubernetes 1.36). A node's label aliquot.dev/allocation overrides it
allocation: plugin

# the agent that serves claims (DRA), with the rights to read ResourceClaims and to publish its node's ResourceSlices
dra:
  # true: install it for nodes with the label aliquot.dev/allocation=dra. With allocation=dra it is always installed
  enabled: false
  # the name of the driver; gpu.nvidia.com serves in place of NVIDIA's, which must not run on the same nodes
  driver: gpu.aliquot.dev
  # which placements the scheduler is offered first: fragmentation, keep-whole-gpus or first-fit
  score: fragmentation
  # whether a claim may change the MIG mode of an idle GPU: never, without-reset (Hopper and later) or any
  modeChanges: without-reset
  # the GPUs that serve VMs and not pods, for example all=L40S-12Q+mig-backed; docs/howto/dra.md. Empty: none
  vms: ""
  # the controller rates nodes for kube-scheduler, whose configuration must name it; docs/howto/dra.md. A cluster with
  # 10,000 GPUs needs 170 MiB more in controller.resources
  extender:
    enabled: false
    # which nodes are preferred: fragmentation, keep-whole-gpus or first-fit
    score: fragmentation
    # Secret with tls.crt and tls.key; empty: a certificate that the scheduler cannot verify
    tlsSecret: ""

migManager:
  enabled: true
  # variables of the agent; they override those of the chart. WITH_REBOOT=true reboots a node if MIG needs it
  env: []
  config:
    # ConfigMap with the named configs (key config.yaml); empty: generated on each node
    name: ""
    # create that ConfigMap from data
    create: false
    data: {}
    # named config of a MIG-capable node without the label nvidia.com/mig.config; empty: none
    default: all-disabled
  # true: agents may evict pods, which the holder policies drain and force need. An admission policy cannot see the node
  # of an evicted pod, so a stolen agent token could evict pods of any node, outside kube-system
  evictions: false
  gpuClientsConfig:
    # ConfigMap with clients.yaml; empty: default-gpu-clients
    name: ""
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 256Mi}

# the agent of nodes for VMs with vGPUs, in place of NVIDIA's vGPU device manager: it follows nvidia.com/vgpu.config
vgpuDeviceManager:
  enabled: false
  config:
    # ConfigMap with the named configs (key config.yaml); empty: generated on each node
    name: ""
    # named config of a node without the label; empty: its vGPUs stay as they are. ClusterPolicy's counts first
    default: ""
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 256Mi}

driver:
  # false: the driver is installed on the host, so the host's GPU services are stopped during a change
  enabled: true

cdi:
  enabled: true

# the agent replaces NVIDIA's device plugin and gpu-feature-discovery
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
  # Alerts for the Prometheus Operator, and a dashboard that Grafana's sidecar finds; docs/metrics.md
  prometheusRule:
    enabled: false
  grafanaDashboard:
    enabled: false

# GPUs for VMs (KubeVirt, Harvester), as a replacement for Harvester's pcidevices. If the CRDs already exist, apply
# deploy/crds first: Helm does not replace them
devices:
  enabled: false
  # true on Harvester: its add-on pcidevices-controller stays enabled, and leaves nodes with the label
  # aliquot.dev/without-pcidevices to Aliquot, also after upgrades of Harvester
  besidePcidevices: false
  # true on Harvester: nodes that pcidevices leaves keep its devices of other vendors (network cards, disks, USB).
  # false where no pcidevices ran: the agent serves only NVIDIA's devices
  allDevices: false
  # true: the controller may change the definitions of Harvester's kinds, and adds what pcidevices drops again
  repairDefinitions: true
  # location of the GPU driver's programs: auto (in the driver's pod if the node has one), pod or local
  driver: auto
  # the namespace of the driver's pods, unless driverToolkit creates them
  driverNamespace: harvester-system
  # the namespace of the KubeVirt object
  kubevirtNamespace: harvester-system
  tolerations:
  - {operator: Exists}
  resources:
    requests: {cpu: 10m, memory: 64Mi}
    limits: {memory: 256Mi}

webhook:
  certManager:
    # true: cert-manager creates the webhooks' certificate; false: the controller creates and renews its own
    enabled: false
    issuer:
      # empty: a self-signed issuer only for this certificate
      name: ""
      kind: Issuer
    # with cert-manager the webhooks are registered from the start, because the controller has no right to do it.
    # Ignore: while none answers, Harvester's kinds change unchecked. Fail, once the controller is ready: changes wait
    failurePolicy: Ignore

# network access to the pages of the agents and the controller; the web page has its own policy
networkPolicy:
  enabled: true
  # clients of metrics, as in a NetworkPolicy (from); by default the pods of the namespace monitoring
  metricsFrom:
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
  # clients of webhooks, capacity and the scheduler extender; if empty, all. The list must include the addresses of the
  # API server and, with the extender, of kube-scheduler
  webhookFrom: []
  # destinations of the pods (egress), for example only the API server's address; if empty, all
  egress: []

# the web page: kubectl port-forward -n NAMESPACE deploy/aliquot-dashboard 8470
dashboard:
  enabled: false
  # true: users cannot change anything through the page
  readOnly: false
  # host names of an ingress or another proxy in front of the page
  hosts: []
  # Secret with tls.crt and tls.key, with which the page itself serves HTTPS
  tlsSecret: ""
  # clients over the network, as in a NetworkPolicy (from); if empty, none
  from: []
  resources:
    requests: {cpu: 10m, memory: 96Mi}
    limits: {memory: 512Mi}

# NVIDIA's vGPU host driver on nodes that need it, with Harvester's image
driverToolkit:
  enabled: false
  image:
    repository: rancher/harvester-nvidia-driver-toolkit
    tag: ""
    pullPolicy: IfNotPresent
  # URL of the driver's .run file on your own server
  location: ""

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

LOCATED = """\
{{- $location := .Values.driverToolkit.location }}
{{- if or (not (regexMatch "^https?://[^/]+/.+" $location)) (contains "HTTPENDPOINT" $location) }}
{{- $next := "give the URL of the vGPU host driver's .run file on a server of yours" }}
{{- fail (printf "driverToolkit.location is %q: %s" $location $next) }}
{{- end }}
{{- $_ := required "driverToolkit.image.tag is empty: name a version of the image" .Values.driverToolkit.image.tag }}
"""

NOTES = """\
{{- if and .Values.vgpuDeviceManager.enabled (not .Values.migManager.enabled) }}
{{- $next := "leave it true, and set settings.mig.enabled=false to leave MIG to another program" }}
{{- fail (printf "vgpuDeviceManager.enabled needs migManager.enabled, whose account it uses: %s" $next) }}
{{- end }}
{{- if and .Values.devices.besidePcidevices (not .Values.devices.enabled) }}
{{- fail "devices.besidePcidevices needs devices.enabled=true: no agent serves the nodes that pcidevices leaves" }}
{{- end }}
{{- if and .Values.devices.allDevices (not .Values.devices.enabled) }}
{{- fail "devices.allDevices needs devices.enabled=true: it is an option of the devices agent" }}
{{- end -}}
Aliquot {{ .Chart.AppVersion }} partitions the GPUs of this cluster. MIG strategy: {{ .Values.mig.strategy }}.

If the GPU Operator runs its own MIG manager, device plugin or gpu-feature-discovery, turn them off first:

  kubectl patch clusterpolicies.nvidia.com/cluster-policy --type=merge \\
    -p '{"spec":{"migManager":{"enabled":false},"devicePlugin":{"enabled":false},"gfd":{"enabled":false}}}'

Partition the GPUs of a node:
{{- if eq .Values.mig.strategy "mixed" }}

  kubectl label nodes NODE nvidia.com/mig.config=all-balanced --overwrite
{{- else if eq .Values.mig.strategy "none" }}
The strategy none offers only whole GPUs; mig.strategy=mixed offers the MIG devices:

  kubectl label nodes NODE nvidia.com/mig.config=all-balanced --overwrite
{{- else }}
The strategy {{ .Values.mig.strategy }} needs one profile per node. For several (all-balanced), use mig.strategy=mixed.

  kubectl label nodes NODE nvidia.com/mig.config=all-1g.10gb --overwrite
{{- end }}
  kubectl get node NODE -L nvidia.com/mig.config,nvidia.com/mig.config.state
  kubectl logs -n {{ .Release.Namespace }} -l app=nvidia-mig-manager -c nvidia-mig-manager

The named configs of a node:

  kubectl get configmap -n {{ .Release.Namespace }} NODE-mig-config -o yaml
"""


def schema() -> dict[str, Any]:
    """Return the schema of the values. It refuses unknown values, such as a misspelled name."""
    text, flag = {"type": "string"}, {"type": "boolean"}
    name = {"type": "string", "minLength": 1}
    pull = {"enum": ["Always", "IfNotPresent", "Never"]}
    return {"$schema": "http://json-schema.org/draft-07/schema#"} | _section(
        **{"global": {"type": "object"}},
        image=_section(repository=text, tag=text, pullPolicy=pull),
        imagePullSecrets={"type": "array", "items": {"type": "object"}},
        besideOperator=flag,
        mig=_section(strategy={"enum": list(STRATEGIES)}),
        allocation={"enum": ["plugin", "dra"]},
        dra=_section(
            enabled=flag,
            driver={"type": "string", "minLength": 1, "maxLength": 63},
            score={"enum": list(get_args(ScoreName))},
            modeChanges={"enum": list(get_args(ModeChanges))},
            vms={"type": "string"},
            extender=_section(enabled=flag, score={"enum": list(get_args(ScoreName))}, tlsSecret=text),
        ),
        migManager=_manager(),
        vgpuDeviceManager=_section(
            enabled=flag, config=_section(name=text, default=text), resources={"type": "object"}
        ),
        driver=_section(enabled=flag),
        cdi=_section(enabled=flag),
        devicePlugin=_section(enabled=flag),
        gfd=_section(enabled=flag),
        daemonsets=_section(tolerations={"type": "array", "items": {"type": "object"}}),
        controller=_section(replicas={"type": "integer", "minimum": 1}, resources={"type": "object"}),
        devices=_section(
            enabled=flag,
            besidePcidevices=flag,
            allDevices=flag,
            repairDefinitions=flag,
            driver={"enum": ["auto", "pod", "local"]},
            driverNamespace=name,
            kubevirtNamespace=name,
            tolerations={"type": "array", "items": {"type": "object"}},
            resources={"type": "object"},
        ),
        webhook=_section(
            certManager=_section(
                enabled=flag,
                issuer=_section(name=text, kind={"enum": ["Issuer", "ClusterIssuer"]}),
                failurePolicy={"enum": ["Ignore", "Fail"]},
            )
        ),
        dashboard=_section(
            enabled=flag,
            readOnly=flag,
            hosts={"type": "array", "items": name},
            tlsSecret=text,
            resources={"type": "object"},
            **{"from": {"type": "array", "items": {"type": "object"}}},
        ),
        networkPolicy=_section(
            enabled=flag,
            metricsFrom={"type": "array", "items": {"type": "object"}, "minItems": 1},
            webhookFrom={"type": "array", "items": {"type": "object"}},
            egress={"type": "array", "items": {"type": "object"}},
        ),
        driverToolkit=_section(enabled=flag, image=_section(repository=text, tag=text, pullPolicy=pull), location=text),
        metrics=_section(
            serviceMonitor=_section(enabled=flag),
            prometheusRule=_section(enabled=flag),
            grafanaDashboard=_section(enabled=flag),
        ),
        settings={"type": "object"},
    )


def _manager() -> dict[str, Any]:
    text, flag = {"type": "string"}, {"type": "boolean"}
    variable = {**_section(name=text, value=text, valueFrom={"type": "object"}), "required": ["name"]}
    config = _section(
        name=text,
        create=flag,
        data={"type": ["object", "null"], "additionalProperties": text},
        default={"enum": ["all-disabled", ""]},
    )
    return _section(
        enabled=flag,
        env={"type": "array", "items": variable},
        config=config,
        evictions=flag,
        gpuClientsConfig=_section(name=text),
        resources={"type": "object"},
    )


def _section(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
