"""Certificates: creation, trust, early renewal, and the overlap while an authority changes."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import tempfile
import threading

import msgspec
import pytest
from cryptography import x509

from aliquot.kubernetes.virtual_machines.webhook.certificates import (
    AUTHORITY_LIFE,
    SERVER_LIFE,
    CertificateBundle,
    CertificatePair,
    renewed_bundle,
)

HOSTS = ("aliquot-webhook.ns.svc", "localhost")
NOW = dt.datetime.now(dt.UTC)


def made(
    found: CertificateBundle | None = None, now: dt.datetime = NOW, hosts: tuple[str, ...] = HOSTS
) -> CertificateBundle:
    fresh = renewed_bundle(found, hosts, now)
    assert fresh is not None
    return fresh


def shakes_hands(bundle: CertificateBundle, host: str) -> bool:
    """Report whether a client that trusts the bundle's authorities accepts its server, verified by OpenSSL."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=bundle.trusted.decode())
    with tempfile.NamedTemporaryFile() as both:
        both.write(bundle.server.certificate + bundle.server.key)
        both.flush()
        server.load_cert_chain(both.name)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(here, server_hostname=host).close()
    except ssl.SSLCertVerificationError:
        return False
    finally:
        here.close()
        thread.join()
    return True


def test_a_client_that_trusts_the_authority_believes_the_server_under_its_names_alone() -> None:
    bundle = made()
    assert shakes_hands(bundle, HOSTS[0])
    assert shakes_hands(bundle, HOSTS[1])
    assert not shakes_hands(bundle, "elsewhere.svc")
    assert not shakes_hands(msgspec.structs.replace(bundle, trusted=made().trusted), HOSTS[0])


def test_nothing_is_renewed_before_its_time() -> None:
    bundle = made()
    assert renewed_bundle(bundle, HOSTS, NOW) is None
    assert renewed_bundle(bundle, tuple(reversed(HOSTS)), NOW + SERVER_LIFE / 2) is None


def test_the_server_is_renewed_a_third_before_the_end_by_the_same_authority() -> None:
    bundle = made()
    later = made(bundle, NOW + SERVER_LIFE * 0.7)
    assert (later.authority, later.trusted) == (bundle.authority, bundle.trusted)
    assert later.server != bundle.server
    assert made(bundle, hosts=("other.svc",)).server != bundle.server


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    # A client with only the old authority, and one with both, accepts the server at each step.
    old = made()
    late = NOW + AUTHORITY_LIFE * 0.7
    while (step := renewed_bundle(old, HOSTS, late)) is not None and step.authority == old.authority:
        old = step
    assert step is not None
    assert step.server == old.server
    assert len(x509.load_pem_x509_certificates(step.trusted)) == 2
    assert step.trusted.startswith(step.authority.certificate)
    signed = made(step, late + SERVER_LIFE)
    assert signed.server != step.server
    issuer = x509.load_pem_x509_certificate(signed.authority.certificate)
    x509.load_pem_x509_certificate(signed.server.certificate).verify_directly_issued_by(issuer)
    end = NOW + AUTHORITY_LIFE + SERVER_LIFE
    assert len(x509.load_pem_x509_certificates(made(signed, end).trusted)) == 1


@pytest.mark.parametrize("field", ["authority", "server", "trusted"])
def test_what_was_damaged_is_made_again(field: str) -> None:
    bundle = made()
    odd = b"no PEM" if field == "trusted" else CertificatePair(b"no PEM", b"no PEM")
    fresh = made(msgspec.structs.replace(bundle, **{field: odd}))
    assert shakes_hands(fresh, HOSTS[0])


def test_a_key_that_is_not_the_certificates_is_replaced() -> None:
    bundle, other = made(), made()
    mixed = msgspec.structs.replace(bundle, server=CertificatePair(bundle.server.certificate, other.server.key))
    assert shakes_hands(made(mixed), HOSTS[0])


def test_an_authority_that_did_not_sign_is_no_authority() -> None:
    bundle, other = made(), made()
    fresh = made(msgspec.structs.replace(bundle, authority=other.authority, trusted=other.trusted))
    assert shakes_hands(fresh, HOSTS[0])


def test_what_a_verifier_must_understand_is_critical() -> None:
    # The limits of a certificate are critical, and no extension that an older client may not know (RFC 5280, 4.2).
    found = made()
    critical = {
        body: {each.oid._name for each in x509.load_pem_x509_certificate(body).extensions if each.critical}
        for body in (found.authority.certificate, found.server.certificate)
    }
    assert critical[found.authority.certificate] == {"basicConstraints", "keyUsage"}
    assert critical[found.server.certificate] == {"basicConstraints"}


def test_one_that_begins_this_second_is_not_renewed_and_one_that_begins_later_is() -> None:
    found = made()
    begins = x509.load_pem_x509_certificate(found.server.certificate).not_valid_before_utc
    assert renewed_bundle(found, HOSTS, begins) is None
    assert renewed_bundle(found, HOSTS, begins - dt.timedelta(seconds=1)) is not None
