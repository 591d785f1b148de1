"""Arguments of ``docker run``, in the form that a runtime accepts. Pure.

``cdi``: ``--device vendor/class=name``. ``gpus``: Docker's ``--gpus``. ``env``: NVIDIA's runtime or hook reads
NVIDIA_VISIBLE_DEVICES. The last two need the NVIDIA Container Toolkit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from aliquot.containers.runtime.models import LABEL, ContainerDevice
from aliquot.errors import UsageError

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+")


def form_of(form: str, runtime: str, count: int) -> str:
    """Return the form, with ``legacy`` replaced by a specific one. Raises UsageError for a form that this runtime does
    not support.
    """
    if form == "legacy":
        form = "env" if runtime == "podman" or (runtime == "docker" and count > 1) else "gpus"
    if form == "gpus" and runtime == "podman":
        raise UsageError("Podman does not support --gpus: use cdi or env", next_step="aliquot docker run-args --help")
    if form == "env" and runtime == "nerdctl":
        raise UsageError("nerdctl does not support env: use cdi or gpus", next_step="aliquot docker run-args --help")
    if form == "gpus" and count > 1:
        # The value would need inner double quotes, which a typed command loses and a $(...) expansion keeps.
        raise UsageError(
            "--gpus with several devices cannot be quoted for every shell: use cdi or env",
            next_step="aliquot docker run-args --help",
        )
    return form


def checked_name(name: str) -> str:
    """Return a container's name. Raises UsageError for one that runtimes refuse."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"invalid container name {name!r}: use two or more letters, digits, '_', '.' or '-', "
            "with a letter or digit first",
            next_step="aliquot docker run-args --help",
        )
    return name


def run_arguments(
    devices: Sequence[ContainerDevice],
    form: str,
    runtime: str,
    *,
    cdi: Sequence[str] = (),
    label: str = "",
    name: str = "",
) -> tuple[str, ...]:
    """Return the arguments. ``cdi`` are the devices' full CDI names; ``label`` is the reservation's id, or "". No
    argument holds a space or a quote, so that ``docker run $(aliquot docker run-args ...)`` works unquoted.
    """
    words = ["--name", name] if name else []
    words += ["--label", f"{LABEL}={label}"] if label else []
    uuids = ",".join(d.uuid for d in devices)
    match form:
        case "cdi":
            words += [w for each in cdi for w in ("--device", each)]
        case "gpus":
            words += ["--gpus", f"device={uuids}"]
        case _:
            words += ["--runtime", "nvidia"] if runtime == "docker" else []
            words += ["--env", f"NVIDIA_VISIBLE_DEVICES={uuids}"]
    return tuple(words)
