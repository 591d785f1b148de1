"""docs/reference/config.md: what may stand in a file, from the code that reads it."""

from __future__ import annotations

from collections.abc import Iterator

from tools.docs.text import made, table

from aliquot.core.config import load, settings, settings_text
from aliquot.core.config.file import NATIVE, SHARES
from aliquot.core.config.formats import native
from aliquot.core.config.formats.native_vgpu import MIXED
from aliquot.core.config.select.selector import MAX_INDEX
from aliquot.core.config.text.instance_request import MAX_COUNT
from aliquot.core.config.text.vgpu_request import MAX_VGPUS
from aliquot.errors import ConfigError

TOP = {
    "version": ("text", f"`{NATIVE}`", "required"),
    "configs": ("mapping of names to lists of entries", "at least one", "required"),
    "x-aliquot": ("anything", "who wrote the file, for `--out`; it is passed over", ""),
}
ENTRY = {
    "gpus": (
        "`all`, or a mapping of terms",
        "which GPUs the entry is for; all terms that are given must hold",
        "required",
    ),
    "mig": ("`disabled`, a mapping, or a list", "how they are cut", "one of the three"),
    "vgpu": ("`none`, or a mapping", "which vGPUs they have", "one of the three"),
    "passthrough": ("`true` or `false`", "whether they are handed out whole", "one of the three"),
    MIXED: (
        "`true` or `false`",
        "vGPUs of different sizes beside each other; left out: as it is",
        "beside `vgpu` only",
    ),
}
TERMS = {
    "product": ("a name, or a list", "NVML's name, with or without NVIDIA: `A100-SXM4-40GB`"),
    "index": (f"a number from 0 to {MAX_INDEX}, a range `0-3`, or a list", "the place in PCI order"),
    "uuid": ("`GPU-...`, or a list", "the GPU's UUID, never a MIG device's"),
    "pci": ("an address, or a list", "`0000:07:00.0`"),
    "device-filter": (
        "a packed PCI id, or a list",
        '`"0x20B010DE"`, with the subsystem too: `"0x25B610DE:0x14A910DE"`',
    ),
}
WISH = {
    "profile": ("a profile", "`3g.20gb`, `1c.3g.20gb`, or by number `id:9`"),
    "placement": ("a number, or `start:size`", "the first memory slice; left out: the planner chooses"),
    "compute": (
        "a list of compute instance profiles",
        "left out: one that covers the instance. `@` names the compute slot",
    ),
}
EXAMPLES = (
    ("The least", "configs:\n  all:\n    - gpus: all\n      mig: {1g.5gb: 7}\n"),
    (
        "Counts, places and numbers",
        'configs:\n  train:\n    - gpus: {index: "0-3"}\n      mig: {3g.20gb: 2}\n'
        "    - gpus: {pci: 0000:08:00.0}\n      mig: [3g.20gb@4, id:19]\n"
        "    - gpus: {index: 7}\n      mig: disabled\n",
    ),
    (
        "Compute instances",
        "configs:\n  shared:\n    - gpus: {index: 0}\n"
        "      mig: [{profile: 3g.20gb, placement: 4, compute: [2c.3g.20gb, 1c.3g.20gb]}]\n",
    ),
    (
        "vGPUs and passthrough",
        "configs:\n  desktops:\n    - gpus: {product: L40S}\n      vgpu: {L40S-16Q: 1, L40S-8Q: 2}\n"
        "      mixed-size: true\n    - gpus: {index: 9}\n      passthrough: true\n",
    ),
)
REFUSED = (
    "configs:\n  a:\n    - gpus: {index: 0}\n      mig: {1g.5gb: 0}\n",
    "configs:\n  a:\n    - gpus: {index: 0}\n      mig: {1g.5gb: 1}\n      vgpu: none\n",
    "configs:\n  a:\n    - gpu: all\n      mig: {3g.20: 1}\n",
    "configs:\n  a:\n    - gpus: {uuid: MIG-1, index: [0, 0]}\n      mig: {}\n",
)


def page() -> str:
    """The whole page. Raises AssertionError where the tables above and the reader's own keys differ."""
    assert tuple(TERMS) == native._TERMS
    assert tuple(ENTRY) == ("gpus", *SHARES, MIXED)
    return "\n".join([*_native(), *_examples(), *_settings(), *_others()]) + "\n"


def _native() -> Iterator[str]:
    yield from ("# Files: every key", "", made("config.md", "src/aliquot/core/config"), "")
    yield "For whoever writes a file for Aliquot, or a program that does. At the end you know every key, its type"
    yield "and its rules. With words around it:"
    yield from ("[files.md](../files.md).", "", f"## `version: {NATIVE}`", "")
    yield from table(("key", "type", "meaning", ""), ((f"`{k}`", *v) for k, v in TOP.items()))
    yield from ("", "### An entry", "")
    yield from table(("key", "type", "meaning", ""), ((f"`{k}`", *v) for k, v in ENTRY.items()))
    yield from ("", "### `gpus`", "")
    yield from table(("term", "type", "meaning"), ((f"`{k}`", *v) for k, v in TERMS.items()))
    yield from ("", "### `mig`", "")
    yield "- `disabled`: MIG mode off. `{}`: MIG mode on, no instances."
    yield f"- A mapping of profiles to counts from 1 to {MAX_COUNT}: `{{3g.20gb: 2}}`. The planner places them."
    yield "- A list of wishes, each a text (`3g.20gb`, `3g.20gb@4`, `id:19`) or a mapping:"
    yield ""
    yield from table(("key", "type", "meaning"), ((f"`{k}`", *v) for k, v in WISH.items()))
    yield from ("", "### `vgpu`", "")
    yield f"`none`, or a mapping of types to counts from 1 to {MAX_VGPUS}: by full name, by short name (`A2-4Q`),"
    yield "or by number (`id:746`, `nvidia-746`)."


def _examples() -> Iterator[str]:
    yield from ("", "## Examples", "")
    for title, text in EXAMPLES:
        whole = f"version: {NATIVE}\n{text}"
        load.load(whole, "example.yaml")
        yield from (f"{title}:", "", "```yaml", *whole.splitlines(), "```", "")
    yield from ("## What is refused", "", "All faults of a file at once, each with line and column (exit code 2):", "")
    for text in REFUSED:
        whole = f"version: {NATIVE}\n{text}"
        try:
            load.load(whole, "wish.yaml")
            raise AssertionError(f"this is taken: {text}")
        except ConfigError as error:
            lines = [f"{error.brief}:", *error.details]
        yield from ("```text", *whole.splitlines(), "", *lines, "```", "")


def _settings() -> Iterator[str]:
    yield from ("## Settings of the agents in a cluster", "")
    yield "The ConfigMap `aliquot-settings`, key `settings.yaml`, which begins with `version: aliquot/v1`."
    yield "ClusterPolicy outranks it where it says the same."
    yield ""
    rows = []
    for key in settings_text.KEYS:
        default = getattr(settings.AgentSettings(), key.field)
        what = " ".join(f"`{c}`" if c else "empty" for c in key.choices)
        what = what or (
            f"{key.lowest} to {key.highest}" if key.highest else "a name" if key.name else "`true` or `false`"
        )
        shown = {True: "true", False: "false", "": "(empty)"}.get(default, default)
        rows.append((f"`{key.section}`", f"`{key.key}`", what, f"`{shown}`", key.meaning))
    yield from table(("section", "key", "values", "default", "meaning"), rows)
    yield ""
    yield "`configs: {NAME: {holders: ..., cordon: ..., prediction: ...}}` says otherwise for one named config."
    yield ""


def _others() -> Iterator[str]:
    yield "## Other files"
    yield ""
    yield from table(
        ("file", "where it is explained"),
        (
            ("nvidia-mig-parted v1: config, hooks, checkpoint", "[files.md](../files.md#mig-parted-v1)"),
            ("vgpu-device-manager v1", "[files.md](../files.md#vgpu-device-manager-v1)"),
            (
                "the Slurm controller's settings",
                "[slurm.yaml](../../deploy/slurm/slurm.yaml): every key with a comment",
            ),
            ("values of the Helm chart", "[deploy/README.md](../../deploy/README.md#2b-helm)"),
        ),
    )
