"""Certificates and keys for a test federation: one authority, the SuperLink's certificate, a key pair for every node.

For a real federation let your own authority sign the SuperLink's certificate, make each node's key on the node, and carry
only the public key to the server.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtide.errors import FedtideError

_LONGEST_HOST = 64  # characters of a common name
_LONGEST_DAYS, _MOST_NODES = 36_500, 10_000
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
_NAME = re.compile(rf"(\*\.)?{_LABEL}(\.{_LABEL})*")


class Credentials(NamedTuple):
    """Where the files are."""

    authority: Path  # certificate that everyone checks the SuperLink against
    certificate: Path  # the SuperLink's
    key: Path  # the SuperLink's
    nodes: list[tuple[Path, Path]]  # private and public key of each node


def make_credentials(folder: Path, hosts: Sequence[str], num_nodes: int, days: int = 365) -> Credentials:
    """Write everything into a new folder; private keys can be read by their owner only.

    hosts: names and addresses under which nodes reach the SuperLink. The authority's own key is not kept.
    """
    for each in hosts:
        _check_host(each)
    if not 1 <= days <= _LONGEST_DAYS:
        raise FedtideError(f"--days {days}: a certificate can be valid for 1 to {_LONGEST_DAYS:,} days")
    if not 0 <= num_nodes <= _MOST_NODES:
        raise FedtideError(f"--nodes {num_nodes}: this makes keys for a test of at most {_MOST_NODES:,} nodes")
    if folder.exists() and any(folder.iterdir()):
        raise FedtideError(f"{folder} is not empty; keys are never overwritten: choose a new folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedtide test authority")])
    authority = (
        _begin(authority_name, authority_name, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    server = (
        _begin(server_name, authority_name, server_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False,
        )
        .sign(authority_key, hashes.SHA384())
    )
    made = Credentials(
        authority=folder / "authority.pem",
        certificate=folder / "superlink.pem",
        key=folder / "superlink.key",
        nodes=[(folder / f"node-{each}.key", folder / f"node-{each}.pub") for each in range(num_nodes)],
    )
    made.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    made.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_private(made.key, server_key, serialization.PrivateFormat.PKCS8)
    for private, public in made.nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        _write_private(private, key, serialization.PrivateFormat.OpenSSH)
        formats = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        public.write_bytes(key.public_key().public_bytes(*formats) + b"\n")
    return made


def _begin(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _check_host(name: str) -> None:
    """Raise if a certificate cannot carry this name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if len(name) > _LONGEST_HOST or not _NAME.fullmatch(name):
            raise FedtideError(
                f"--host {name[:80]!r}: it must be an address, or a name of letters, digits, dots and hyphens with at most "
                f"{_LONGEST_HOST} characters (others in Punycode, xn--...)"
            ) from None


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    data = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
