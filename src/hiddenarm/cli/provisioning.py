"""What `provision`, `request`, `approve` and `install` say and ask. The work is in `service.provision`."""

from __future__ import annotations

from pathlib import Path

import click

from hiddenarm.errors import HiddenArmError, IdentityError
from hiddenarm.net.identity import Role
from hiddenarm.service.provision import (
    AUTHORITY_FOLDER,
    SAMPLE_FILE,
    Requested,
    approve,
    install,
    make_request,
    provision,
    read_requested,
)


def provision_kits(path: Path, out: Path, keys_on_site: bool, days: int) -> None:
    """Make kits and say what each is for."""
    kits = provision(path, out, keys_on_site=keys_on_site, valid_days=days)
    width = max(len(str(folder)) for folder in kits.values())
    for member, folder in kits.items():
        then = f"; put its features into features.csv as in {SAMPLE_FILE}" if member.role is Role.PARTY else ""
        click.echo(f"{folder!s:{width}}  for the machine of {member}{then}")
    authority = out / AUTHORITY_FOLDER
    click.echo(f"{authority!s:{width}}  signs certificates: keep it apart, off the machines of the roles")
    if keys_on_site:
        click.echo("The kits have no keys yet. On each machine: hiddenarm request KIT")
    else:
        click.echo("Each kit holds its key: move it to its machine over a channel you trust, and delete it here.")
        click.echo("On each machine: hiddenarm check KIT")


def request_certificate(kit: Path) -> None:
    """Make a key and a request, and say how to go on."""
    request = make_request(kit)
    _show(request)
    click.echo(f"The key stays in {request.path.parent}. Send {request.path} to whoever keeps the authority, and tell")
    click.echo("the fingerprint by another way, such as by telephone. Then: hiddenarm install KIT CERTIFICATE")


def approve_request(authority: Path, path: Path, out: Path | None, expected: str | None, days: int) -> None:
    """Show who asks for what; sign if the fingerprint is the one that was told."""
    request = read_requested(path)
    _show(request)
    if expected is None:
        _confirm(path)
    elif _bare(expected) != _bare(request.fingerprint):
        raise IdentityError(f"{path} has another fingerprint: somebody may have replaced it on the way. Nothing signed")
    out = out or path.with_name("certificate.pem")
    approve(authority, request, out, days)
    click.echo(f"Approved: send {out} back. It is public.")


def install_certificate(kit: Path, certificate: Path) -> None:
    """Put a certificate in place and say what follows."""
    installed = install(kit, certificate)
    click.echo(f"{installed.identity} has a certificate until {installed.expires:%Y-%m-%d}.")
    if installed.retired is None:
        click.echo(f"Next: hiddenarm check {kit}")
    else:
        click.echo(f"The one before is in {installed.retired} and stays valid until its own date.")
        click.echo("If the role is running, send it SIGHUP: new connections then see the new certificate.")


def _confirm(path: Path) -> None:
    if not click.confirm("Is this the fingerprint that the role told you?"):
        raise HiddenArmError(
            f"{path} was not approved, and nothing was signed. If the fingerprints differ, somebody may have replaced "
            "the request on the way: have it sent again"
        )


def _show(request: Requested) -> None:
    click.echo(f"role:        {request.identity}")
    click.echo(f"fingerprint: {request.fingerprint}")


def _bare(fingerprint: str) -> str:
    return "".join(fingerprint.split()).replace(":", "").lower()
