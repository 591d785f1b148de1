"""Choice of the proxy for the API server by the rules of Go: NO_PROXY may hold networks (``10.0.0.0/8``).

Python's own rules compare only names, and would send a pod's requests for 10.96.0.1 to the proxy.
Source: Go's golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from aliquot.foundation.decimals import decimal


def proxy_for(server: str, configured: str, env: Mapping[str, str]) -> str | None:
    """Return the proxy's URL; None for a direct connection. ``configured`` is the kubeconfig's ``proxy-url``."""
    if configured:
        return configured
    parts = urlsplit(server)
    name = f"{parts.scheme}_proxy"
    proxy = env.get(name.upper()) or env.get(name) or ""
    if not proxy or _exempt(parts.hostname or "", parts.port, env.get("NO_PROXY") or env.get("no_proxy") or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _exempt(host: str, port: int | None, entries: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    return any(_matches(host, port, address, entry.strip().lower()) for entry in entries.split(",") if entry.strip())


def _matches(
    host: str, port: int | None, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None, entry: str
) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        try:
            return address is not None and address in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, port_text = entry.rpartition(":")
    number = decimal(port_text)
    if colon and number is not None and _address(entry) is None:
        if port != number:
            return False
        entry = name.strip("[]")
    if address is not None:
        return _address(entry) == address
    if entry.startswith("*."):
        entry = entry[1:]
    return (host == entry.lstrip(".") and not entry.startswith(".")) or host.endswith("." + entry.lstrip("."))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None
