"""What must stay secret appears in no log and on no screen, and lies in files that only their owner may read."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from role_processes import EPOCH_KEY, KEYS, ends, federation_of, kit_of, log_of, members

from hiddenarm.errors import FeatureError
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.ring.words import encode
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER

CANARY = 0.31830988618379067
REWARD = 0.2718281828459045
CANARY_KEY = "canary-user-4711"


def spellings(value: bytes) -> list[str]:
    return [value.hex(), str(value)[2:-1], base64.b64encode(value).decode(), str(list(value))[1:-1]]


def secrets() -> list[str]:
    """Known secret values, in every spelling a log might have."""
    seeds = Seeds(EPOCH_KEY)
    keys = [EPOCH_KEY, seeds.party(0), seeds.party(1), seeds.actor(), seeds.rewarder(), seeds.coins()]
    words = [int(encode([value], 20)[0]) for value in (CANARY, REWARD)]
    return [
        *(spelling for key in keys for spelling in spellings(key)),
        *(str(value)[:7] for value in (CANARY, REWARD)),
        *(text for word in words for text in (str(word), f"{word:x}")),
    ]


@pytest.mark.parametrize("end", ["goodbye", "kill"])
def test_no_secret_reaches_a_log(tmp_path: Path, end: str) -> None:
    """Good and refused requests, a canary among the features, a graceful end or a death."""
    federation = federation_of(2)
    contexts = np.full((len(KEYS), federation.dimension), CANARY)
    keys = [CANARY_KEY, *KEYS[1:]]
    contexts[1, 4] = np.nan
    roles = LocalRoles(tmp_path / "kits", federation, keys, contexts, EPOCH_KEY)
    answers = []
    with roles:
        identifier, _ = roles.decide(CANARY_KEY, 0)
        for key in (KEYS[1], "nobody"):
            with pytest.raises(FeatureError) as caught:
                roles.decide(key, 0)
            answers.append(str(caught.value))
        roles.reward(identifier, REWARD)
        for odd in (-REWARD, 1 + REWARD, REWARD):
            with pytest.raises(FeatureError) as caught:
                roles.reward(identifier, odd)
            answers.append(str(caught.value))
        if end == "goodbye":
            roles.stop()
        else:
            roles.process(Identity(Role.PARTY, 0)).kill()
            ends(roles, members(federation))
    said = "\n".join([*answers, *(log_of(tmp_path, member) for member in members(federation))])
    for kit in (tmp_path / "kits").iterdir():
        report = kit / "report.json"
        said += report.read_text() if report.exists() else ""
    assert "Traceback" not in said
    assert "feature 1 of party 1 is not a finite number" in said
    for secret in secrets():
        assert secret not in said
    assert CANARY_KEY not in said


def test_the_search_would_find_a_secret() -> None:
    """The spellings searched for are those that careless code would print."""
    seeds = Seeds(EPOCH_KEY)
    for careless in (f"x={CANARY}", f"seed {seeds.party(1).hex()}", f"{EPOCH_KEY!r}", f"{np.float64(REWARD)!r}"):
        assert any(secret in careless for secret in secrets())


def test_private_files_are_private(tmp_path: Path) -> None:
    federation = federation_of(2)
    contexts = np.zeros((len(KEYS), federation.dimension))
    for listener in LocalRoles(tmp_path / "kits", federation, KEYS, contexts, EPOCH_KEY)._listeners.values():
        listener.close()
    private = [kit_of(tmp_path, member) / "key.pem" for member in members(federation)]
    private += [kit_of(tmp_path, Identity(Role.PARTY, number)) / "features.npz" for number in range(2)]
    private.append(kit_of(tmp_path, DEALER) / "epoch.key")
    assert {path.stat().st_mode & 0o777 for path in private} == {0o600}
    assert {kit_of(tmp_path, member).stat().st_mode & 0o777 for member in members(federation)} == {0o700}
    for client in (ACTOR, REWARDER):
        assert not (kit_of(tmp_path, client) / "features.npz").exists()
        assert not (kit_of(tmp_path, client) / "epoch.key").exists()
