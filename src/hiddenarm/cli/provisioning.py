"""What `provision`, `request`, `approve`, `install`, `change` and `adopt` say and ask. The work is in
`service.provision` and `service.changes`."""

from __future__ import annotations

from pathlib import Path

import click

from hiddenarm.errors import HiddenArmError, IdentityError
from hiddenarm.net.identity import Role
from hiddenarm.service.arm_tables import read_arm_file
from hiddenarm.service.changes import change, read_adoption
from hiddenarm.service.federation_file import FederationFile
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
    _show_arms(path)
    authority = out / AUTHORITY_FOLDER
    click.echo(f"{authority!s:{width}}  signs certificates: keep it apart, off the machines of the roles")
    if keys_on_site:
        click.echo("The kits have no keys yet. On each machine: hiddenarm request KIT")
    else:
        click.echo("Each kit holds its key: move it to its machine over a channel you trust, and delete it here.")
        click.echo("On each machine: hiddenarm check KIT")


def _show_arms(path: Path) -> None:
    """Say what was read of a table of arms, if the federation file names one."""
    file = FederationFile.read(path)
    if file.arm_table is not None:
        arms = read_arm_file(file.path_of_arms(path))
        click.echo(
            f"{file.arm_table}: {arms.table.arms:,} arms with {arms.table.width} features each, in every kit; "
            f"{arms.scaled:,} rows were scaled down to norm 1"
        )


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


def sign_change(authority: Path, path: Path, out: Path | None) -> None:
    """Sign the next version of a federation's file, and say what it changes and how to go on."""
    version = FederationFile.read(path).version
    out = out or path.with_name(f"change-{version}.json")
    for line in change(authority, path, out):
        click.echo(line)
    click.echo(f"Signed as {out}: send it to every member. It is public.")
    click.echo(f"On each machine: hiddenarm adopt KIT {out.name}, then start the role anew")


def adopt_change(kit: Path, path: Path, yes: bool) -> None:
    """Show what differs; adopt it if the operator agrees."""
    adoption = read_adoption(kit, path)
    if not adoption.differences:
        click.echo(f"{kit} has version {adoption.file.version} already: there is nothing to do")
        return
    for line in adoption.differences:
        click.echo(line)
    if not yes and not click.confirm(f"Adopt version {adoption.file.version} in {kit}?"):
        raise HiddenArmError(f"{path} was not adopted, and {kit} is as it was")
    adoption.write()
    click.echo(f"{kit} has version {adoption.file.version}. Start the role anew: an epoch opens when all have it.")


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
