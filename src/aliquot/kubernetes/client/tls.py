"""TLS contexts with the cluster's certificate authority and the client certificate."""

from __future__ import annotations

import base64
import os
import ssl
from contextlib import ExitStack

import httpx2

from aliquot.kubernetes.client.kubeconfig import ClusterAccess, KubeconfigCluster, KubeconfigUser


def context(access: ClusterAccess, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    """Build the TLS context of a connection.

    ``certificate`` is a client certificate and its key in PEM, which override those of the kubeconfig. Raises OSError
    and ValueError if a file is missing or invalid.
    """
    user, made = access.user, _trust(access.cluster)
    if certificate is not None:
        chain, key = (base64.b64encode(pem.encode()).decode() for pem in certificate)
        user = KubeconfigUser(client_certificate_data=chain, client_key_data=key)
    if user.client_certificate_data or user.client_certificate:
        with ExitStack() as stack:
            chain_file = _as_file(stack, user.client_certificate_data, user.client_certificate)
            key_file = _as_file(stack, user.client_key_data, user.client_key)
            made.load_cert_chain(chain_file or "", key_file)
    return made


def _trust(cluster: KubeconfigCluster) -> ssl.SSLContext:
    """Build a context that verifies the server with the cluster's certificate authority."""
    if cluster.certificate_authority_data:
        return ssl.create_default_context(cadata=base64.b64decode(cluster.certificate_authority_data).decode())
    if cluster.certificate_authority:
        return ssl.create_default_context(cafile=cluster.certificate_authority)
    return httpx2.create_ssl_context(verify=not cluster.insecure_skip_tls_verify, trust_env=False)


def _as_file(stack: ExitStack, data: str | None, path: str | None) -> str | None:
    """Return the path of a file with the data, as OpenSSL reads certificates and keys only from files."""
    if not data:
        return path
    import tempfile  # not needed in a pod, which has files

    file = stack.enter_context(tempfile.NamedTemporaryFile())
    file.write(base64.b64decode(data))
    file.flush()
    return file.name


def stamps(access: ClusterAccess) -> tuple[tuple[int, int, int] | None, ...]:
    """Return modification time, inode and size of each certificate file; a change means that it was renewed."""
    paths = (access.cluster.certificate_authority, access.user.client_certificate, access.user.client_key)
    return tuple(_stamp(path) for path in paths if path)


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
