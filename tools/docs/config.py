"""docs/reference/config.md: the keys of files, from the code that reads them."""

from __future__ import annotations

from collections.abc import Iterator

from tools.docs.text import joined, made, table

from aliquot.core.config import load, settings, settings_text
from aliquot.core.config.file import NATIVE, SHARES
from aliquot.core.config.formats import native
from aliquot.core.config.formats.native_vgpu import MIXED, PARAMETERS, SCHEDULER
from aliquot.core.config.select.selector import MAX_INDEX
from aliquot.core.config.text.instance_request import MAX_COUNT
from aliquot.core.config.text.vgpu_request import MAX_VGPUS
from aliquot.core.model.plugin_parameters import NAMES
from aliquot.core.model.vgpu_scheduler import MAX_HZ, MAX_SLICE_NS, MIN_HZ, MIN_SLICE_NS, POLICIES, slice_text
from aliquot.errors import ConfigError

TOP = {
    "version": ("text", f"`{NATIVE}`", "required"),
    "configs": ("mapping of names to lists of entries", "at least one", "required"),
    "x-aliquot": ("anything", "the program that wrote the file, for `--out`; otherwise ignored", ""),
}
ENTRY = {
    "gpus": (
        "`all`, or a mapping of terms",
        "the GPUs of the entry; all given terms must match",
        "required",
    ),
    "mig": ("`disabled`, a mapping, or a list", "their MIG mode and instances", "one of the three"),
    "vgpu": ("`none`, or a mapping", "their vGPUs", "one of the three"),
    "passthrough": ("`true` or `false`", "whether they are passed through whole", "one of the three"),
    MIXED: (
        "`true` or `false`",
        "whether vGPUs of different sizes share a GPU; if omitted, unchanged",
        "only with `vgpu`",
    ),
    SCHEDULER: (
        "a text",
        "how time-sliced vGPUs share the GPU's time; if omitted, unchanged",
        "only with `vgpu`",
    ),
    PARAMETERS: (
        "a mapping",
        "the parameters of NVIDIA's plugin for each vGPU; if omitted, unchanged",
        "only with `vgpu`",
    ),
}
TERMS = {
    "product": ("a name, or a list", "NVML's name, with or without NVIDIA: `A100-SXM4-40GB`"),
    "index": (f"a number from 0 to {MAX_INDEX}, a range `0-3`, or a list", "the index in PCI order"),
    "uuid": ("`GPU-...`, or a list", "the GPU's UUID, never a MIG device's"),
    "pci": ("an address, or a list", "`0000:07:00.0`"),
    "device-filter": (
        "a packed PCI id, or a list",
        '`"0x20B010DE"`, with the subsystem too: `"0x25B610DE:0x14A910DE"`',
    ),
}
REQUEST = {
    "profile": ("a profile", "`3g.20gb`, `1c.3g.20gb`, or by number `id:9`"),
    "placement": ("a number, or `start:size`", "the first memory slice; if omitted, the planner chooses"),
    "compute": (
        "a list of compute instance profiles",
        "if omitted, one that covers the instance; `@` gives the compute slot",
    ),
}
EXAMPLES = (
    ("The smallest file", "configs:\n  all:\n    - gpus: all\n      mig: {1g.5gb: 7}\n"),
    (
        "Counts, placements and ids",
        'configs:\n  train:\n    - gpus: {index: "0-3"}\n      mig: {3g.20gb: 2}\n'
        "    - gpus: {pci: 0000:08:00.0}\n      mig: [3g.20gb@4, id:19]\n"
        "    - gpus: {index: 7}\n      mig: disabled\n",
    ),
    (
        "At least one, beside existing instances",
        "configs:\n  day:\n    - gpus: all\n      mig: {at-least: {2g.10gb: 1}}\n",
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
    """Return the whole page. Raises AssertionError if the tables above differ from the reader's own keys."""
    assert tuple(TERMS) == native._TERMS
    assert tuple(ENTRY) == ("gpus", *SHARES, MIXED, SCHEDULER, PARAMETERS)
    return joined([*_native(), *_examples(), *_settings(), *_others()])


def _native() -> Iterator[str]:
    yield from ("# Files: every key", "", made("config.md", "src/aliquot/core/config"), "")
    yield "Every key of Aliquot's files, with its type and rules. For an introduction, see"
    yield from ("[files.md](../files.md).", "", f"## `version: {NATIVE}`", "")
    yield from table(("key", "type", "meaning", ""), ((f"`{k}`", *v) for k, v in TOP.items()))
    yield from ("", "### An entry", "")
    yield from table(("key", "type", "meaning", ""), ((f"`{k}`", *v) for k, v in ENTRY.items()))
    yield from ("", "### `gpus`", "")
    yield from table(("term", "type", "meaning"), ((f"`{k}`", *v) for k, v in TERMS.items()))
    yield from ("", "### `mig`", "")
    yield "- `disabled` is MIG mode off; `{}` is MIG mode on, without instances."
    yield f"- A mapping of profiles to counts from 1 to {MAX_COUNT}: `{{3g.20gb: 2}}`. The planner places them."
    yield "- `{at-least: ...}` with such a mapping or list: existing instances stay, missing ones are added."
    yield "- A list of requests, each a text (`3g.20gb`, `3g.20gb@4`, `id:19`) or a mapping:"
    yield ""
    yield from table(("key", "type", "meaning"), ((f"`{k}`", *v) for k, v in REQUEST.items()))
    yield from ("", "### `vgpu`", "")
    yield f"`none`, or a mapping of types to counts from 1 to {MAX_VGPUS}: by full name, by short name (`A2-4Q`),"
    yield "or by number (`id:746`, `nvidia-746`)."
    yield from ("", "### `scheduler`", "")
    yield f"{', '.join(f'`{policy}`' for policy in POLICIES)}. The last two may have a time slice or a frequency after"
    yield f"a comma: `equal-share,2ms` (from {slice_text(MIN_SLICE_NS)} to {slice_text(MAX_SLICE_NS)}, at most three"
    yield f"decimals) or `fixed-share,480Hz` (from {MIN_HZ}Hz to {MAX_HZ}Hz). Details that it omits are unchanged."
    yield from ("", "### `vgpu-parameters`", "")
    yield "A mapping of these switches to `true` or `false`, for each vGPU of the entry; `{}` means the defaults:"
    yield f"{', '.join(f'`{name}`' for name in NAMES)}. The plugin reads them when a VM opens the vGPU."
    yield "A vGPU with other parameters is created again, which its VM must be off for."


def _examples() -> Iterator[str]:
    yield from ("", "## Examples", "")
    for title, text in EXAMPLES:
        whole = f"version: {NATIVE}\n{text}"
        load.load(whole, "example.yaml")
        yield from (f"{title}:", "", "```yaml", *whole.splitlines(), "```", "")
    yield from ("## Errors", "", "An error lists all mistakes of a file, with line and column (exit code 2):", "")
    for text in REFUSED:
        whole = f"version: {NATIVE}\n{text}"
        try:
            load.load(whole, "config.yaml")
            raise AssertionError(f"this file is not refused: {text}")
        except ConfigError as error:
            lines = [f"{error.brief}:", *error.details]
        yield from ("```text", *whole.splitlines(), "", *lines, "```", "")


def _settings() -> Iterator[str]:
    yield from ("## Settings of the agents in a cluster", "")
    yield "The ConfigMap `aliquot-settings` has them in the key `settings.yaml`, which begins with"
    yield "`version: aliquot/v1`. A setting that ClusterPolicy also has is taken from ClusterPolicy."
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
    yield "`configs: {NAME: {holders: ..., cordon: ..., prediction: ...}}` overrides them for one named config."
    yield ""


def _others() -> Iterator[str]:
    yield "## Other files"
    yield ""
    yield from table(
        ("file", "documentation"),
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
