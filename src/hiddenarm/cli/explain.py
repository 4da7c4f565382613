"""`hiddenarm explain`: a program's rounds, openings and dealt words, as text or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import click

from hiddenarm.bandit.catalogue import (
    ABOUT,
    DECIDE_AMONG,
    DESCEND,
    REFRESH,
    STEP,
    VALUE,
    ProgramId,
    program_text,
    slots_of,
)
from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.federation import PAYLOAD_ARMS, Federation
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.explanation import Array, Explanation, Opened, Stage, explain
from hiddenarm.privacy.mechanisms import NoisyGradient, NoisySums

_TOTAL_EPSILON = _MU = 1.0
"""Costs and openings do not depend on them, but for the dealer's own words."""
_NOISY = {REFRESH: NoisySums(_TOTAL_EPSILON), DESCEND: NoisyGradient(_TOTAL_EPSILON)}
"""What federations have that run these programs."""
_BATCHED = ("decide", *DECIDE_AMONG.values(), "gather", "solve", "repair", "value")
"""Programs that treat several interactions at once."""


def explain_program(
    name: str,
    arms: int,
    features: str,
    parties: int | None,
    count: int,
    policy: Policy,
    listing: bool,
    json_path: Path | None,
) -> None:
    """Print the explanation of a program, or write it."""
    if name not in ABOUT:
        raise ConfigError(f"there is no program {name!r}; the programs are: {', '.join(ABOUT)}")
    federation = Federation(
        arms=arms,
        features=_features(features, parties),
        policy=policy,
        privacy=_NOISY.get(name),
        evaluation=PolicyValues(_MU, "actor", window=count) if name == VALUE else None,
    )
    if (slots := slots_of(ProgramId(name))) is not None and (slots >= arms or federation.decides_by_payloads):
        raise ConfigError(f"{name!r} is for more arms: give --arms {max(slots, PAYLOAD_ARMS) + 1}, or more")
    if name == STEP and not federation.learner.has_step:
        raise ConfigError(f"{STEP!r} is for decisions that are not shuffled: for at most {PAYLOAD_ARMS} arms")
    if count != 1 and name not in _BATCHED:
        raise ConfigError(f"{name!r} treats one interaction at a time: leave --count at 1")
    if not 1 <= count <= federation.max_batch:
        raise ConfigError(f"--count must lie in 1..{federation.max_batch}, got {count}")
    text = program_text(federation, ProgramId(name, count))
    explanation = explain(text, federation.parties)
    if json_path is not None:
        _write(json_path, name, federation, count, explanation)
    click.echo("\n".join(explained(name, federation, count, explanation, listing=listing)))


def _features(given: str, parties: int | None) -> tuple[int, ...]:
    try:
        features = tuple(int(number) for number in given.split(","))
    except ValueError:
        raise ConfigError(f"--features takes whole numbers, one for each party, such as 10,10; got {given!r}") from None
    if parties is None:
        return features
    if len(features) == 1:
        return features * parties
    if len(features) != parties:
        raise ConfigError(f"--features names {len(features)} parties and --parties {parties}")
    return features


def _write(path: Path, name: str, federation: Federation, count: int, explanation: Explanation) -> None:
    report = {
        "program": name,
        "arms": federation.arms,
        "features": federation.features,
        "count": count,
        "policy": str(federation.policy),
        **asdict(explanation),
    }
    try:
        path.write_text(json.dumps(report, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None


def explained(
    name: str, federation: Federation, count: int, explanation: Explanation, *, listing: bool = False
) -> Iterator[str]:
    """The lines of an explanation. With `listing`, also every instruction that party 0 runs."""
    yield f"{name}: {ABOUT[name]}"
    sizes = f"{federation.arms} arms; features of each party: {', '.join(map(str, federation.features))}"
    yield sizes + (f"; {count} interactions at once" if count > 1 else "")
    yield ""
    yield "A party brings (shapes at party 0)"
    yield from (f"  {_named(array)}" for array in explanation.brought)
    rounds = 0
    for stage in explanation.stages:
        rounds += stage.ends_in == "round"
        end = "After the last round" if rounds else "Without a round"
        titles = {"round": f"Round {rounds}", "pause": f"Pause after round {rounds}", "end": end}
        yield ""
        yield titles[stage.ends_in]
        yield from _stage(stage, listing)
        if stage.announced:
            yield "  The result for the actor is known."
    yield ""
    yield from _dealt(explanation)
    yield ""
    yield from _totals(explanation)


def _stage(stage: Stage, listing: bool) -> Iterator[str]:
    if stage.awaited is not None:
        yield f"  waits for  {_named(stage.awaited)}, told to all parties from outside"
    if stage.computed:
        yield "  computes"
        yield from (f"    {line}" for line in stage.computed)
    if stage.opened:
        yield "  opens"
    for why, group in groupby(stage.opened, lambda opened: opened.why):
        yield from (f"    {_opened(opened)}" for opened in group)
        yield f"      safe: {why}"
    if listing:
        yield "  instructions of party 0"
        yield from (f"    {line}" for line in stage.instructions)


def _opened(opened: Opened) -> str:
    return f"{opened.meaning}: {_shape(opened.shape)} of {_plural(opened.bits, 'bit')}, {_sent(opened.sent_bytes)}"


def _dealt(explanation: Explanation) -> Iterator[str]:
    layout = explanation.layout
    yield "Dealt for one run, in words of 8 bytes"
    rows = [(words, purpose) for purpose, words in explanation.dealt.items() if words]
    rows.append((layout.correction_words, "in all; as many are sent, to the last party alone: the others have seeds"))
    yield from (f"  {words:>9,}  {purpose}" for words, purpose in rows)
    seeds = [(f"party {party}", words) for party, words in enumerate(layout.party_words)]
    seeds += [("actor", layout.actor_words), ("rewarder", layout.rewarder_words), ("dealer", layout.coin_words)]
    yield "  expanded from seeds, and never sent: " + ", ".join(f"{role} {words:,}" for role, words in seeds if words)


def _totals(explanation: Explanation) -> Iterator[str]:
    layout = explanation.layout
    sent = tuple(layout.bytes_to_each_peer(party) for party in range(len(layout.party_words)))
    dealer = f"{8 * layout.correction_words:,} bytes from the dealer to the last party"
    yield f"In all: {_plural(layout.rounds, 'round')}; {_sent(sent)} to each other party; {dealer}"


def _named(array: Array) -> str:
    return f"{array.name} {_shape(array.shape)}"


def _shape(shape: Iterable[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _sent(sizes: tuple[int, ...]) -> str:
    """Bytes that the parties send: one number if all send the same."""
    if len(set(sizes)) == 1:
        return f"{_plural(sizes[0], 'byte')} from each party"
    return " and ".join(f"{_plural(size, 'byte')} from party {party}" for party, size in enumerate(sizes) if size)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
