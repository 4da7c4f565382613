"""The federation's certificate authority: a key that signs one certificate per role, on the curve P-256.

1. authority = Authority.create(name)            a self-signed root, for this federation only
2. certificate, key = authority.issue(identity)  the name of the role is the URI subjectAltName
3. write_private(path, key)                      0600 in a folder that is 0700

Where the role makes its own key: request, key = new_request(identity) at the role; at the authority read_request, two
people compare the fingerprint, and authority.certify(identity, key).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hiddenarm.errors import IdentityError
from hiddenarm.net.identity import Identity


@dataclass(frozen=True, slots=True, repr=False)
class Authority:
    """Signs the certificates of one federation."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, federation_name: str, valid_days: int = 3650) -> Authority:
        """A new authority with a new key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"{federation_name} authority")
        builder = _builder(name, name, key.public_key(), key.public_key(), valid_days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(authority=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Authority:
        """The authority that was written down as these two files."""
        key = load_pem_private_key(key_pem, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise IdentityError("the authority's key is not on an elliptic curve")
        return cls(x509.load_pem_x509_certificate(certificate_pem), key)

    @property
    def certificate_pem(self) -> bytes:
        """What every role must hold to recognise the others."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The secret of the federation: whoever holds it can be anyone."""
        return _private_pem(self.key)

    def issue(self, identity: Identity, valid_days: int = 365) -> tuple[bytes, bytes]:
        """A certificate that names `identity`, and its new key, both as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self.certify(identity, key.public_key(), valid_days), _private_pem(key)

    def certify(self, identity: Identity, key: ec.EllipticCurvePublicKey, valid_days: int = 365) -> bytes:
        """A certificate that names `identity` as the holder of a key, as PEM."""
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = _builder(_name(str(identity)), self.certificate.subject, key, self.key.public_key(), valid_days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(_subject(identity), critical=False)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def new_request(identity: Identity) -> tuple[bytes, bytes]:
    """A new key, and the request to certify it under the name `identity`: request and key, both as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder(_name(str(identity)), [])
    request = builder.add_extension(_subject(identity), critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(Encoding.PEM), _private_pem(key)


def read_request(pem: bytes) -> tuple[Identity, ec.EllipticCurvePublicKey]:
    """The name and the key in a request that was signed with that key."""
    try:
        request = x509.load_pem_x509_csr(pem)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound):
        raise IdentityError("this is not a request for a certificate") from None
    key, uris = request.public_key(), names.get_values_for_type(x509.UniformResourceIdentifier)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise IdentityError("the key of the request is not on the curve P-256")
    if len(uris) != 1 or not request.is_signature_valid:
        raise IdentityError("the request does not have one name, or was not signed with its key")
    return Identity.parse(uris[0]), key


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """What two people compare to know that they mean the same key: SHA-256 of it, in groups of four."""
    digest = sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
    return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read, in a folder that only its owner can enter.

    An existing file is never overwritten: a key that is replaced by mistake cannot be had back.
    """
    _make_private_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _make_private_folder(folder: Path) -> None:
    """Make `folder` and its missing parents, each 0700; `Path.mkdir` would leave the parents to the umask."""
    for missing in reversed([path for path in (folder, *folder.parents) if not path.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    valid_days: int,
) -> x509.CertificateBuilder:
    """What every certificate has. It is valid from an hour ago: clocks differ. Negative days make an expired one."""
    now = datetime.now(UTC)
    start = now - timedelta(hours=1) + min(timedelta(0), timedelta(days=valid_days))
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=start,
        not_valid_after=now + timedelta(days=valid_days),
    )
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)


def _subject(identity: Identity) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity.uri)])


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
