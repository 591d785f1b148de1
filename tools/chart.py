"""The Helm chart: the same objects as deploy/kubernetes, with template expressions for values. It has no logic of its
own.

``chart_holes`` has the template expressions.
"""

from __future__ import annotations

import json
from pathlib import Path as FilePath

from tools.chart_holes import CERTIFICATE, MANAGED, TOOLKIT, VALUES, fill
from tools.chart_values import CUSTOM, LOCATED, NOTES, VALUES_YAML, schema
from tools.yaml_text import Text

from aliquot import __version__
from aliquot.kubernetes.manifests import bundle, toolkit, webhooks
from aliquot.kubernetes.manifests.comments import object_comments
from aliquot.kubernetes.manifests.values import WEBHOOK, Object, metadata

HEAD = "{{- /* Made by tools/build_manifests.py: change tools/chart.py or the package's manifests. */ -}}\n"


_WHEN = {
    bundle.CONTAINERS: ".Values.migManager.enabled",
    bundle.MACHINES: ".Values.devices.enabled",
    bundle.CERTIFICATE: "and .Values.devices.enabled (not .Values.webhook.certManager.enabled)",
    bundle.REPAIR: "and .Values.devices.enabled .Values.devices.repairDefinitions",
    bundle.BOTH: "or .Values.migManager.enabled .Values.devices.enabled",
}
_CLAIMS = 'or .Values.dra.enabled (eq .Values.allocation "dra")'
_SWITCHED = {
    "41-network": "and .Values.networkPolicy.enabled ({})",
    f"{bundle.OPTIONAL}/servicemonitor": "and .Values.metrics.serviceMonitor.enabled ({})",
    f"{bundle.OPTIONAL}/claims": f"and ({_CLAIMS}) {{}}",
    f"{bundle.OPTIONAL}/claims-network": f"and .Values.networkPolicy.enabled ({_CLAIMS}) {{}}",
    f"{bundle.OPTIONAL}/vgpus": "and .Values.vgpuDeviceManager.enabled {}",
    f"{bundle.OPTIONAL}/vgpus-network": "and .Values.networkPolicy.enabled .Values.vgpuDeviceManager.enabled {}",
    f"{bundle.OPTIONAL}/extender": "and .Values.dra.extender.enabled ({})",
    f"{bundle.OPTIONAL}/extender-network": "and .Values.networkPolicy.enabled .Values.dra.extender.enabled ({})",
    f"{bundle.OPTIONAL}/evictions": "and .Values.migManager.evictions {}",
    f"{bundle.OPTIONAL}/all-devices": "and .Values.devices.allDevices {}",
    f"{bundle.OPTIONAL}/beside-pcidevices": "and .Values.devices.besidePcidevices {}",
    f"{bundle.OPTIONAL}/dashboard": "and .Values.dashboard.enabled ({})",
}
_PROMETHEUS = FilePath(__file__).resolve().parent.parent / "deploy/prometheus"
_FILES = {"prometheusrule": "aliquot.rules.yaml", "grafana-dashboard": "aliquot.dashboard.json"}
_COPIED = {
    "prometheusrule": ".Values.metrics.prometheusRule.enabled",
    "grafana-dashboard": ".Values.metrics.grafanaDashboard.enabled",
}


def files() -> dict[str, str]:
    """Return the files of the chart."""
    found = {
        "Chart.yaml": _chart(),
        "values.yaml": VALUES_YAML,
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        "templates/NOTES.txt": NOTES,
        "templates/custom-config.yaml": HEAD + CUSTOM,
    }
    for name, groups in bundle.grouped(VALUES).items():
        if name != "00-namespace":
            more = _SWITCHED.get(name, "{}")
            text = "".join(_part(more.format(_WHEN[place]), objects) for place, objects in groups)
            found[f"templates/{name.rpartition('/')[2]}.yaml"] = HEAD + text
    managed = [*_certificate(), *webhooks.configurations(VALUES)]
    found["templates/34-certificate.yaml"] = HEAD + _part("and .Values.devices.enabled " + MANAGED, managed)
    driver = toolkit.objects(VALUES, TOOLKIT)
    found["templates/50-driver-toolkit.yaml"] = HEAD + _part(".Values.driverToolkit.enabled", driver, LOCATED)
    for kind, switch in _COPIED.items():
        found[f"templates/{kind}.yaml"] = HEAD + f"{{{{- if and {switch} ({_WHEN[bundle.BOTH]}) }}}}\n" + _copied(kind)
        found[f"prometheus/{_FILES[kind]}"] = (_PROMETHEUS / _FILES[kind]).read_text()
    return found


def _copied(kind: str) -> str:
    """Return a file that contains braces. It is included as it is, and not as a template."""
    meta = Text().dump({"metadata": metadata("aliquot", "metrics", VALUES.namespace)})
    get = f'.Files.Get "prometheus/{_FILES[kind]}"'
    if kind == "prometheusrule":
        head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n"
        return f"---\n{head}{meta}spec:\n{{{{ {get} | indent 2 }}}}\n{{{{- end }}}}\n"
    meta = meta.replace("name: aliquot\n", "name: aliquot-dashboard-grafana\n", 1) + '    grafana_dashboard: "1"\n'
    data = f"data:\n  {_FILES[kind]}: |\n{{{{ {get} | indent 4 }}}}\n"
    return f"---\napiVersion: v1\nkind: ConfigMap\n{meta}{data}{{{{- end }}}}\n"


def _part(condition: str, objects: list[Object], before: str = "") -> str:
    """Return objects under a condition."""
    body = "".join("---\n" + _template(item) for item in objects)
    return f"{{{{- if {condition} }}}}\n{before}{body}{{{{- end }}}}\n"


def _template(item: Object) -> str:
    text = Text()
    item = text.annotate(item, object_comments(item))
    fill(item, text)
    return text.dump(item)


def _certificate() -> list[Object]:
    """Return the objects for cert-manager: an issuer of its own, unless one is named, and the certificate."""
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


def _chart() -> str:
    return f"""\
# Made by tools/build_manifests.py: change tools/chart.py.
apiVersion: v2
name: aliquot
description: Partition NVIDIA GPUs and allocate their instances, as a replacement for NVIDIA's MIG manager
type: application
version: {__version__}
appVersion: "{__version__}"
kubeVersion: ">=1.30.0-0"
"""
