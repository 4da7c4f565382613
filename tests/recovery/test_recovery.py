"""Real processes, real TLS, real kills: the short version of `make soak`."""

from __future__ import annotations

from pathlib import Path

from supervised import KEYS, Acknowledged, Inspection, Supervised

from hiddenarm.bandit.federation import Federation

FEDERATION = Federation(arms=3, features=(2, 2), epsilon=0.2, repair_every=50)


def step(roles: Supervised, number: int, count: int = 1, after: int = 0) -> Acknowledged:
    """Decide for some keys and give the rewards."""
    keys = [KEYS[(number + position) % len(KEYS)] for position in range(count)]
    decisions = roles.decide(f"decide {number}", *keys, after=after)
    rewards = [float(arm == len(key) % 3) for key, (_, arm) in zip(keys, decisions, strict=True)]
    given = [(identifier, reward) for (identifier, _), reward in zip(decisions, rewards, strict=True)]
    return Acknowledged(keys, decisions, rewards, roles.reward(f"reward {number}", *given))


def test_every_role_is_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    done = []
    with Supervised(tmp_path, FEDERATION) as roles:
        for number in range(24):
            done.append(step(roles, number))
            if number % 4 == 3:
                roles.kill(roles.members[number // 4 % len(roles.members)])
        assert len(roles.decide("decide 3", KEYS[3])) == 1
        roles.stop(roles.members)
        assert sum(roles.kills.values()) == 6
        with Inspection(roles) as found:
            found.check(done)
            assert found.check_epochs() >= 5
            assert found.checked >= 16
