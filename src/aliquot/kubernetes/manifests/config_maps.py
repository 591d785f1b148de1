"""ConfigMaps: default named configs, the host's GPU services, the settings."""

from __future__ import annotations

from aliquot.core.config import settings, settings_text
from aliquot.core.config.formats import gpu_clients
from aliquot.core.config.formats import yaml_writer as write
from aliquot.core.config.generate import generate
from aliquot.core.config.select.selector import packed
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Gpu, Inventory, Mig
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests.values import Object, Values, metadata


def agent(values: Values) -> list[Object]:
    return [
        config_map(values.fallback_map, "agent", {"config.yaml": fallback()}, values),
        config_map(values.clients_made, "agent", {"clients.yaml": clients()}, values),
    ]


def settings_maps(values: Values) -> list[Object]:
    return [config_map(names.SETTINGS_MAP, "controller", {names.SETTINGS_KEY: blank_settings()}, values)]


def config_map(name: str, component: str, data: dict[str, str], values: Values) -> Object:
    meta = metadata(name, component, values.namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def fallback() -> str:
    """Return named configs for every GPU of the catalog that has a PCI id, as one node with all of them would
    generate.
    """
    devices = {d.pci_device: d for d in catalog.devices() if d.mig_family and packed(d.pci_device) is not None}
    gpus = tuple(
        Gpu(
            pci=f"0000:{number:02x}:00.0",
            uuid=f"GPU-{number}",
            index=number,
            product=device.name,
            pci_device=pci_device,
            family=device.mig_family,
            mig=Mig(capable=True),
        )
        for number, (pci_device, device) in enumerate(sorted(devices.items()))
    )
    return write.to_yaml(generate(Inventory("catalog", gpus)))


def clients() -> str:
    return write.to_yaml({"version": "v1", "systemd-services": list(gpu_clients.DEFAULT)})


def blank_settings() -> str:
    """Return a settings file without settings, with every setting and its default as a comment."""
    lines = [
        "# Settings of all nodes. They override the agents' environment; ClusterPolicy overrides them.",
        "version: aliquot/v1",
    ]
    default, section = settings.AgentSettings(), ""
    for key in settings_text.KEYS:
        if key.section != section:
            section = key.section
            lines.append(f"# {section}:")
        choices = f" ({', '.join(word or 'empty' for word in key.choices)})" if key.choices else ""
        lines.append(f"#   {key.key}: {write.scalar(getattr(default, key.field))}    # {key.meaning}{choices}")
    lines += ["# configs:", "#   all-1g.10gb: {holders: drain, cordon: true}    # only for this named config"]
    return "\n".join(lines) + "\n"
