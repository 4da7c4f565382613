"""Real processes, real TLS, real kills, a real full disk: the short version of `make soak`, and what operators meet."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from soak import ORGANISATION, Killer, Soak, step
from supervised import KEYS, Acknowledged, Inspection, Supervised

from deployment import PATIENCE, free_ports
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.status import parse_metrics
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.roles.messages import ACTOR, DEALER
from hiddenarm.store.sqlite import FILE

FEDERATION = Federation(arms=3, features=(2, 2), epsilon=0.2, repair_every=50)
PARTY = Identity(Role.PARTY, 1)


def command(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "hiddenarm", name, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE, check=False)


def wait_for(roles: Supervised, identity: Identity, text: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while text not in roles.log(identity):
        assert time.monotonic() < deadline, f"{identity} does not say {text!r}:\n{roles.log(identity)[-2000:]}"
        time.sleep(0.05)


def test_every_role_is_killed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with Supervised(tmp_path, FEDERATION) as roles:
        soak = Soak(roles, steps=30, kills=6, seed=1)
        soak.run()
        first = soak.done[0]
        assert roles.decide("decide 0", *first.keys) == first.decisions
        assert roles.reward("reward 0", *soak.rewards_of(first)) == first.version
        assert min(roles.kills.values()) >= 1
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(soak.done)
            assert found.check_epochs() >= 1 + soak.reopenings
            assert soak.reopenings >= 2
            answered = sum(len(one.keys) for one in soak.done)
            assert all(records.ledger.count >= answered for records in found.records)


def test_kills_of_a_process_with_three_roles_lose_and_double_no_reward(tmp_path: Path) -> None:
    """Organisation A is party 0, actor and rewarder as one process. What was answered before a kill is answered the
    same after it, and what was not is asked for again."""
    with Supervised(tmp_path, FEDERATION, ORGANISATION) as roles:
        assert roles.leaders == [DEALER, *roles.parties]
        soak = Soak(roles, steps=30, kills=8, seed=2)
        soak.run()
        for number in (0, 14, 29):
            done = soak.done[number]
            assert roles.decide(f"decide {number}", *done.keys) == done.decisions
            assert roles.reward(f"reward {number}", *soak.rewards_of(done)) == done.version
        assert roles.kills[roles.parties[0]] >= 2
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(soak.done)
            assert found.check_epochs() >= 1 + soak.reopenings
            assert soak.reopenings >= 2
        assert "Traceback" not in roles.log(ACTOR)


@pytest.mark.parametrize("moment", [0.0005, 0.01])
def test_a_kill_between_a_request_and_its_answer_is_asked_again_and_counted_once(tmp_path: Path, moment: float) -> None:
    """The process of all three roles dies while its decision, and then while its reward, is under way."""
    with Supervised(tmp_path, FEDERATION, ORGANISATION) as roles:
        done = [step(roles, 0)]
        for number in range(1, 5):
            killer = Killer(roles)
            killer.aim(roles.parties[0], moment * number)
            done.append(step(roles, number))
            killer.rest()
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)


def test_sigterm_at_all_processes_at_once_ends_all_with_0(tmp_path: Path) -> None:
    with Supervised(tmp_path, FEDERATION, ORGANISATION) as roles:
        done = [step(roles, number) for number in range(3)]
        roles.stop(roles.leaders, signal.SIGTERM)
        assert [roles.end_of(leader) for leader in roles.leaders] == [0, 0, 0]
        with Inspection(roles) as found:
            found.check(done)


def stock_of(port: int) -> float:
    """How many single decisions the party with this monitor has material for."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        stock = parse_metrics(answer.read().decode())["hiddenarm_stock_steps"]
    return next(steps for labels, steps in stock if labels == {"program": "decide"})


def test_without_the_dealer_stock_for_sixteen_steps_serves_sixteen(tmp_path: Path) -> None:
    roles, [port] = Supervised(tmp_path, FEDERATION, stock=16), free_ports(1)
    kit = json.loads((roles.kit(PARTY) / "kit.json").read_text())
    (roles.kit(PARTY) / "kit.json").write_text(json.dumps({**kit, "monitor_port": port}))
    with roles:
        for number in range(4):
            roles.decide(f"before {number}", KEYS[number])
        deadline = time.monotonic() + PATIENCE
        while stock_of(port) < 16:  # the last party fills its stock
            assert time.monotonic() < deadline
            time.sleep(0.1)
        roles.stop([DEALER])
        served = 0
        while "decisions" in (answer := roles.processes[ACTOR].ask({"keys": [KEYS[served]]}, PATIENCE)):
            served += 1
        assert served == 16
        assert answer["retry_after"] > 0
        assert "the dealer is away" in answer["error"]
        roles.start(DEALER)
        assert len(roles.decide("after", KEYS[0])) == 1


def test_an_old_backup_is_refused_until_all_parties_agree_to_go_back(tmp_path: Path) -> None:
    with Supervised(tmp_path, FEDERATION) as roles:
        done = [step(roles, number) for number in range(3)]
        assert command("export", roles.kit(PARTY), tmp_path / "copy").returncode == 0
        done += [step(roles, number) for number in range(3, 6)]
        roles.stop([PARTY], signal.SIGTERM)
        assert command("import", roles.kit(PARTY), tmp_path / "copy").returncode == 0
        roles.start(PARTY)
        assert roles.end_of(PARTY) == 7
        assert "party 1 has lost state: it holds 3 lessons" in roles.log(PARTY)
        assert "hiddenarm recover KIT" in roles.log(PARTY)
        wait_for(roles, roles.parties[0], "stale state refused")
        opened = roles.log(roles.parties[0]).count("epoch opened")
        roles.stop([roles.parties[0]], signal.SIGTERM)
        for party in roles.parties:
            agreed = command("recover", roles.kit(party))
            assert agreed.returncode == 0, agreed.stderr
        for party in roles.parties:
            roles.start(party)
        later = step(roles, 6)
        assert roles.log(roles.parties[0]).count("epoch opened") > opened
        roles.stop(roles.members)
        with Inspection(roles) as found:
            log = found.records[1].lessons(0, 100)
            assert [lesson.refused == "" for lesson in log] == [True] * 3 + [False] * 3 + [True]
            assert later.version == 7
            found.check([*done[:3], later])


def ledgers_of(roles: Supervised) -> list[PrivacyLedger]:
    """What the parties have counted; they must be stopped."""
    with Inspection(roles) as found:
        return [records.ledger for records in found.records]


def test_the_privacy_ledger_is_not_rewound_by_copies_nor_by_going_back(tmp_path: Path) -> None:
    """All parties get an old copy, and agree to go back: what was decided since is still counted, at all of them."""
    with Supervised(tmp_path, FEDERATION) as roles:
        for number in range(3):
            step(roles, number)
        for party in roles.parties:
            assert command("export", roles.kit(party), tmp_path / f"copy {party.number}").returncode == 0
        for number in range(3, 7):
            step(roles, number)
        roles.stop(roles.members)
        before = ledgers_of(roles)
        assert min(ledger.count for ledger in before) >= 7
        for party in roles.parties:
            assert command("import", roles.kit(party), tmp_path / f"copy {party.number}").returncode == 0
            assert command("recover", roles.kit(party)).returncode == 0
        assert all(after.covers(then) for after, then in zip(ledgers_of(roles), before, strict=True))
        shutil.rmtree(roles.kit(PARTY) / "state")  # and one loses all: others know
        assert command("import", roles.kit(PARTY), tmp_path / f"copy {PARTY.number}").returncode == 0
        assert command("recover", roles.kit(PARTY)).returncode == 0
        assert not ledgers_of(roles)[PARTY.number].covers(before[0])
        for member in roles.members:
            roles.start(member)
        step(roles, 7)
        roles.stop(roles.members)
        assert all(after.covers(before[0].merged(before[1])) for after in ledgers_of(roles))


def test_refreshes_of_noisy_sums_survive_kills_of_every_role(tmp_path: Path) -> None:
    """All parties hold the same refreshes, each with noise of one epoch, and none was drawn again after it was used."""
    privacy = NoisySums(50.0, first_refresh=3, refresh_ratio=1.5)
    with Supervised(tmp_path, Federation(arms=3, features=(2, 2), epsilon=0.2, privacy=privacy)) as roles:
        soak = Soak(roles, steps=20, kills=5, seed=1)
        soak.run()
        roles.stop(roles.members)
        with Inspection(roles) as found:
            assert found.check_epochs() >= 1 + soak.reopenings
            held = [records._refreshes for records in found.records]
            assert held[0] == held[1]
            assert len(held[0]) >= 4
            assert all(records.releases == 1 for records in found.records)
            assert all(records.ledger.refreshes >= len(held[0]) - 1 for records in found.records)


def test_a_second_instance_and_a_clone_are_refused_while_the_first_goes_on(tmp_path: Path) -> None:
    with Supervised(tmp_path / "kits", FEDERATION) as roles:
        done = [step(roles, 0)]
        second = command("serve", roles.kit(PARTY))
        assert second.returncode == 6
        assert "in use by another instance" in second.stderr
        clone = tmp_path / "clone"
        shutil.copytree(roles.kit(PARTY), clone)
        kit = json.loads((clone / "kit.json").read_text())
        (clone / "kit.json").write_text(json.dumps({**kit, "listen": "127.0.0.2"}))
        line = [sys.executable, "-m", "hiddenarm", "serve", str(clone)]
        with subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            wait_for(roles, roles.parties[0], "party 1 is already connected")
            done += [step(roles, number) for number in range(1, 4)]
            process.kill()
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """A file system of 1 MiB in this place."""
    folder.mkdir(mode=0o700)
    options = ["-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_a_party_clearly_and_with_room_it_goes_on(tmp_path: Path) -> None:
    roles = Supervised(tmp_path / "kits", FEDERATION)
    folder = roles.kit(PARTY) / "state"
    with small_disk(folder), roles:
        done: list[Acknowledged] = []
        while roles.processes[PARTY].popen.poll() is None:
            roles.patience = 10.0 if done else PATIENCE
            with suppress(AssertionError):  # the last step is not answered
                done.append(step(roles, len(done), count=20))
        assert roles.end_of(PARTY) == 6
        assert "the disk is full" in roles.log(PARTY)
        assert "Traceback" not in roles.log(PARTY)
        subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        roles.patience = PATIENCE
        roles.start(PARTY)
        done.append(step(roles, len(done), count=20))
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(done)


def test_a_damaged_record_is_named_and_the_party_does_not_start(tmp_path: Path) -> None:
    with Supervised(tmp_path, FEDERATION) as roles:
        step(roles, 0)
        roles.stop([PARTY], signal.SIGTERM)
        path = roles.kit(PARTY) / "state" / FILE
        whole = bytearray(path.read_bytes())
        at = whole.index(b"decision") + 40
        whole[at] ^= 1
        path.write_bytes(whole)
        roles.start(PARTY)
        assert roles.end_of(PARTY) == 6
        assert "does not match its seal" in roles.log(PARTY)
        assert "Traceback" not in roles.log(PARTY)
