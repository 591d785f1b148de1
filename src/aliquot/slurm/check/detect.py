"""Rules for AutoDetect and Flags: the values that each release knows, and the effect of a value that it does not."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.slurm.check.devices import gres_accesses
from aliquot.slurm.check.finding import CheckInput, SlurmFinding, error, warning
from aliquot.slurm.client.models import Version
from aliquot.slurm.conf.statements import ConfPair

_SINCE = {
    "full": Version(26, 5),
    "nvml": Version(20, 2),
    "rsmi": Version(20, 11),
    "oneapi": Version(21, 8),
    "nrt": Version(23, 11),
    "nvidia": Version(24, 11),
    "off": Version(20, 2),
}
_MIG_SINCE, _MINORS_RIGHT, _NAMES_RIGHT = Version(21, 8), Version(22, 5), Version(23, 2)
_FLAGS = {
    *("countonly", "one_sharing", "all_sharing", "explicit", "env_uuid", "no_gpu_env"),
    *("nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env"),
}
_FLAG_SINCE = {"explicit": Version(23, 2), "env_uuid": Version(26, 5)}
_ENVIRONMENT = {"nvidia_gpu_env", "amd_gpu_env", "intel_gpu_env", "opencl_env"}


def kind(text: str) -> str:
    """Return the plugin that a value names.

    Slurm searches the value for each plugin name in this order; only ``off`` must match exactly.
    """
    low = text.lower()
    return next((word for word in _SINCE if (word in low if word != "off" else word == low)), "")


def words(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Check each AutoDetect value, and that the values for one node agree."""
    if inputs.gres is None:
        return
    local: dict[str, ConfPair] = {}
    for statement in inputs.gres.statements:
        pair = statement.pair("AutoDetect")
        if pair is None:
            continue
        yield from _known(inputs, pair)
        if statement.head.called("Name"):
            sentence = "AutoDetect on a line without NodeName= has no effect"
            yield warning("AUTODETECT_INLINE", pair.location, sentence, f"put AutoDetect={pair.value} on its own line")
        node = statement.head.value if statement.head.called("NodeName") else ""
        first = local.setdefault(node, pair) if node else pair
        if kind(first.value) != kind(pair.value):
            sentence = f"AutoDetect={pair.value}, but {first.value} at line {first.location.line} for the same node"
            yield error("AUTODETECT_TWICE", pair.location, f"{sentence}: slurmd does not start")


def _known(inputs: CheckInput, pair: ConfPair) -> Iterator[SlurmFinding]:
    found = kind(pair.value)
    if not found:
        sentence = f"AutoDetect={pair.value} is not a plugin: nothing is detected"
        yield error("AUTODETECT_UNKNOWN", pair.location, sentence, "use AutoDetect=nvml or off")
    elif inputs.version and inputs.version < _SINCE[found]:
        sentence = f"AutoDetect={found} needs Slurm {_SINCE[found].release}, and this is {inputs.version}"
        yield error(
            "AUTODETECT_OLD", pair.location, f"{sentence}: nothing is detected", "use explicit lines", _render("none")
        )


def _render(form: str) -> str:
    return f"aliquot slurm render --autodetect {form}"


def nodes(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report nodes whose GPUs detection cannot find, or finds wrongly."""
    if inputs.gres is None:
        return
    seen: set[tuple[str, ConfPair]] = set()
    for group in inputs.groups:
        pair = inputs.autodetect(group.names[0])
        if pair is None or kind(pair.value) in ("", "off"):
            continue
        has_mig = any(gres.is_mig for line in group.gres for gres in gres_accesses(line))
        has_mig = has_mig or any(_has_mig(inputs, name) for name in group.names)
        cloud = group.line is not None and group.line.get("State").upper() == "CLOUD"
        for finding in (*_mig(inputs, pair, has_mig), *_cloud(pair, cloud), *_empty(inputs, pair, group.names)):
            if (finding.rule, pair) not in seen:
                seen.add((finding.rule, pair))
                yield finding


def _has_mig(inputs: CheckInput, name: str) -> bool:
    return name in inputs.inventories and any(gpu.mig.enabled for gpu in inputs.inventories[name].gpus)


def _mig(inputs: CheckInput, pair: ConfPair, has_mig: bool) -> Iterator[SlurmFinding]:
    if not has_mig:
        return
    if kind(pair.value) == "nvidia":
        sentence = "AutoDetect=nvidia does not support MIG: it finds a partitioned GPU as a whole one"
        fix = "use AutoDetect=nvml or explicit lines"
        yield error("AUTODETECT_NO_MIG", pair.location, sentence, fix, _render("none"))
    elif kind(pair.value) == "nvml" and inputs.version and inputs.version < _MIG_SINCE:
        sentence = f"AutoDetect=nvml supports MIG from Slurm {_MIG_SINCE.release}, and this is {inputs.version}"
        yield error("AUTODETECT_OLD", pair.location, sentence, "use explicit lines", _render("none"))
    elif kind(pair.value) == "nvml" and inputs.version and inputs.version < _MINORS_RIGHT:
        sentence = f"AutoDetect=nvml of {inputs.version} uses nvidia-smi's index as the device minor"
        yield warning("AUTODETECT_OLD", pair.location, f"{sentence}: jobs may get another GPU", "", _render("none"))
    elif kind(pair.value) == "nvml" and inputs.version and inputs.version < _NAMES_RIGHT:
        sentence = f"AutoDetect=nvml of {inputs.version} names MIG devices by rounded memory, without c and +"
        yield warning("AUTODETECT_OLD", pair.location, f"{sentence}: types may not match", "", _render("none"))


def _cloud(pair: ConfPair, cloud: bool) -> Iterator[SlurmFinding]:
    if cloud:
        sentence = f"AutoDetect={pair.value} does not work for CLOUD nodes: slurmctld counts their GPUs by File= only"
        yield error("AUTODETECT_CLOUD", pair.location, sentence, "write NodeName=... AutoDetect=off on their lines")


def _empty(inputs: CheckInput, pair: ConfPair, names: tuple[str, ...]) -> Iterator[SlurmFinding]:
    for name in names if kind(pair.value) == "nvml" else ():
        for gpu in inputs.inventories[name].gpus if name in inputs.inventories else ():
            if gpu.mig.enabled and not gpu.instances and not gpu.passthrough:
                sentence = (
                    f"GPU {gpu.index} of {name} is in MIG mode without instances: AutoDetect=nvml offers it whole"
                )
                yield error("AUTODETECT_EMPTY", pair.location, sentence, "use explicit lines", _render("none"))


def flags(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report unknown flags, flags that exclude each other, and ``Flags=`` without a flag for the environment.

    From 23.02 to 25.11, ``Flags=`` without such a flag removes all GPU variables from jobs (``gres.c`` of those
    releases).
    """
    for line in inputs.gpu_lines:
        pair = line.statement.pair("Flags")
        if pair is None:
            continue
        every = {word.strip().lower() for word in pair.value.split(",")}
        bare = not every & (_ENVIRONMENT | {"no_gpu_env"}) and _takes_variables(inputs.version)
        unknown = [why for word in sorted(every) if (why := _unknown(inputs.version, word))]
        for why in unknown:
            make, then = (error, "jobs lose CUDA_VISIBLE_DEVICES") if bare else (warning, "Slurm ignores it")
            yield make("UNKNOWN_FLAG", pair.location, f"{why}: {then}", "use Flags=nvidia_gpu_env")
        if bare and not unknown and "countonly" not in every:
            sentence = f"Flags={pair.value} has no flag for the environment: jobs lose CUDA_VISIBLE_DEVICES"
            yield warning("FLAGS_WITHOUT_ENV", pair.location, sentence, f"use Flags={pair.value},nvidia_gpu_env")
        if "no_gpu_env" in every and every & _ENVIRONMENT:
            sentence = f"Flags={pair.value}: no_gpu_env excludes the other *_gpu_env flags, so slurmd does not start"
            yield error("FLAGS_EXCLUDE", pair.location, sentence, "keep only one of them")


def _unknown(version: Version | None, word: str) -> str:
    since = _FLAG_SINCE.get(word)
    if word not in _FLAGS:
        return f"Flags={word} is not a flag of Slurm"
    old = since and version and version < since
    return f"Flags={word} needs Slurm {since.release}, and this is {version}" if since and old else ""


def _takes_variables(version: Version | None) -> bool:
    return version is None or Version(23, 2) <= version < Version(26, 5)


def links(inputs: CheckInput) -> Iterator[SlurmFinding]:
    """Report ``Links=`` on lines for MIG devices, which have no NVLink."""
    for line in inputs.gpu_lines:
        pair = line.statement.pair("Links", "Link")
        if pair and any(gres.is_mig for gres in gres_accesses(line)):
            sentence = "Links= on a MIG device, which has no NVLink: Slurm would group linked devices into one job"
            yield warning("LINKS_MIG", pair.location, sentence, "remove Links=")
