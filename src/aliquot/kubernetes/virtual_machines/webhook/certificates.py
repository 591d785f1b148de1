"""Self-made certificates: an authority, and the server's certificate that it signs, both renewed before they expire.

A new authority is trusted together with the previous one. It signs the server's certificate only at the next renewal of
that certificate. By then, every client trusts both authorities.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = dt.timedelta(days=5 * 365)
SERVER_LIFE = dt.timedelta(days=90)
_EARLY = dt.timedelta(hours=1)
"""Clocks differ: a certificate is valid from an hour before its creation."""


class CertificatePair(msgspec.Struct, frozen=True):
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class CertificateBundle(msgspec.Struct, frozen=True):
    """The authority and the server's certificate."""

    authority: CertificatePair
    server: CertificatePair
    trusted: bytes
    """The authority's certificate, then previous ones that are still valid, PEM."""


def renewed_bundle(found: CertificateBundle | None, hosts: Sequence[str], now: dt.datetime) -> CertificateBundle | None:
    """Return the bundle to store instead; None if nothing has to change. Unreadable certificates count as absent."""
    try:
        return _renewed_bundle(found, hosts, now)
    except ValueError:
        return _new_bundle(hosts, now)


def _new_bundle(hosts: Sequence[str], now: dt.datetime) -> CertificateBundle:
    authority = make_authority(now)
    return CertificateBundle(authority, make_server(authority, hosts, now), authority.certificate)


def _renewed_bundle(
    found: CertificateBundle | None, hosts: Sequence[str], now: dt.datetime
) -> CertificateBundle | None:
    if found is None:
        return _new_bundle(hosts, now)
    trusted = [each for each in x509.load_pem_x509_certificates(found.trusted) if each.not_valid_after_utc > now]
    server = x509.load_pem_x509_certificate(found.server.certificate)
    current = x509.load_pem_x509_certificate(found.authority.certificate)
    serialization.load_pem_private_key(found.authority.key, None)
    if current not in trusted or not any(_is_signed_by(server, each) for each in trusted):
        return _new_bundle(hosts, now)
    if _needs_renewal(current, now):
        fresh = make_authority(now)
        return CertificateBundle(fresh, found.server, b"".join((fresh.certificate, *map(_pem, trusted))))
    if _needs_renewal(server, now) or _dns_names(server) != set(hosts) or not _matches_key(server, found.server.key):
        return CertificateBundle(
            found.authority, make_server(found.authority, hosts, now), b"".join(map(_pem, trusted))
        )
    return None


def expiry(certificate: bytes) -> float | None:
    """Return when a certificate (PEM) expires, in seconds of wall time; None if it cannot be read."""
    try:
        return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()
    except ValueError:
        return None


def renewed_server(found: CertificatePair | None, hosts: Sequence[str], now: dt.datetime) -> CertificatePair:
    """Return ``found``, or a new one when a third of its lifetime is left. Its authority is kept nowhere."""
    if found is not None and not _needs_renewal(x509.load_pem_x509_certificate(found.certificate), now):
        return found
    return make_server(make_authority(now), hosts, now)


def make_authority(now: dt.datetime) -> CertificatePair:
    """Create a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "aliquot-webhook-ca")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    certificate = (
        _builder(name, name, now, AUTHORITY_LIFE, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(_pem(certificate), _key(key))


def make_server(authority: CertificatePair, hosts: Sequence[str], now: dt.datetime) -> CertificatePair:
    """Create a certificate for these DNS names, signed by the authority."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise ValueError("the authority's key is not an elliptic-curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(name, issuer.subject, now, SERVER_LIFE, key)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return CertificatePair(_pem(certificate), _key(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, now: dt.datetime, life: dt.timedelta, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + life)
    )


def _needs_renewal(certificate: x509.Certificate, now: dt.datetime) -> bool:
    """Report whether at most a third of the certificate's lifetime is left, or it is not valid yet."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return now > certificate.not_valid_after_utc - life / 3 or now < certificate.not_valid_before_utc


def _is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # noqa: BLE001 - any error means that this authority did not sign it
        return False
    return True


def _dns_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return set(names.get_values_for_type(x509.DNSName))


def _matches_key(certificate: x509.Certificate, key: bytes) -> bool:
    return serialization.load_pem_private_key(key, None).public_key() == certificate.public_key()


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
