"""What speaks against a container getting a device, rule by rule. Pure: facts and devices in, findings out.

Sources: Docker takes CDI names since 25.0 with ``features.cdi``, and by itself since 28.2 (moby#49963); Podman since
4.1; Podman 4.3 reads CDI files up to version 0.5.0 and finds no device in a newer one (tried); crun refuses control
groups in hybrid mode (tried). NVIDIA's container toolkit knows MIG since 1.7.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from aliquot.containers.check.facts import DaemonJson, Facts, RuntimeFacts, SpecFacts, Toolkit, written
from aliquot.containers.runtime.cdi_names import Entry, name_of, stale
from aliquot.containers.runtime.models import Device
from aliquot.errors import NoDriverError

ERROR, WARNING = "error", "warning"
_FILE = "/var/run/cdi/nvidia.com-gpu.yaml"
_GENERATE = f"aliquot cdi generate --output {_FILE}"
_CONFIGURE = "nvidia-ctk runtime configure --runtime=docker && systemctl reload docker"
_INSTALL = "apt-get install nvidia-container-toolkit"


class Finding(msgspec.Struct, frozen=True):
    """What is wrong. ``way`` is the form that does not work because of it: cdi, legacy, or "" for both."""

    rule: str
    severity: str
    message: str
    way: str = ""
    next_step: str | None = msgspec.field(name="next", default=None)


class Verdict(msgspec.Struct, frozen=True):
    """One runtime: whether a container gets a device by CDI, and by the legacy forms."""

    runtime: str
    version: str
    cdi: bool
    legacy: bool
    findings: tuple[Finding, ...]


class Report(msgspec.Struct, frozen=True):
    """Runtimes, and what concerns all of them. ``fine`` if any runtime can give a device."""

    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]

    @property
    def fine(self) -> bool:
        return any(v.cdi or v.legacy for v in self.verdicts)


def judge(
    facts: Facts,
    devices: Sequence[Device],
    known: Sequence[Entry],
    simulated: str = "",
    trouble: NoDriverError | None = None,
) -> Report:
    """The whole judgement. ``known`` are the devices of the CDI files; ``simulated`` the simulated node's folder;
    ``trouble`` why no GPU could be asked.
    """
    common = [*(_driver(trouble) if trouble else _nothing(devices)), *_toolkit(facts.toolkit)]
    mine = [e for e in known if e.simulated == simulated]
    verdicts = []
    for each in facts.runtimes:
        if each.installed:
            files = _files(
                facts, devices, [e for e in mine if _folder(e.path) in facts.searched(each)], each, simulated
            )
            verdicts.append(_runtime(each, facts, tuple(files), common))
    if not verdicts:
        names = ", ".join(each.name for each in facts.runtimes)
        step = "apt-get install podman"
        common.append(Finding("NO_RUNTIME", ERROR, f"no container runtime is installed: {names}", next_step=step))
    return Report(tuple(verdicts), tuple(common))


def _runtime(each: RuntimeFacts, facts: Facts, files: tuple[Finding, ...], common: Sequence[Finding]) -> Verdict:
    rules = {"docker": _docker, "podman": _podman, "nerdctl": _nerdctl}
    found = (*rules[each.name](each, facts), *files)
    bad = [f for f in (*found, *common) if f.severity == ERROR]
    cdi = not any(f.way in ("", "cdi") for f in bad)
    legacy = facts.toolkit.present and not any(f.way in ("", "legacy") for f in bad)
    return Verdict(each.name, written(each.server or each.client), cdi, legacy, found)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _common(each: RuntimeFacts) -> Iterator[Finding]:
    if each.said:
        step = "systemctl start docker" if each.name == "docker" else f"{each.name} info"
        yield Finding("SILENT", ERROR, each.said, next_step=step)
    if each.elsewhere:
        sentence = f"{each.name} speaks to {each.elsewhere}: its containers run on another machine"
        yield Finding("ELSEWHERE", ERROR, sentence, next_step="unset DOCKER_HOST CONTAINER_HOST")


def _docker(each: RuntimeFacts, facts: Facts) -> Iterator[Finding]:
    yield from _common(each)
    if each.emulated:
        sentence = "docker is Podman's stand-in here: what is said of podman holds"
        yield Finding("EMULATED", WARNING, sentence, next_step="aliquot docker check --runtime podman")
        return
    yield from _daemon(facts.daemon)
    if not each.answers:
        return
    yield from _docker_cdi(each, facts)
    if facts.toolkit.present and "nvidia" not in each.runtimes:
        sentence = "Docker has no runtime nvidia: --runtime nvidia does not work, --gpus may"
        yield Finding("NOT_REGISTERED", WARNING, sentence, "legacy", _CONFIGURE)


def _daemon(found: DaemonJson) -> Iterator[Finding]:
    if found.fault:
        sentence = f"{found.path} cannot be read: {found.fault}; Docker will not start with it again"
        yield Finding("DAEMON_JSON", ERROR, sentence, next_step=f"dockerd --validate --config-file {found.path}")


def _docker_cdi(each: RuntimeFacts, facts: Facts) -> Iterator[Finding]:
    for what, numbers in (("daemon", each.server), ("command line", each.client)):
        if numbers and numbers < (25,):
            sentence = f"Docker's {what} is {written(numbers)}: CDI names came with 25.0"
            yield Finding("TOO_OLD", ERROR, sentence, "cdi", "install Docker 25 or later, or use --form legacy")
            return
    if each.cdi_dirs is None:
        return
    if not each.cdi_dirs:
        yield _cdi_off(each, facts.daemon)


def _cdi_off(each: RuntimeFacts, daemon: DaemonJson) -> Finding:
    restart = "systemctl restart docker (it ends the containers that run, unless live-restore is on)"
    if daemon.cdi:
        sentence = f"{daemon.path} switches CDI on, but the daemon that runs has it off: it was started before"
        return Finding("NOT_RESTARTED", ERROR, sentence, "cdi", restart)
    if daemon.cdi is False or each.server >= (28, 2):
        sentence = f"CDI is switched off: take features.cdi out of {daemon.path}"
        return Finding("CDI_OFF", ERROR, sentence, "cdi", f"edit {daemon.path}, then: {restart}")
    sentence = (
        f"CDI is off, as it is by default before Docker 28.2: {daemon.path} needs " + '{"features": {"cdi": true}}'
    )
    return Finding("CDI_OFF", ERROR, sentence, "cdi", f"edit {daemon.path}, then: {restart}")


def _podman(each: RuntimeFacts, facts: Facts) -> Iterator[Finding]:
    yield from _common(each)
    if not each.answers:
        return
    if each.client and each.client < (4, 1):
        sentence = f"Podman is {written(each.client)}: CDI names came with 4.1"
        yield Finding("TOO_OLD", ERROR, sentence, "cdi", "install Podman 4.1 or later, or use --form legacy")
    elif each.client and each.client < (5,):
        yield from _too_new(each, facts.specs)
    if each.oci == "crun" and facts.hybrid:
        sentence = "crun starts no container where control groups are mounted in hybrid mode"
        yield Finding("HYBRID", ERROR, sentence, "", "podman --runtime runc run ...")


def _too_new(each: RuntimeFacts, specs: Iterable[SpecFacts]) -> Iterator[Finding]:
    for spec in specs:
        if spec.version > (0, 5, 0):
            sure = each.client < (4, 4)
            sentence = f"{spec.path} says cdiVersion {written(spec.version)}: Podman {written(each.client)} "
            sentence += "finds no device in it" if sure else "may find no device in it"
            yield Finding("SPEC_TOO_NEW", ERROR if sure else WARNING, sentence, "cdi", f"rm {spec.path} && {_GENERATE}")


def _nerdctl(each: RuntimeFacts, _: Facts) -> Iterator[Finding]:
    yield from _common(each)


def _toolkit(found: Toolkit) -> Iterator[Finding]:
    if not found.present:
        sentence = "NVIDIA's container toolkit is not installed: --gpus and NVIDIA_VISIBLE_DEVICES do nothing"
        yield Finding("TOOLKIT", WARNING, sentence, "legacy", _INSTALL)
        return
    if found.version and found.version < (1, 7):
        sentence = f"NVIDIA's container toolkit is {written(found.version)}: it knows MIG since 1.7.0"
        yield Finding("TOOLKIT_OLD", ERROR, sentence, "legacy", _INSTALL)
    if found.fault:
        yield Finding("TOOLKIT_SETTINGS", ERROR, f"the toolkit's settings cannot be read: {found.fault}", "legacy")
    cli = found.settings.get("nvidia-container-cli")
    if isinstance(cli, dict) and cli.get("no-cgroups") is True:
        sentence = "the toolkit's no-cgroups is on: containers of root get nodes that they cannot open"
        yield Finding(
            "NO_CGROUPS",
            WARNING,
            sentence,
            "legacy",
            "nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        )


def _driver(trouble: NoDriverError) -> Iterator[Finding]:
    yield Finding(trouble.code, ERROR, trouble.brief, "", trouble.next_step)


def _nothing(devices: Sequence[Device]) -> Iterator[Finding]:
    if not devices:
        yield Finding("NO_DEVICE", ERROR, "this node has no device that a container could have", "", "aliquot show")


def _files(
    facts: Facts, devices: Sequence[Device], mine: Sequence[Entry], each: RuntimeFacts, simulated: str
) -> Iterator[Finding]:
    """What is wrong with the CDI files that one runtime reads."""
    searched = facts.searched(each)
    if devices and not mine:
        sentence = f"no CDI file of this node lies in {' or '.join(searched)}: containers can ask for nothing by CDI"
        path = _FILE if _folder(_FILE) in searched else f"{searched[-1]}/{_FILE.rpartition('/')[2]}"
        yield Finding("NO_SPEC", ERROR, sentence, "cdi", f"aliquot cdi generate --output {path}")
        return
    for device in devices:
        if not name_of(device, mine, simulated):
            yield Finding("NOT_NAMED", ERROR, f"no CDI file has {device.index} ({device.uuid})", "cdi", _again(mine))
    for entry in stale(mine, devices, simulated):
        sentence = f"{entry.path}: {entry.full} is no device of this node any more"
        yield Finding("STALE", WARNING, sentence, "cdi", _again([entry]))
    yield from _twice(mine)
    for spec in facts.specs:
        own = [e for e in mine if e.path == spec.path]
        if own and spec.missing:
            more = f" and {len(spec.missing) - 3} more" if len(spec.missing) > 3 else ""
            sentence = f"{spec.path} wants what is not there: {', '.join(spec.missing[:3])}{more}"
            yield Finding("SPEC_MISSING", ERROR, sentence, "cdi", _again(own))


def _again(entries: Sequence[Entry]) -> str:
    return f"aliquot cdi generate --output {entries[0].path}"


def _twice(known: Iterable[Entry]) -> Iterator[Finding]:
    """Two files of one directory that have the same name: a runtime then knows it not at all."""
    first: dict[tuple[str, str], Entry] = {}
    told: set[tuple[str, str]] = set()
    for entry in known:
        key = (_folder(entry.path), entry.full)
        other = first.setdefault(key, entry)
        pair = (other.path, entry.path)
        if other.path != entry.path and pair not in told:
            told.add(pair)
            sentence = f"{entry.path} and {other.path} both have {entry.full}: runtimes then find neither"
            yield Finding(
                "TWICE", ERROR, sentence, "cdi", f"rm {other.path if entry.path.endswith(_FILE) else entry.path}"
            )
