"""The file that tells clients the server and its credentials."""

from __future__ import annotations

import json


def kubeconfig(url: str, token: str, *, ca: str = "", namespace: str = "default", user: str = "user") -> str:
    """Return a kubeconfig with one user, as JSON, which is also YAML.

    Args:
        ca: path of the certificate that signed the server's; "" for plain HTTP
    """
    cluster = {"server": url, **({"certificate-authority": ca} if ca else {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": namespace}}],
        "current-context": "test",
    }
    return json.dumps(document, indent=1)
