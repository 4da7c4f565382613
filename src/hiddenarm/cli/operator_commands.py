"""The commands of whoever runs a role: thin, like `main`. Each calls the module that does its work."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from hiddenarm.cli.options import FILE

_KIT: Final = click.Path(path_type=Path, exists=True, file_okay=False)
_EXISTING: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
_DAYS: Final = click.IntRange(1, 3650)
_STDIN: Final = 0
_LEVELS: Final = ("debug", "info", "warning", "error")
_FORMATS: Final = ("text", "json")


@click.command()
@click.argument("kits", metavar="KIT...", type=_KIT, nargs=-1, required=True)
@click.option("--listen-fd", type=int, help="File descriptor of a listening socket, for the party or the dealer.")
@click.option("--report", type=FILE, help="Write the frames and bytes that the party or the dealer counted.")
@click.option("--until-eof", is_flag=True, help="Parties and dealer also stop when standard input ends.")
@click.option("--log-level", type=click.Choice(_LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(_FORMATS), default="text", show_default=True)
def serve(
    kits: tuple[Path, ...],
    listen_fd: int | None,
    report: Path | None,
    until_eof: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Run a role from its kit. It runs until the federation ends or SIGTERM tells it to stop. The party, the actor and
    the rewarder of one organisation, each from its own kit, may share a process."""
    from hiddenarm.cli.serve import serve_kits

    serve_kits(kits, listen_fd, report, until_eof, _STDIN, sys.stdout, log_level, log_format)


@click.command()
@click.argument("federation_file", type=_EXISTING)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder for the kits.")
@click.option(
    "--keys-on-site", is_flag=True, help="Make no keys: each role makes its own and requests a certificate for it."
)
@click.option("--days", type=_DAYS, default=365, show_default=True, help="How long certificates are valid.")
def provision(federation_file: Path, out: Path, keys_on_site: bool, days: int) -> None:
    """Make a kit for every role of a federation. A TOML file describes it."""
    from hiddenarm.cli.provisioning import provision_kits

    provision_kits(federation_file, out, keys_on_site, days)


@click.command()
@click.argument("kit", type=_KIT)
def request(kit: Path) -> None:
    """Make a key on site, and a request for its certificate. It may be the first key or the next."""
    from hiddenarm.cli.provisioning import request_certificate

    request_certificate(kit)


@click.command()
@click.argument("authority", type=_KIT)
@click.argument("request", type=_EXISTING)
@click.option("--out", type=FILE, help="File of the certificate; next to the request unless given.")
@click.option("--fingerprint", help="The fingerprint that the role reported; asked for unless given.")
@click.option("--days", type=_DAYS, default=365, show_default=True, help="How long the certificate is valid.")
def approve(authority: Path, request: Path, out: Path | None, fingerprint: str | None, days: int) -> None:
    """Sign a role's request for a certificate. This takes the authority's folder."""
    from hiddenarm.cli.provisioning import approve_request

    approve_request(authority, request, out, fingerprint, days)


@click.command()
@click.argument("kit", type=_KIT)
@click.argument("certificate", type=_EXISTING)
def install(kit: Path, certificate: Path) -> None:
    """Put an approved certificate and its key in place."""
    from hiddenarm.cli.provisioning import install_certificate

    install_certificate(kit, certificate)


@click.command()
@click.argument("authority", type=_KIT)
@click.argument("federation_file", type=_EXISTING)
@click.option(
    "--out", type=FILE, help="File of the signed version; change-VERSION.json next to the federation file unless given."
)
def change(authority: Path, federation_file: Path, out: Path | None) -> None:
    """Sign the next version of a federation's file. This takes the authority's folder. What cannot change while a model
    lives is refused by name."""
    from hiddenarm.cli.provisioning import sign_change

    sign_change(authority, federation_file, out)


@click.command()
@click.argument("kit", type=_KIT)
@click.argument("change", type=_EXISTING)
@click.option("--yes", is_flag=True, help="Adopt it without asking.")
def adopt(kit: Path, change: Path, yes: bool) -> None:
    """Adopt a signed version of the federation's file in a kit. What changes is shown first. It takes effect when the
    role is restarted; the role keeps its state."""
    from hiddenarm.cli.provisioning import adopt_change

    adopt_change(kit, change, yes)


@click.command()
@click.argument("kit", type=_KIT)
@click.option("--offline", is_flag=True, help="Check the kit only, not the peers.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Timeout for each peer."
)
def check(kit: Path, offline: bool, seconds: float) -> None:
    """Check a kit before it is served. Looks at files, dates, names and features, and asks every peer whether it
    agrees."""
    from hiddenarm.cli.check import check_kit

    check_kit(kit, offline, seconds)


@click.command()
@click.argument("kit", type=_KIT)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--live", is_flag=True, help="Only ask whether it runs: print nothing, exit with 0 if it answers.")
@click.option("--at-epsilon", type=float, help="Also estimate the policy with this probability of exploring.")
def status(kit: Path, as_json: bool, live: bool, at_epsilon: float | None) -> None:
    """Ask the role that runs from a kit for its status. It must run on this machine. Exits with 4 if no decisions can
    be served."""
    from hiddenarm.cli.status import check_alive, show_status

    if live:
        check_alive(kit)
    else:
        show_status(kit, as_json, at_epsilon)


@click.command()
@click.argument("kit", type=_KIT)
def recover(kit: Path) -> None:
    """Agree to go back to what all parties have in common. For when one of them has lost state. Stop the role first."""
    from hiddenarm.service.state import recover as consent

    click.echo(consent(kit))


@click.command()
@click.argument("kit", type=_KIT)
@click.argument("file", type=FILE)
def export(kit: Path, file: Path) -> None:
    """Write a copy of a role's lasting state. The role may be running. The copy holds shares: keep it as safe as the
    role."""
    from hiddenarm.service.state import export as write_copy

    write_copy(kit, file)


@click.command("import")
@click.argument("kit", type=_KIT)
@click.argument("file", type=_EXISTING)
def import_copy(kit: Path, file: Path) -> None:
    """Restore a role's lasting state from a copy. Stop the role first; a copy that is not the newest is refused."""
    from hiddenarm.service.state import restore

    restore(kit, file)


@click.command()
@click.argument("kit", type=_KIT)
@click.argument("decision", metavar="ID")
def unlearn(kit: Path, decision: str) -> None:
    """Take the interaction of a decision out of the model again. This takes the rewarder's kit. While the rewarder
    runs, give it the line {"unlearn": ID} instead."""
    from hiddenarm.cli.unlearn import unlearn_decision

    unlearn_decision(kit, decision, sys.stdout)


SERVICE_COMMANDS: Final = (
    provision,
    request,
    approve,
    install,
    change,
    adopt,
    check,
    serve,
    status,
    recover,
    export,
    import_copy,
    unlearn,
)
