"""A throw-away certificate authority and one server certificate for the loopback address and Salesforce's host names.

Only a client that is given its file trusts the authority; the names serve clients that come through the tunnel.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_PRIVATE = 0o600
_VALID = dt.timedelta(days=30)
_HOSTS = ("localhost", "*.my.salesforce.com", "*.salesforce.com")


def make_server_context(directory: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a new authority and a certificate for the server's names; return the server's context and the authority's PEM.

    The files (ca.pem, server.pem) are readable by their owner only; the authority's own key is never written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _ca_certificate(ca_key)
    leaf_key = ec.generate_private_key(ec.SECP256R1())
    leaf = _leaf_certificate(leaf_key, ca, ca_key)
    ca_file = directory / "ca.pem"
    server_file = directory / "server.pem"
    _write_private(ca_file, ca.public_bytes(serialization.Encoding.PEM))
    key_pem = leaf_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_private(server_file, key_pem + leaf.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(server_file)
    return context, ca_file


def _ca_certificate(key: EllipticCurvePrivateKey) -> x509.Certificate:
    name = _name("Quotebot sandbox authority")
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf_certificate(key: EllipticCurvePrivateKey, ca: x509.Certificate, ca_key: EllipticCurvePrivateKey) -> x509.Certificate:
    hosts = (x509.DNSName(host) for host in _HOSTS)
    names = x509.SubjectAlternativeName([*hosts, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    return (
        _builder(_name("localhost"), ca.subject, key)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write_private(path: Path, content: bytes) -> None:
    """Write a file that was never readable by anyone else."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
