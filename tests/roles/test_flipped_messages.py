"""Every message of a party, changed on its way: whoever gets it names the sender in a typed error, and nobody goes on
with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from memory_network import KEYS, Link, MemoryNetwork, party, small_federation

from hiddenarm.errors import HiddenArmError
from hiddenarm.net.frames import Frame, LinkKind
from hiddenarm.net.identity import Role
from hiddenarm.roles.messages import ACTOR, DEALER, END_OF_ARMS, REWARDER, Kind

Change = Callable[[Frame], Frame]

MESSAGES: list[tuple[Link, Kind]] = [
    ((party(0), party(1)), Kind.ROUND),
    ((party(1), party(0)), Kind.ROUND),
    ((party(0), ACTOR), Kind.PAYLOADS),
    ((party(1), ACTOR), Kind.PAYLOADS),
    ((party(0), ACTOR), Kind.LEARNED),
    ((party(0), REWARDER), Kind.LEARNED),
    ((party(1), REWARDER), Kind.LEARNED),
    ((party(1), DEALER), Kind.WANT),
    ((DEALER, party(1)), Kind.CORRECTIONS),
    ((DEALER, party(0)), Kind.OPEN),
    ((DEALER, party(1)), Kind.OPEN),
    ((DEALER, ACTOR), Kind.OPEN),
    ((DEALER, REWARDER), Kind.OPEN),
    ((party(0), party(1)), Kind.OPEN),
    ((party(0), party(1)), Kind.PREPARED),
    ((party(0), ACTOR), Kind.ACTIVE),
    ((party(1), REWARDER), Kind.ACTIVE),
    ((ACTOR, party(0)), Kind.DECIDE),
    ((ACTOR, party(1)), Kind.ARMS),
    ((REWARDER, party(1)), Kind.REWARD),
]
CHANGES: dict[str, Change] = {
    "a byte less": lambda frame: frame._replace(payload=frame.payload[:-1]),
    "a byte more": lambda frame: frame._replace(payload=frame.payload + b"\0"),
    "another kind": lambda frame: frame._replace(kind=Kind.WANT if frame.kind is not Kind.WANT else Kind.PAYLOADS),
    "an unknown program": lambda frame: frame._replace(program=frame.program ^ 0x80),
}
EMPTY = {Kind.LEARNED}
"""They have no payload: the link refuses any, as its cap is 0."""
WITHOUT_PROGRAM = {Kind.LEARNED, Kind.PREPARED, Kind.ACTIVE, Kind.OPEN, Kind.REWARD}
"""Their header's program says nothing."""


def can_be(kind: Kind, what: str) -> bool:
    lost = kind is Kind.OPEN and what == "another kind"  # before its OPEN, what a peer sends is of an earlier attempt
    return not (lost or (kind in EMPTY and "byte" in what) or (kind in WITHOUT_PROGRAM and "program" in what))


CASES = [(link, kind, what) for link, kind in MESSAGES for what in CHANGES if can_be(kind, what)]


def changed_on_its_way(network: MemoryNetwork, link: Link, kind: Kind, change: Change) -> bool:
    """Deliver until all is done, with the first frame of a kind on a link changed; whether there was one. Of OPEN, all
    are changed: the first ones may be of attempts that come to nothing."""
    changed: list[Frame] = []
    while True:
        queue = network.links[link]
        for at, frame in enumerate(queue):
            due = not changed or (kind is Kind.OPEN and not any(frame is one for one in changed))
            if due and frame is not None and frame.kind is kind and frame != END_OF_ARMS:
                sent = change(frame)
                queue[at] = sent
                changed.append(sent)
        if not network.deliver():
            return bool(changed)


@pytest.mark.parametrize(("link", "kind", "what"), CASES, ids=lambda value: getattr(value, "name", None) or str(value))
def test_a_changed_message_is_refused(link: Link, kind: Kind, what: str) -> None:
    network = MemoryNetwork(small_federation(2))
    with pytest.raises(HiddenArmError) as caught:
        run_a_step(network, link, kind, CHANGES[what])
    assert str(caught.value)


def run_a_step(network: MemoryNetwork, link: Link, kind: Kind, change: Change) -> None:
    """Everybody meets, a decision, its reward; with one message changed."""
    changed = changed_on_its_way(network, link, kind, change)
    network.ask(KEYS[0])
    changed = changed or changed_on_its_way(network, link, kind, change)
    network.settle()
    network.teach(network.decisions[0].id, 1.0)
    changed = changed or changed_on_its_way(network, link, kind, change)
    network.settle()
    assert changed, "there was no such message"
    assert network.lessons[0] is None
    network.check_against_references()  # what was not refused must have changed nothing


def test_all_kinds_that_roles_send_are_here() -> None:
    own = {LinkKind.HELLO, LinkKind.PROBE, LinkKind.PING, LinkKind.PONG, LinkKind.ABORT, LinkKind.BYE}
    elsewhere = {Kind.REFUSED, Kind.ONE_HOT, Kind.COMMITTED, Kind.ARMS_KEPT, Kind.SLOT, Kind.UNLEARN, Kind.VALUES}
    assert {kind for _, kind in MESSAGES} == set(Kind) - own - elsewhere
    assert all(sender.role is not Role.ACTOR or receiver.role is Role.PARTY for (sender, receiver), _ in MESSAGES)
