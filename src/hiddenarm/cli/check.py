"""`hiddenarm check KIT`: look at everything that can be looked at before a role is started, and say what to do.

Nothing is changed, and no peer is disturbed: it is asked whether it would take us (`net.probe`). What is wrong here
ends with the code of a configuration error; if only peers are to blame, with that of a peer error.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import click
import numpy as np
from cryptography import x509

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import (
    ConfigError,
    HelloError,
    HiddenArmError,
    IdentityError,
    PeerLost,
    StoreError,
    UnavailableError,
)
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.probe import probe
from hiddenarm.net.tls import client_context
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.service.features import StoredFeatures
from hiddenarm.service.kit import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    KEY_FILE,
    SECRET_FILES,
    Kit,
    read_kit_file,
)
from hiddenarm.service.logs import with_digests_explained
from hiddenarm.service.metrics import needed_peers
from hiddenarm.service.modes import is_open, refuse_open
from hiddenarm.service.provision import REQUEST_FILE, authorities_in, check_issuer
from hiddenarm.service.state import check_state, keeps_state

SOON: Final = timedelta(days=30)
MANY_CLIPPED: Final = 0.1
"""Of all rows."""
_NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: what was found, and what to do about it. `fatal` names the error it would be."""

    what: str
    found: str
    advice: str = ""
    fatal: type[HiddenArmError] | None = None

    @property
    def mark(self) -> str:
        return "FAIL" if self.fatal else "warn" if self.advice else "ok"


def check_kit(folder: Path, offline: bool, seconds: float) -> None:
    """Look at a kit and, unless `offline`, at all peers that listen; print what was found and what is to be done."""
    findings = []
    for finding in _findings(folder, offline, seconds):
        findings.append(finding)
        click.echo(f"{finding.mark:4}  {finding.what}: {finding.found}" + (finding.advice and f" -> {finding.advice}"))
    failed = [finding.fatal for finding in findings if finding.fatal]
    if not failed:
        click.echo(f"Next: hiddenarm serve {folder}")
        return
    error = next((kind for kind in failed if kind.exit_code == ConfigError.exit_code), PeerLost)
    raise error(f"{len(failed)} of {len(findings)} checks failed: do what the lines marked FAIL say, and check again")


def _findings(folder: Path, offline: bool, seconds: float) -> Iterator[Finding]:
    yield from _look_at_modes(folder)
    yield from _look(lambda: read_kit_file(folder).build_federation(), "configuration", "kit.json is sound")
    try:
        file = read_kit_file(folder)
    except HiddenArmError:
        return
    with suppress(HiddenArmError):  # which was found above
        federation = file.build_federation()
        yield from look_at_privacy(federation)
        yield from _look_at_arms(federation)
    if not (folder / CERTIFICATE_FILE).exists():
        yield _no_certificate(folder)
        return
    try:
        kit = Kit(folder, file)
        if not is_open(kit.tls.key):  # otherwise the modes have failed, and the key cannot be tried
            client_context(kit.tls)
    except HiddenArmError as error:
        yield Finding("certificate", str(error), "hiddenarm request, approve and install make a new one", ConfigError)
        return
    yield from _look_at_certificates(kit)
    if kit.identity.role is Role.PARTY:
        yield from _look_at_features(kit)
    if keeps_state(kit):
        yield _look_at_state(kit)
    if kit.identity.role in (Role.PARTY, Role.DEALER):
        yield _look_at_address(kit)
    if not offline and is_open(kit.tls.key):
        yield Finding("peers", "were not asked", "correct the mode of the key first", ConfigError)
    elif not offline:
        yield from (_look_at_peer(kit, peer, seconds) for peer in needed_peers(kit))


def _look(action: Callable[[], object], what: str, fine: str) -> Iterator[Finding]:
    try:
        action()
    except HiddenArmError as error:
        yield Finding(what, str(error), "correct it", ConfigError)
    else:
        yield Finding(what, fine)


def look_at_privacy(federation: Federation) -> Iterator[Finding]:
    """Where sums are noisy: what the declared norms cost. Noise is for the largest context that they allow."""
    privacy = federation.noisy
    if privacy is None:
        return
    norm, norms = federation.joint_norm, ", ".join(f"{norm:g}" for norm in federation.norms)
    noise = f"the noise of the gradient has a deviation of {privacy.sigma_moment(norm):.3g}, {norm:.2f} times"
    if isinstance(privacy, NoisySums):
        noise = f"the noise of W has a deviation of {privacy.sigma_gram(norm):.3g}, {norm**2:.2f} times"
    yield Finding(
        "privacy",
        f"with {privacy.name} the loss is epsilon {privacy.total_epsilon:g} at delta {privacy.delta:g} about a "
        f"dropped row. Declared norms {norms} allow contexts of norm {norm:.3g}: {noise} that of norm 1; smaller norms "
        "earn more",
    )


def _look_at_arms(federation: Federation) -> Iterator[Finding]:
    """Where arms have features: how many, and which tell nothing."""
    table = federation.arm_features
    if table is None:
        return
    largest = np.abs(table.features).max(axis=0)
    empty = [table.columns[place] if table.columns else str(place) for place in np.flatnonzero(largest == 0)]
    found = f"{table.arms:,} with {table.width} features each, {len(federation.retired):,} of them retired"
    if empty:
        found += f"; {len(empty)} features are zero for all of them: {', '.join(empty[:_NAMES_SHOWN])}"
    yield Finding("arms", found, "scale these features up, or leave them out" if empty else "")


def _look_at_modes(folder: Path) -> Iterator[Finding]:
    wrong = 0
    for path in (folder, *(folder / name for name in SECRET_FILES)):
        try:
            refuse_open(path)
        except ConfigError as error:
            wrong += 1
            complaint, _, remedy = str(error).partition(": ")
            yield Finding("modes", complaint, remedy + _if_read(path), ConfigError)
    if not wrong:
        yield Finding("modes", "only their owner may read the secret files")


def _if_read(path: Path) -> str:
    """What else to do about a file that was open to others."""
    if path.name != KEY_FILE:
        return ""
    return "; if somebody else may have read it, they can pose as this role: then also replace the key and certificate"


def _no_certificate(folder: Path) -> Finding:
    request = folder / "next" / REQUEST_FILE
    advice = f"have {request} approved, then hiddenarm install" if request.exists() else f"hiddenarm request {folder}"
    return Finding("certificate", "there is none yet", advice, ConfigError)


def _look_at_certificates(kit: Kit) -> Iterator[Finding]:
    path, trusted = kit.tls.certificate, kit.folder / AUTHORITY_FILE
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    yield from _look(
        lambda: check_issuer(certificate, path, trusted),
        "certificate",
        f"is that of {kit.organisations.of(kit.identity)}",
    )
    yield _date("certificate", certificate, f"hiddenarm request {kit.folder}")
    for authority in authorities_in(trusted):
        yield _date("authority", authority, "agree on a new one with all members")


def _date(what: str, certificate: x509.Certificate, remedy: str) -> Finding:
    now, end = datetime.now(UTC), certificate.not_valid_after_utc
    if now < certificate.not_valid_before_utc:
        return Finding(
            what, f"is valid only from {certificate.not_valid_before_utc:%Y-%m-%d}", "set the clock", ConfigError
        )
    if end <= now:
        return Finding(what, f"expired on {end:%Y-%m-%d}", remedy, ConfigError)
    return Finding(what, f"is valid until {end:%Y-%m-%d}", remedy if end - now < SOON else "")


def _look_at_features(kit: Kit) -> Iterator[Finding]:
    number = kit.identity.number
    refuses = kit.missing_keys[number] == "refuse"
    others = "decisions about others are refused" if refuses else "all others count as zeros"
    try:
        source = kit.feature_source()
        if source.waits:
            source.open(zeros=not refuses).try_out()
            yield Finding("features", f"{source.file.source} can be asked; {others}")
            return
        features = source.load()
    except (ConfigError, UnavailableError) as error:
        yield Finding("features", str(error), "correct the file, or what it names", ConfigError)
        return
    if not len(features):
        yield Finding("features", "there are none", f"add a row for every key; {others}")
        return
    if features.unusable:
        found = f"{features.unusable} of {len(features)} keys have features that are missing or not finite"
        yield Finding("features", found, "decisions about these are refused until that is corrected")
    else:
        yield Finding("features", f"{len(features)} keys; {others}")
    yield from _look_at_clipping(features, kit.federation.norms[number])
    yield from _look_at_constants(features, kit.file.feature_names)


def _look_at_clipping(features: StoredFeatures, norm: float) -> Iterator[Finding]:
    """How many rows are beyond the norm: many, and what tells them apart may be lost."""
    clipped, count = features.clipped(norm), len(features)
    advice = "scale the features, as docs/features.md shows" if clipped > MANY_CLIPPED * count else ""
    yield Finding("norm", f"{clipped} of {count} rows are clipped to {norm:g}", advice)


def _look_at_constants(features: StoredFeatures, names: Sequence[str]) -> Iterator[Finding]:
    """Features that are the same in all rows. One is an intercept; more tell nothing, and cost as much as others."""
    constant = features.constant
    called = ", ".join(names[column] if names else str(column) for column in constant[:_NAMES_SHOWN])
    found = f"{len(constant)} of {features.count} features are the same in all rows"
    advice = "one of them is enough, as an intercept: leave out the others" if len(constant) > 1 else ""
    yield Finding("constant", found + (f": {called}" if constant else ""), advice)


def _look_at_state(kit: Kit) -> Finding:
    try:
        return Finding("state", "is that of this configuration" if check_state(kit) else "there is none yet")
    except StoreError as error:
        found, _, advice = str(error).partition(". ")
        return Finding("state", found, advice or "see docs/reliability.md", ConfigError)


def _look_at_address(kit: Kit) -> Finding:
    address = kit.address(kit.identity)
    host, what = kit.file.listen or address.host, f"address {kit.file.listen or address.host}:{address.port}"
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, address.port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Finding(what, "is in use", "fine if this role runs already, otherwise choose another port")
        advice = "it must be an address of this machine; set `listen` in kit.json if others reach it by another one"
        return Finding(what, error.strerror or type(error).__name__, advice, ConfigError)
    return Finding(what, "can be listened at")


def _look_at_peer(kit: Kit, peer: Identity, seconds: float) -> Finding:
    address = kit.address(peer)
    what, named = f"{kit.organisations.of(peer)} at {address.host}:{address.port}", kit.organisations.in_text
    try:
        welcome = probe(kit.identity, kit.tls, kit.hello, peer, (address.host, address.port), seconds)
    except HelloError as error:
        return Finding(
            what,
            with_digests_explained(named(str(error))),
            "all kits must come from the same federation file and version",
            HelloError,
        )
    except IdentityError as error:
        return Finding(what, named(str(error)), "compare certificates with whoever keeps the authority", PeerLost)
    except PeerLost as error:
        return Finding(what, f"not reached: {error}", "start it there, or look at address and firewall", PeerLost)
    if welcome.expires - datetime.now(UTC) < SOON:
        return Finding(what, f"its certificate ends on {welcome.expires:%Y-%m-%d}", "tell them to request a new one")
    return Finding(what, f"same configuration ({named(welcome.note)})")
