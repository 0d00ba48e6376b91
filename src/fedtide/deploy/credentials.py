"""Certificates and keys for a test federation: one authority, the SuperLink's certificate, a key pair for every node.

For a real federation let your own authority sign the SuperLink's certificate, make each node's key on the node, and carry
only the public key to the server.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fedtide.errors import FedtideError


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
    if folder.exists() and any(folder.iterdir()):
        raise FedtideError(f"{folder} is not empty; keys are never overwritten: choose a new folder")
    authority = trustme.CA(path_length=0, organization_name="fedtide", organization_unit_name="test authority")
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    for host in hosts:
        try:
            authority.issue_cert(host)
        except ValueError as error:  # of idna
            raise FedtideError(f"--host {host[:80]!r} is not a host name or address ({error})") from None
    superlink = authority.issue_cert(*hosts, not_after=until)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder = folder.absolute()
    nodes = [(folder / f"node-{node}.key", folder / f"node-{node}.pub") for node in range(num_nodes)]
    made = Credentials(folder / "authority.pem", folder / "superlink.pem", folder / "superlink.key", nodes)
    made.authority.write_bytes(authority.cert_pem.bytes())
    made.certificate.write_bytes(superlink.cert_chain_pems[0].bytes())
    _write_private(made.key, superlink.private_key_pem.bytes())
    for private, public in nodes:
        key = ec.generate_private_key(ec.SECP384R1())
        _write_private(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return made


def _write_private(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
