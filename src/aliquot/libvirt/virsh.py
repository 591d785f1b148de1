"""libvirt through its own program, for hosts without the Python binding. Every call has a time limit."""

from __future__ import annotations

import os
import tempfile

from aliquot.libvirt import domain_xml as xml
from aliquot.libvirt import errors
from aliquot.libvirt import nodedev_xml as nodexml
from aliquot.libvirt.models import LibvirtDomain, NodeDevice
from aliquot.libvirt.port import BOUND_S

_MAX_OUTPUT_BYTES = 64 << 20
"""Limit of output: a host may have thousands of devices and domains."""


class Virsh:
    """A connection that runs ``virsh`` once for each query, so it keeps nothing open."""

    through = "virsh"

    def __init__(self, uri: str, bound_s: float = BOUND_S, program: str = "virsh") -> None:
        self.uri = uri
        self._bound_s = bound_s
        self._program = program
        self._run(f"reach libvirt at {uri}", "uri")

    def version(self) -> tuple[int, int]:
        # Running against daemon: 9.0.0
        output = self._run("read libvirt's version", "version", "--daemon").strip().rpartition(" ")[2]
        major, _, rest = output.partition(".")
        return int(major), int(rest.partition(".")[0])

    def domains(self) -> tuple[LibvirtDomain, ...]:
        every = self._lines("list the VMs", "list", "--all", "--uuid")
        persistent_uuids = set(self._lines("list the VMs", "list", "--all", "--persistent", "--uuid"))
        found: list[LibvirtDomain] = []
        for uuid in every:
            try:
                found.append(self._read(uuid, persistent=uuid in persistent_uuids))
            except errors.NoVmError:
                continue  # it went away since it was listed
        return tuple(found)

    def domain(self, uuid: str) -> LibvirtDomain:
        persistent_uuids = self._lines(f"read VM {uuid}", "list", "--all", "--persistent", "--uuid")
        return self._read(uuid, persistent=uuid in persistent_uuids)

    def attach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        self._with_file("attach it", device, "attach-device", uuid, *_target_options(live=live, config=config))

    def detach(self, uuid: str, device: str, *, live: bool, config: bool) -> None:
        self._with_file("detach it", device, "detach-device", uuid, *_target_options(live=live, config=config))

    def start(self, uuid: str) -> None:
        self._run("start the VM", "start", uuid)

    def mdevs(self) -> tuple[NodeDevice, ...]:
        attempt = "list the mdevs"
        try:
            names = self._lines(attempt, "nodedev-list", "--cap", "mdev", "--all")
        except errors.LibvirtError as refused:
            if isinstance(refused, errors.NoLibvirtError):
                raise
            names = self._lines(attempt, "nodedev-list", "--cap", "mdev")  # before 7.3 all mdevs are active
        found = [self._mdev(name) for name in names]
        return tuple(n for n in found if n is not None)

    def define_mdev(self, device: str) -> str:
        output = self._with_file("define the mdev", device, "nodedev-define")
        # Node device 'mdev_<uuid>_<parent>' defined from '<file>'
        return output.partition("'")[2].partition("'")[0]

    def start_mdev(self, name: str) -> None:
        self._run("start the mdev", "nodedev-start", name)

    def autostart_mdev(self, name: str) -> None:
        self._run("set autostart of the mdev", "nodedev-autostart", name)

    def undefine_mdev(self, name: str) -> None:
        self._run("undefine the mdev", "nodedev-undefine", name)

    def close(self) -> None:
        """Close nothing: ``virsh`` runs once for each query."""

    def _read(self, uuid: str, *, persistent: bool) -> LibvirtDomain:
        attempt = f"read VM {uuid}"
        current = self._run(attempt, "dumpxml", uuid)
        found = xml.parse_domain(current, persistent=persistent)
        if not (found.running and persistent):
            return found
        return xml.parse_domain(current, self._run(attempt, "dumpxml", uuid, "--inactive"), persistent=True)

    def _mdev(self, name: str) -> NodeDevice | None:
        """Return an mdev, or None if it went away since it was listed."""
        try:
            text = self._run(f"read {name}", "nodedev-dumpxml", name)
        except errors.LibvirtError as refused:
            if "not found" in " ".join(refused.details):
                return None
            raise
        facts = dict(_pairs(self._run(f"read {name}", "nodedev-info", name)))
        return nodexml.parse(
            text,
            active=facts.get("Active", "yes") == "yes",
            persistent=facts.get("Persistent") == "yes",
            autostart=facts.get("Autostart") == "yes",
        )

    def _lines(self, attempt: str, *words: str) -> list[str]:
        return [line.strip() for line in self._run(attempt, *words).splitlines() if line.strip()]

    def _with_file(self, attempt: str, device: str, verb: str, *words: str) -> str:
        """Run a verb that takes XML from a file. ``--file`` is the last named option of every such verb."""
        with tempfile.NamedTemporaryFile("w", prefix="aliquot-", suffix=".xml") as stream:
            stream.write(device)
            stream.flush()
            return self._run(attempt, verb, *words, "--file", stream.name)

    def _run(self, attempt: str, *words: str) -> str:
        from aliquot.foundation import bounded_process

        command = [self._program, "--quiet", "--connect", self.uri, *words]
        # English, because errors are recognized by their sentences.
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
        try:
            result = bounded_process.run(command, self._bound_s, env=environment, most=_MAX_OUTPUT_BYTES)
        except TimeoutError as timeout:
            raise errors.timeout_error(attempt, self._bound_s) from timeout
        except OSError as failure:
            raise errors.NoLibvirtError(
                f"cannot run {self._program}: {failure.strerror or failure}",
                next_step="install virsh (libvirt-clients) or the binding: pip install 'aliquot[libvirt]'",
            ) from failure
        if result.code:
            raise errors.translate_error(
                result.err.replace("error: ", "") or f"virsh ended with exit code {result.code}", attempt
            )
        return result.out


def _target_options(*, live: bool, config: bool) -> list[str]:
    return [*(["--live"] if live else []), *(["--config"] if config else [])]


def _pairs(text: str) -> list[tuple[str, str]]:
    """Return the ``Name: value`` lines as pairs."""
    return [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in text.splitlines())]
