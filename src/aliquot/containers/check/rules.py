"""Rules that report why a container cannot get a device. Pure: facts and devices in, findings out.

Sources: Docker accepts CDI names since 25.0 with ``features.cdi``, and by default since 28.2 (moby#49963). Podman
accepts them since 4.1. Podman 4.3 reads CDI files up to version 0.5.0 and finds no device in a newer one (tested). crun
refuses control groups in hybrid mode (tested). NVIDIA's container toolkit supports MIG since 1.7.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from aliquot.containers.check.facts import (
    ContainerFacts,
    ContainerToolkit,
    DaemonJson,
    RuntimeFacts,
    SpecFacts,
    format_version,
)
from aliquot.containers.runtime.cdi_names import CdiEntry, name_of, stale
from aliquot.containers.runtime.models import ContainerDevice
from aliquot.errors import NoDriverError

_EngineRule = Literal["DAEMON_JSON", "ELSEWHERE", "EMULATED", "HYBRID", "NO_RUNTIME", "SILENT", "TOO_OLD"]
_ToolkitRule = Literal["NOT_REGISTERED", "NO_CGROUPS", "TOOLKIT", "TOOLKIT_OLD", "TOOLKIT_SETTINGS"]
_NameRule = Literal["NOT_NAMED", "NO_DEVICE", "NO_DRIVER", "NO_SPEC", "SPEC_MISSING", "SPEC_TOO_NEW", "STALE", "TWICE"]
RuntimeRule = Literal[_EngineRule, _ToolkitRule, _NameRule, "CDI_OFF", "NOT_RESTARTED"]
_FILE = "/var/run/cdi/nvidia.com-gpu.yaml"
_GENERATE = f"aliquot cdi generate --out {_FILE}"
_CONFIGURE = "nvidia-ctk runtime configure --runtime=docker && systemctl reload docker"
_INSTALL = "apt-get install nvidia-container-toolkit"


class RuntimeFinding(msgspec.Struct, frozen=True):
    """A problem that a rule found."""

    rule: RuntimeRule
    severity: Literal["error", "warning"]
    message: str
    form: str = msgspec.field(default="", name="way")
    """The form that does not work because of it: cdi, legacy, or "" for both."""
    next_step: str | None = msgspec.field(name="next", default=None)


class RuntimeVerdict(msgspec.Struct, frozen=True):
    """The verdict of one runtime: can a container get a device by CDI, and by the legacy forms?"""

    runtime: str
    version: str
    cdi: bool
    legacy: bool
    findings: tuple[RuntimeFinding, ...]


class RuntimeReport(msgspec.Struct, frozen=True):
    """Verdicts by runtime, and findings that concern all of them."""

    verdicts: tuple[RuntimeVerdict, ...]
    findings: tuple[RuntimeFinding, ...]

    @property
    def fine(self) -> bool:
        """True if at least one runtime can give a device to a container."""
        return any(v.cdi or v.legacy for v in self.verdicts)


def judge(
    facts: ContainerFacts,
    devices: Sequence[ContainerDevice],
    known: Sequence[CdiEntry],
    simulated: str = "",
    driver_error: NoDriverError | None = None,
) -> RuntimeReport:
    """Return the verdicts of all runtimes. ``known`` are the devices of the CDI files; ``simulated`` is the simulated
    node's folder; ``driver_error`` is why no GPU could be read.
    """
    common = [*(_driver(driver_error) if driver_error else _no_devices(devices)), *_toolkit(facts.toolkit)]
    mine = [e for e in known if e.simulated == simulated]
    verdicts = []
    for runtime in facts.runtimes:
        if runtime.installed:
            files = _files(
                facts, devices, [e for e in mine if _folder(e.path) in facts.searched(runtime)], runtime, simulated
            )
            verdicts.append(_runtime(runtime, facts, tuple(files), common))
    if not verdicts:
        names = ", ".join(runtime.name for runtime in facts.runtimes)
        step = "apt-get install podman"
        common.append(
            RuntimeFinding("NO_RUNTIME", "error", f"no container runtime is installed: {names}", next_step=step)
        )
    return RuntimeReport(tuple(verdicts), tuple(common))


def _runtime(
    runtime: RuntimeFacts, facts: ContainerFacts, files: tuple[RuntimeFinding, ...], common: Sequence[RuntimeFinding]
) -> RuntimeVerdict:
    rules = {"docker": _docker, "podman": _podman, "nerdctl": _nerdctl}
    found = (*rules[runtime.name](runtime, facts), *files)
    bad = [f for f in (*found, *common) if f.severity == "error"]
    cdi = not any(f.form in ("", "cdi") for f in bad)
    legacy = facts.toolkit.present and not any(f.form in ("", "legacy") for f in bad)
    return RuntimeVerdict(runtime.name, format_version(runtime.server or runtime.client), cdi, legacy, found)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _common(runtime: RuntimeFacts) -> Iterator[RuntimeFinding]:
    if runtime.error:
        step = "systemctl start docker" if runtime.name == "docker" else f"{runtime.name} info"
        yield RuntimeFinding("SILENT", "error", runtime.error, next_step=step)
    if runtime.remote_address:
        sentence = f"{runtime.name} connects to {runtime.remote_address}: its containers run on another host"
        yield RuntimeFinding("ELSEWHERE", "error", sentence, next_step="unset DOCKER_HOST CONTAINER_HOST")


def _docker(runtime: RuntimeFacts, facts: ContainerFacts) -> Iterator[RuntimeFinding]:
    yield from _common(runtime)
    if runtime.emulated:
        sentence = "the command docker is Podman's docker wrapper: see the findings for podman"
        yield RuntimeFinding("EMULATED", "warning", sentence, next_step="aliquot docker check --runtime podman")
        return
    yield from _daemon(facts.daemon)
    if not runtime.answers:
        return
    yield from _docker_cdi(runtime, facts)
    if facts.toolkit.present and "nvidia" not in runtime.runtimes:
        sentence = "Docker has no runtime nvidia: --runtime nvidia does not work, --gpus may"
        yield RuntimeFinding("NOT_REGISTERED", "warning", sentence, "legacy", _CONFIGURE)


def _daemon(found: DaemonJson) -> Iterator[RuntimeFinding]:
    if found.error:
        sentence = f"{found.path} cannot be read: {found.error}; Docker will not start again with it"
        yield RuntimeFinding(
            "DAEMON_JSON", "error", sentence, next_step=f"dockerd --validate --config-file {found.path}"
        )


def _docker_cdi(runtime: RuntimeFacts, facts: ContainerFacts) -> Iterator[RuntimeFinding]:
    for what, numbers in (("daemon", runtime.server), ("command line", runtime.client)):
        if numbers and numbers < (25,):
            sentence = f"Docker's {what} is {format_version(numbers)}: CDI names came with 25.0"
            yield RuntimeFinding(
                "TOO_OLD", "error", sentence, "cdi", "install Docker 25 or later, or use --form legacy"
            )
            return
    if runtime.cdi_dirs is None:
        return
    if not runtime.cdi_dirs:
        yield _cdi_off(runtime, facts.daemon)


def _cdi_off(runtime: RuntimeFacts, daemon: DaemonJson) -> RuntimeFinding:
    restart = "systemctl restart docker (this stops running containers, unless live-restore is on)"
    if daemon.cdi:
        sentence = f"{daemon.path} enables CDI, but the running daemon started before that and has it off"
        return RuntimeFinding("NOT_RESTARTED", "error", sentence, "cdi", restart)
    if daemon.cdi is False or runtime.server >= (28, 2):
        sentence = f"CDI is disabled: remove features.cdi from {daemon.path}"
        return RuntimeFinding("CDI_OFF", "error", sentence, "cdi", f"edit {daemon.path}, then: {restart}")
    sentence = (
        f"CDI is off, as it is by default before Docker 28.2: {daemon.path} needs " + '{"features": {"cdi": true}}'
    )
    return RuntimeFinding("CDI_OFF", "error", sentence, "cdi", f"edit {daemon.path}, then: {restart}")


def _podman(runtime: RuntimeFacts, facts: ContainerFacts) -> Iterator[RuntimeFinding]:
    yield from _common(runtime)
    if not runtime.answers:
        return
    if runtime.client and runtime.client < (4, 1):
        sentence = f"Podman is {format_version(runtime.client)}: CDI names came with 4.1"
        yield RuntimeFinding("TOO_OLD", "error", sentence, "cdi", "install Podman 4.1 or later, or use --form legacy")
    elif runtime.client and runtime.client < (5,):
        yield from _too_new(runtime, facts.specs)
    if runtime.oci == "crun" and facts.hybrid:
        sentence = "crun starts no container while control groups are mounted in hybrid mode"
        yield RuntimeFinding("HYBRID", "error", sentence, "", "podman --runtime runc run ...")


def _too_new(runtime: RuntimeFacts, specs: Iterable[SpecFacts]) -> Iterator[RuntimeFinding]:
    for spec in specs:
        if spec.version > (0, 5, 0):
            certain = runtime.client < (4, 4)
            sentence = (
                f"{spec.path} has cdiVersion {format_version(spec.version)}: Podman {format_version(runtime.client)} "
            )
            sentence += "finds no device in it" if certain else "may find no device in it"
            yield RuntimeFinding(
                "SPEC_TOO_NEW", "error" if certain else "warning", sentence, "cdi", f"rm {spec.path} && {_GENERATE}"
            )


def _nerdctl(runtime: RuntimeFacts, _: ContainerFacts) -> Iterator[RuntimeFinding]:
    yield from _common(runtime)


def _toolkit(found: ContainerToolkit) -> Iterator[RuntimeFinding]:
    if not found.present:
        sentence = "NVIDIA's container toolkit is not installed: --gpus and NVIDIA_VISIBLE_DEVICES have no effect"
        yield RuntimeFinding("TOOLKIT", "warning", sentence, "legacy", _INSTALL)
        return
    if found.version and found.version < (1, 7):
        sentence = f"NVIDIA's container toolkit is {format_version(found.version)}: it supports MIG since 1.7.0"
        yield RuntimeFinding("TOOLKIT_OLD", "error", sentence, "legacy", _INSTALL)
    if found.error:
        yield RuntimeFinding(
            "TOOLKIT_SETTINGS", "error", f"the toolkit's settings cannot be read: {found.error}", "legacy"
        )
    cli = found.settings.get("nvidia-container-cli")
    if isinstance(cli, dict) and cli.get("no-cgroups") is True:
        sentence = "the toolkit's no-cgroups is on: containers of root get device nodes that they cannot open"
        yield RuntimeFinding(
            "NO_CGROUPS",
            "warning",
            sentence,
            "legacy",
            "nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        )


def _driver(driver_error: NoDriverError) -> Iterator[RuntimeFinding]:
    yield RuntimeFinding("NO_DRIVER", "error", driver_error.brief, "", driver_error.next_step)


def _no_devices(devices: Sequence[ContainerDevice]) -> Iterator[RuntimeFinding]:
    if not devices:
        yield RuntimeFinding(
            "NO_DEVICE", "error", "this node has no device that a container could use", "", "aliquot show"
        )


def _files(
    facts: ContainerFacts,
    devices: Sequence[ContainerDevice],
    mine: Sequence[CdiEntry],
    runtime: RuntimeFacts,
    simulated: str,
) -> Iterator[RuntimeFinding]:
    """Yield the findings about the CDI files that one runtime reads."""
    searched = facts.searched(runtime)
    if devices and not mine:
        sentence = f"no CDI file of this node is in {' or '.join(searched)}: containers cannot request devices by CDI"
        path = _FILE if _folder(_FILE) in searched else f"{searched[-1]}/{_FILE.rpartition('/')[2]}"
        yield RuntimeFinding("NO_SPEC", "error", sentence, "cdi", f"aliquot cdi generate --out {path}")
        return
    for device in devices:
        if not name_of(device, mine, simulated):
            yield RuntimeFinding(
                "NOT_NAMED",
                "error",
                f"no CDI file names {device.index} ({device.uuid})",
                "cdi",
                _regenerate_command(mine),
            )
    for entry in stale(mine, devices, simulated):
        sentence = f"{entry.path}: this node no longer has the device {entry.full}"
        yield RuntimeFinding("STALE", "warning", sentence, "cdi", _regenerate_command([entry]))
    yield from _duplicates(mine)
    for spec in facts.specs:
        own = [e for e in mine if e.path == spec.path]
        if own and spec.missing:
            more = f" and {len(spec.missing) - 3} more" if len(spec.missing) > 3 else ""
            sentence = f"{spec.path} refers to missing files: {', '.join(spec.missing[:3])}{more}"
            yield RuntimeFinding("SPEC_MISSING", "error", sentence, "cdi", _regenerate_command(own))


def _regenerate_command(entries: Sequence[CdiEntry]) -> str:
    return f"aliquot cdi generate --out {entries[0].path}"


def _duplicates(known: Iterable[CdiEntry]) -> Iterator[RuntimeFinding]:
    """Yield findings for names that two files of one directory share: a runtime then finds neither device."""
    first: dict[tuple[str, str], CdiEntry] = {}
    reported: set[tuple[str, str]] = set()
    for entry in known:
        key = (_folder(entry.path), entry.full)
        other = first.setdefault(key, entry)
        pair = (other.path, entry.path)
        if other.path != entry.path and pair not in reported:
            reported.add(pair)
            sentence = f"{entry.path} and {other.path} both name {entry.full}: runtimes then find neither device"
            yield RuntimeFinding(
                "TWICE", "error", sentence, "cdi", f"rm {other.path if entry.path.endswith(_FILE) else entry.path}"
            )
