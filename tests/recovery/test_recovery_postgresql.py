"""The kills of `test_recovery`, with all state in PostgreSQL; and kills of its server."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from soak import ORGANISATION, Killer, Soak, step
from supervised import Acknowledged, Inspection, Supervised
from test_recovery import FEDERATION, PARTY, command, ledgers_of

from deployment import PATIENCE
from hiddenarm.errors import StoreLostError
from hiddenarm.roles.messages import ACTOR
from postgres_server import PostgresServer


def revive(roles: Supervised) -> None:
    """Start those again whose patience with the server was over, as a service manager does."""
    time.sleep(0.5)
    for leader in roles.leaders:
        if (code := roles.processes[leader].popen.poll()) is not None:
            assert code == StoreLostError.exit_code
            roles.start(leader)


def test_every_role_and_the_server_are_killed_and_nothing_acknowledged_is_lost(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Supervised(tmp_path, FEDERATION, store=postgres.new_database()) as roles:
        soak = Soak(roles, steps=24, kills=6, seed=1)
        soak.run()
        for number in range(24, 30):
            if number % 3 == 0:
                postgres.kill()
                postgres.start()
                revive(roles)
            soak.done.append(step(roles, number))
        first = soak.done[0]
        assert roles.decide("decide 0", *first.keys) == first.decisions
        assert roles.reward("reward 0", *soak.rewards_of(first)) == first.version
        assert min(roles.kills.values()) >= 1
        roles.stop(roles.members)
        assert not (roles.kit(PARTY) / "state").exists()
        with Inspection(roles) as found:
            found.check(soak.done)
            assert found.check_epochs() >= 1 + soak.reopenings
            answered = sum(len(one.keys) for one in soak.done)
            assert all(records.ledger.count >= answered for records in found.records)
        assert all("Traceback" not in roles.log(member) for member in roles.members)


@pytest.mark.skipif("HIDDENARM_SOAK" not in os.environ, reason="for make soak")
def test_kills_of_a_process_with_three_roles_lose_and_double_no_reward(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Supervised(tmp_path, FEDERATION, ORGANISATION, store=postgres.new_database()) as roles:
        done = [step(roles, 0)]
        for number in range(1, 5):
            killer = Killer(roles)
            killer.aim(roles.parties[0], 0.004 * number)
            done.append(step(roles, number))
            killer.rest()
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)


def test_a_server_that_stays_away_ends_the_roles_clearly_and_they_go_on_when_it_is_back(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Supervised(tmp_path, FEDERATION, store=postgres.new_database()) as roles:
        done: list[Acknowledged] = [step(roles, 0)]
        postgres.kill()
        roles.patience = 3.0
        with pytest.raises(AssertionError, match="has not answered"):  # nothing is acknowledged that may not last
            step(roles, 1)
        assert roles.end_of(ACTOR) == StoreLostError.exit_code
        assert "it was tried for 10 seconds" in roles.log(ACTOR)
        postgres.start()
        roles.patience = PATIENCE
        revive(roles)
        done.append(step(roles, 1))
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)
        assert all("Traceback" not in roles.log(member) for member in roles.members)


def test_a_second_instance_is_refused_and_a_role_moves_from_a_folder_to_postgresql(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    with Supervised(tmp_path / "kits", FEDERATION) as roles:
        done = [step(roles, number) for number in range(3)]
        roles.stop([PARTY], signal.SIGTERM)
        kit = roles.kit(PARTY)
        assert command("export", kit, tmp_path / "copy").returncode == 0
        written = json.loads((kit / "kit.json").read_text())
        (kit / "kit.json").write_text(json.dumps({**written, "store": url}))
        assert "there is none yet" in command("check", kit, "--offline").stdout
        assert command("import", kit, tmp_path / "copy").returncode == 0
        assert "is that of this configuration" in command("check", kit, "--offline").stdout
        roles.start(PARTY)
        done += [step(roles, number) for number in range(3, 6)]
        second = command("serve", kit)
        assert second.returncode == 6
        assert "in use by another instance" in second.stderr
        assert command("export", kit, tmp_path / "later").returncode == 0
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)


def test_an_old_copy_is_refused_until_all_agree_and_counts_what_was_released(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    with Supervised(tmp_path / "kits", FEDERATION, store=postgres.new_database()) as roles:
        for number in range(2):
            step(roles, number)
        assert command("export", roles.kit(PARTY), tmp_path / "copy").returncode == 0
        for number in range(2, 5):
            step(roles, number)
        roles.stop([PARTY], signal.SIGTERM)
        assert command("import", roles.kit(PARTY), tmp_path / "copy").returncode == 0
        roles.start(PARTY)
        assert roles.end_of(PARTY) == 7
        roles.stop([*roles.parties[:1]], signal.SIGTERM)
        before = ledgers_of(roles)
        for party in roles.parties:
            assert command("recover", roles.kit(party)).returncode == 0
        for party in roles.parties:
            roles.start(party)
        step(roles, 5)
        roles.stop(roles.members)
        assert all(after.covers(then) for after, then in zip(ledgers_of(roles), before, strict=True))
