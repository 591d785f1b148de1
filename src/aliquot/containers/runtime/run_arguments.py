"""What is typed after ``docker run``, in the form that a runtime understands. Pure.

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
    """``legacy`` made definite. Raises UsageError for a form that this runtime has not."""
    if form == "legacy":
        form = "env" if runtime == "podman" or (runtime == "docker" and count > 1) else "gpus"
    if form == "gpus" and runtime == "podman":
        raise UsageError("Podman has no --gpus form: use cdi or env", next_step="aliquot docker run-args --help")
    if form == "env" and runtime == "nerdctl":
        raise UsageError("nerdctl reads no environment: use cdi or gpus", next_step="aliquot docker run-args --help")
    if form == "gpus" and count > 1:
        # Its value would need double quotes inside: a shell that is typed into eats them, one that expands does not.
        raise UsageError(
            "--gpus with several devices cannot be written so that every shell keeps it whole: use cdi or env",
            next_step="aliquot docker run-args --help",
        )
    return form


def checked_name(name: str) -> str:
    """A container's name. Raises UsageError for one that runtimes refuse."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no container name: letters, digits, _ . - with a letter or digit first, two or more",
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
    """The words. ``cdi`` are the devices' full CDI names; ``label`` the reservation's id, "" for none. No word holds a
    space or a quote, so that ``docker run $(aliquot docker run-args ...)`` is the same as typing it.
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
