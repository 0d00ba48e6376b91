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
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedtide.errors import FedtideError

_MAX_HOST_CHARACTERS = 64
_HOST_NAME = re.compile(r"(\*\.)?\w([\w-]*\w)?(\.\w([\w-]*\w)?)*", re.ASCII)
_AUTHORITY = "fedtide test authority"


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
    names = [_host(name) for name in hosts]
    if folder.exists() and any(folder.iterdir()):
        raise FedtideError(f"{folder} is not empty; keys are never overwritten: choose a new folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = folder.absolute()
    authority_key, server_key, *node_keys = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2 + num_nodes))
    nodes = [(folder / f"node-{node}.key", folder / f"node-{node}.pub") for node in range(num_nodes)]
    made = Credentials(folder / "authority.pem", folder / "superlink.pem", folder / "superlink.key", nodes)
    made.authority.write_bytes(_certificate(_AUTHORITY, [], authority_key.public_key(), authority_key, days))
    made.certificate.write_bytes(_certificate(hosts[0], names, server_key.public_key(), authority_key, days))
    _write_private(made.key, server_key, PrivateFormat.PKCS8)
    for (private, public), key in zip(nodes, node_keys, strict=True):
        _write_private(private, key, PrivateFormat.OpenSSH)
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return made


def _certificate(
    subject: str,
    hosts: list[x509.GeneralName],
    key: ec.EllipticCurvePublicKey,
    authority: ec.EllipticCurvePrivateKey,
    days: int,
) -> bytes:
    """Return the SuperLink's certificate for these hosts, or the authority's own if there are none."""
    signs, now = not hosts, datetime.datetime.now(datetime.UTC)
    usage = {"digital_signature": not signs, "key_agreement": not signs, "key_cert_sign": signs, "crl_sign": signs}
    never = ("content_commitment", "key_encipherment", "data_encipherment", "encipher_only", "decipher_only")
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _AUTHORITY)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(x509.KeyUsage(**usage, **dict.fromkeys(never, False)), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
    if hosts:
        builder = (
            builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        )
    pem: bytes = builder.sign(authority, hashes.SHA384()).public_bytes(Encoding.PEM)
    return pem


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if len(name) > _MAX_HOST_CHARACTERS or not _HOST_NAME.fullmatch(name):
            raise FedtideError(
                f"--host {name[:80]!r}: it must be an address, or a name of letters, digits, dots and hyphens with at most "
                f"{_MAX_HOST_CHARACTERS} characters (others in Punycode, xn--...)"
            ) from None
        return x509.DNSName(name)


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey, form: PrivateFormat) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(Encoding.PEM, form, NoEncryption()))
