"""``aliquot dashboard``: the web page."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from shlex import quote
from typing import TYPE_CHECKING

from aliquot.cli.framework import streams
from aliquot.cli.framework.extras import missing_library
from aliquot.cli.framework.long_running import tune_gc
from aliquot.cli.framework.parser import Args
from aliquot.errors import BlockedError, NoDriverError, UsageError
from aliquot.foundation.decimals import decimal

if TYPE_CHECKING:
    from aliquot.dashboard.main import ServedSource
    from aliquot.dashboard.options import DashboardOptions

NVIDIA = "0x10de"
SHORTEST_TOKEN = 16
MACHINE, SIMULATED, FLEET, CLUSTER, OWN = "machine", "simulated", "fleet", "cluster", "own"
"""OWN is a cluster with the kubeconfig of the user who starts the page; CLUSTER with the tokens of users who log in."""


def run(args: Args) -> int:
    """Serve the page until Ctrl-C. Raises UsageError for options that exclude each other or open it to a network."""
    options = _options(args)
    kind = _kind(args)
    token = _token(args.token_file) if args.token_file else ""
    _refuse_plain_http(options, token, kind)
    try:
        from aliquot.dashboard import main as page
    except ModuleNotFoundError as error:
        raise missing_library(error, "dashboard", "the page") from error
    streams.note(_showing(kind, args))
    tune_gc()
    return page.run(options, _opener(args, kind, token), streams.note, streams.result)


def _kind(args: Args) -> str:
    """Return what to show. Raises UsageError if the options name two sources, NoDriverError if nothing can be shown."""
    cluster = bool(args.cluster or args.kubeconfig)
    if sum((cluster, bool(args.fleet), args.sim is not None)) > 1:
        sim = "--sim" if args.typed_node else "ALIQUOT_SIM"
        chosen = [name for name, given in (("--cluster", cluster), ("--fleet", args.fleet), (sim, args.sim)) if given]
        step = f"{args.prog} --help" if args.typed_node or not args.sim else "unset ALIQUOT_SIM"
        raise UsageError(f"only one of {' and '.join(chosen)} can be given", next_step=step)
    if cluster:
        return CLUSTER if args.cluster else OWN
    if args.sim is not None:
        return SIMULATED
    if args.fleet:
        return FLEET
    if has_gpus():
        return MACHINE
    from aliquot.foundation.paths import state_dir
    from aliquot.sim import lifecycle as control

    if control.names(state_dir()):
        return FLEET
    raise NoDriverError(
        "there is nothing to show: this host has no NVIDIA GPU, and no simulated node runs",
        next_step="aliquot sim start dgx-h100",
    )


def has_gpus(devices: str = "/sys/bus/pci/devices") -> bool:
    """Report whether an NVIDIA device with a display or 3D class is on the bus, bound to a driver or not."""
    try:
        for name in os.listdir(devices):
            if _word(f"{devices}/{name}/vendor") == NVIDIA and _word(f"{devices}/{name}/class").startswith("0x03"):
                return True
    except OSError:
        return False
    return False


def _word(path: str) -> str:
    try:
        with open(path) as file:
            return file.read(32).strip()
    except OSError:
        return ""


def _showing(kind: str, args: Args) -> str:
    if kind == FLEET:
        from aliquot.foundation.paths import state_dir
        from aliquot.sim import lifecycle as control

        count = len(control.names(state_dir()))
        nodes = "the one simulated node" if count == 1 else f"all {count} simulated nodes"
        if not count:
            return (
                f"This page shows the simulated nodes of {state_dir()}. To start the first: aliquot sim start dgx-h100"
            )
        why = "" if args.fleet else ", because this host has no NVIDIA GPU"
        return f"This page shows {nodes} of {state_dir()}{why}."
    if kind == OWN:
        return f"This page shows the cluster of {args.kubeconfig}, and changes it with that file's rights."
    if kind == CLUSTER:
        return (
            "This page shows the cluster. Users log in with tokens of the cluster, and have the rights of their token."
        )
    return f"This page shows the simulated node {args.sim}." if kind == SIMULATED else "This page shows this host."


def _options(args: Args) -> DashboardOptions:
    if bool(args.tls_cert) != bool(args.tls_key):
        raise UsageError(
            "--tls-cert and --tls-key go together", next_step=f"{args.prog} --tls-cert FILE --tls-key FILE"
        )
    address, port = listen_address(args.listen)
    allowed = tuple(args.allowed_host or ())
    for name in allowed:
        if "/" in name or not name.strip() or "*" in name:
            raise UsageError(f"--allowed-host {name!r} is not a host name", details=("for example gpu.example.org",))
    from aliquot.dashboard.options import DashboardOptions

    return DashboardOptions(address, port, args.tls_cert or "", args.tls_key or "", allowed, bool(args.read_only))


def listen_address(text: str) -> tuple[str, int]:
    """Parse ``ADDRESS:PORT``, ``[ADDRESS]:PORT``, ``ADDRESS`` or ``PORT``. Raises UsageError."""
    address, colon, port = text.rpartition(":")
    if text.startswith("[") and "]" in text:
        address, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or "8470"
    elif not colon:
        address, port = ("127.0.0.1", text) if text.isdecimal() else (text, "8470")
    elif ":" in address:
        raise UsageError(f"--listen {text}: put an IPv6 address in brackets", details=(f"[{text}]:8470",))
    number = decimal(port, 5)
    if number is None or number > 65535 or not address:
        raise UsageError(f"--listen {text} is not ADDRESS:PORT", details=("for example 127.0.0.1:8470",))
    return address, number


def _token(path: str) -> str:
    """Read the token in a file. Raises UsageError for an unreadable file, and for one without a token."""
    try:
        with open(path, encoding="utf-8") as file:
            token = file.read(65536).strip()
            open_to_all = os.fstat(file.fileno()).st_mode & 0o004
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the token file {path}: {why}", next_step=f"ls -l {quote(path)}") from error
    if len(token) < SHORTEST_TOKEN or len(token.split()) != 1:
        raise UsageError(
            f"{path} does not have a token: one word of at least {SHORTEST_TOKEN} characters",
            next_step=f"(umask 077; head -c 24 /dev/urandom | base64 > {path})",
        )
    if open_to_all:
        streams.note(f"All users of this host can read the token in {path}: chmod 600 {path}")
    return token


def _refuse_plain_http(options: DashboardOptions, token: str, kind: str) -> None:
    """Refuse plain HTTP beyond loopback: the token of this run would be readable on the network."""
    if options.loopback or options.certificate:
        return
    if not token and kind != CLUSTER:
        raise UsageError(
            f"other hosts can reach {options.address}, and without HTTPS the traffic can be read on the network",
            details=(
                "serve HTTPS: --tls-cert FILE --tls-key FILE",
                "or use a proxy that serves HTTPS: --token-file FILE --allowed-host NAME",
                "or serve only this host, and connect with: ssh -L 8470:127.0.0.1:8470 HOST",
            ),
            next_step="aliquot dashboard --listen 127.0.0.1:8470",
        )
    streams.note("This page serves plain HTTP to other hosts: this is safe only behind a proxy that serves HTTPS.")


def _opener(args: Args, kind: str, token: str) -> Callable[[], Awaitable[ServedSource]]:
    async def cluster() -> ServedSource:
        from aliquot.dashboard.cluster.connect import open_cluster
        from aliquot.dashboard.main import ServedSource
        from aliquot.dashboard.security.token_authenticator import new_token_authenticator

        source, authenticator = open_cluster(
            args.kubeconfig,
            namespace=args.namespace,
            kubevirt_namespace=args.kubevirt_namespace,
            own_credentials=kind == OWN,
        )
        return (
            ServedSource(source, *new_token_authenticator(token, args.token_file or ""))
            if kind == OWN
            else ServedSource(source, authenticator)
        )

    async def local() -> ServedSource:
        from aliquot.cli.framework.next_command import addressed
        from aliquot.dashboard.local.connect import open_local
        from aliquot.dashboard.main import ServedSource
        from aliquot.dashboard.security.token_authenticator import new_token_authenticator

        source = open_local(args.sim, fleet=kind == FLEET, config_file=args.file, address=addressed)
        return ServedSource(source, *new_token_authenticator(token, args.token_file or ""))

    if kind in (CLUSTER, OWN) and args.file:
        raise UsageError("in a cluster the agents have the named configs", next_step=f"{args.prog} --cluster")
    if kind == CLUSTER and token:
        raise BlockedError(
            "in a cluster users log in with their own tokens", code="OWN_TOKENS", next_step=f"{args.prog} --cluster"
        )
    return cluster if kind in (CLUSTER, OWN) else local
