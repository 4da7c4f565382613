"""Whether decisions can be served now, as a role sees it; if not, why; and what is amiss though they can.

Decisions need an open epoch, and the actor. In memory, the epoch is opened by parties and dealer, and ends with any of
them; clients come to it. Where state lasts it is opened by all roles and ends with any of them but the dealer: without
it, decisions go on from stock, of which only the last party knows how much is left. A rewarder is ready when rewards
can be learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import CLIENTS, DEALER, REWARDER
from hiddenarm.roles.process import Endpoint
from hiddenarm.roles.vitals import Vitals

SILENT_SECONDS: Final = 5.0
"""A peer that has said nothing for this long is called silent: it is asked every second."""

Silences = Mapping[Identity, float]
"""The peers that are connected, and for how many seconds each of them has said nothing."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Why decisions cannot be served now, nothing if they can; and what is to be known besides."""

    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return not self.reasons


def readiness_of(endpoint: Endpoint, members: Sequence[Identity]) -> Readiness:
    """How things look to a role; `members` are all the others."""
    machine, silences = endpoint.machine, endpoint.switchboard.silences
    found = Readiness()
    _look_at_epoch(found, machine.active, machine.absent)
    missing = [peer for peer in members if machine.expects(peer) and peer not in silences]
    _look_at_clients(found, [peer for peer in missing if peer in CLIENTS and peer not in machine.absent])
    _look_at_silences(found, silences)
    if found.ready and endpoint.kit.identity != DEALER:
        _look_at_dealer(found, silences, machine.vitals())
    return found


def _look_at_epoch(found: Readiness, is_open: bool, missing: list[Identity]) -> None:
    if not is_open:
        why = [f"no epoch is open: {peer} not connected" for peer in missing]
        found.reasons.extend(why or ["an epoch is being opened"])


def _look_at_clients(found: Readiness, missing: list[Identity]) -> None:
    """Clients that are not there, though the epoch does not need them."""
    for peer in missing:
        if peer == REWARDER:
            found.notes.append("rewarder not connected: decisions are served, rewards are not learned")
        else:
            found.reasons.append(f"{peer} not connected")


def _look_at_silences(found: Readiness, silences: Silences) -> None:
    for peer, seconds in sorted(silences.items()):
        if peer.role is Role.PARTY and seconds > SILENT_SECONDS:
            found.reasons.append(f"{peer} has said nothing for {seconds:.0f} seconds")


def _look_at_dealer(found: Readiness, silences: Silences, vitals: Vitals) -> None:
    """Without the dealer there is what it has dealt."""
    if silences.get(DEALER, SILENT_SECONDS + 1) <= SILENT_SECONDS:
        return
    why = "dealer silent" if DEALER in silences else "dealer not connected"
    left = vitals.stock.get(DECIDE_ONE.label)
    if vitals.stranded or left == 0:
        found.reasons.append(f"{why}, and what it dealt is used up")
    elif left is None:
        found.notes.append(f"{why}: decisions go on from what the last party has in stock")
    else:
        found.notes.append(f"{why}: {left} steps of single decisions are left in stock")
