"""`hiddenarm recover`, `export` and `import`: what an operator does with the lasting state of a role."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hiddenarm.errors import InputError
from hiddenarm.net.identity import Role
from hiddenarm.service.kit import Kit
from hiddenarm.service.state import State, state_folder
from hiddenarm.store.copies import export_store, import_store

_REWARDER_AGREES: Final = """\
The rewarder agrees to go on behind the lessons that the parties hold, when it is next started.
Rewards of all earlier decisions are refused from then on."""
_PARTY_AGREES: Final = """\
{party} agrees to go back to what all parties have in common, when it is next started. It holds {lessons} lessons.
The epoch opens when all parties agree. The rewarder teaches again what is lost; where a party has lost the decision
itself, its reward is refused."""


def recover(folder: Path) -> str:
    """Consent to going on after a loss of state. The role must be stopped; returns what was agreed."""
    kit = _durable(folder)
    state = State(kit)
    try:
        match kit.identity.role:
            case Role.PARTY:
                records = state.party()
                records.consent()
                return _PARTY_AGREES.format(party=kit.organisations.of(kit.identity), lessons=records.committed.lessons)
            case Role.REWARDER:
                state.rewarder().consent()
                return _REWARDER_AGREES
            case _:
                raise InputError(f"the {kit.identity} need not agree: others do not rely on what it keeps")
    finally:
        state.close()


def export(folder: Path, path: Path) -> None:
    """Write a copy of a role's state; it may be running."""
    export_store(state_folder(_durable(folder)), path)


def restore(folder: Path, path: Path) -> None:
    """Put a copy of a role's state in place; it must be stopped."""
    import_store(state_folder(_durable(folder)), path)


def _durable(folder: Path) -> Kit:
    kit = Kit.read(folder)
    if not kit.file.durable or kit.identity.role is Role.DEALER:
        raise InputError(f"the {kit.identity} of this kit keeps no state")
    return kit
