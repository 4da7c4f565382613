"""Mutual TLS 1.3: both ends show a certificate of the federation's authority, and nothing older is spoken.

Host names are not checked: a peer is who its certificate says (`identity.identity_of`), wherever it runs.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from stat import S_IRWXG, S_IRWXO

from hiddenarm.errors import IdentityError


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a role keeps the authority's certificate, its own certificate and its own key."""

    ca: Path
    certificate: Path
    key: Path


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """For the end that listens. No session tickets: connections live as long as the federation does."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.num_tickets = 0
    return context


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For the end that dials."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, files)


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    _refuse_shared_key(files.key)
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    try:
        context.load_verify_locations(cafile=files.ca)
        context.load_cert_chain(files.certificate, files.key)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise IdentityError(f"cannot load {files.ca}, {files.certificate} and {files.key}: {error}") from error
    return context


def _refuse_shared_key(key: Path) -> None:
    try:
        mode = key.stat().st_mode
    except OSError as error:
        raise IdentityError(f"cannot read the key file {key}: {error.strerror}") from error
    if mode & (S_IRWXG | S_IRWXO):
        raise IdentityError(f"the key file {key} is open to group or others: chmod 600 {key}")
