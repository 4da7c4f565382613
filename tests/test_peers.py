"""`benchmarks.peers` without the peers' packages: the task, what is called right, how parties are run and told of, and
what is made of the figures. The peers here are small scripts that run plain NumPy in place of a protocol."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.peers import __main__ as peers
from benchmarks.peers import running
from benchmarks.peers.running import PEERS, Peer, environment, run_peer
from benchmarks.peers.task import Outcome, Task, compare

from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ConfigError
from hiddenarm.research.bench.report import open_console
from hiddenarm.research.bench.session import make_federation

TASK = Task.of(make_federation(2, 10, 20), 12)
PLAIN = """
import sys, time, numpy as np
from pathlib import Path
task = np.load("task.npz")
rank, ports = int(sys.argv[sys.argv.index("--rank") + 1]), sys.argv[sys.argv.index("--ports") + 1].split(",")
assert len(set(ports)) == 2 and sys.argv[1:3] == ["task.npz", "result.npz"]
{before}
arms, size = task["tags"].shape[1], task["contexts"].shape[1]
inverses, weights, chosen, times = np.repeat(np.eye(size)[None], arms, axis=0), np.zeros((arms, size)), [], [0.0]
for step, x in enumerate(task["contexts"]):
    keys = (weights @ x) * (1 - task["explore"][step]) + task["tags"][step] * 2.0**-16
    arm = int(np.argmax(keys))
    chosen.append(arm)
    times.append(step + 1.0)
    u = inverses[arm] @ x
    v = u / (1 + x @ u)
    inverses[arm] -= np.outer(v, u)
    weights[arm] += v * ((arm == task["labels"][step]) - weights[arm] @ x)
if rank == 0:
    np.savez("result.npz", arms=chosen, times=times + [99.0], inverses=inverses, weights=weights, bytes_sent=1200)
"""
NOBODY = Peer("plain, 2 parties", "plain", 2, "nobody", "all")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the script of the peer `plain` lies; it is right unless something else is written there."""
    monkeypatch.setattr(running, "HERE", tmp_path)
    (tmp_path / "plain.txt").write_text("plain==1.2\n")
    path = tmp_path / "plain_party.py"
    path.write_text(PLAIN.format(before=""))
    return path


def run(seconds: float = 60.0) -> Outcome:
    return run_peer(NOBODY, Path(sys.executable), TASK, seconds)


def learned(task: Task) -> Outcome:
    """What a peer that computes exactly hands back."""
    bandit, arms = PlainBandit(10, 20, task.ridge), []
    for step, context in enumerate(task.contexts):
        arm = bandit.decide(context, bool(task.explore[step]), task.tags[step])
        bandit.learn(context, arm, float(arm == task.labels[step]))
        arms.append(arm)
    return Outcome(np.array(arms), np.arange(len(arms) + 2.0), bandit.inverses, bandit.weights, -1)


class TestTask:
    def test_contexts_are_what_parties_bring_into_the_computation(self) -> None:
        task = Task.of(make_federation(2, 10, 20), 50)
        assert task.contexts.shape == (50, 20)
        assert task.cut == 10
        assert (np.linalg.norm(task.contexts, axis=1) <= 1 + 1e-9).all()
        assert 0 < task.explore.mean() < 0.3
        assert (np.sort(task.tags, axis=1) == np.arange(10)).all()

    def test_a_divisor_lies_where_the_peers_expect_it(self) -> None:
        """They start Newton's iteration for divisors in 1..3."""
        federation = make_federation(2, 10, 20)
        assert federation.largest_quadratic_form == pytest.approx(2, rel=1e-4)

    def test_it_is_written_for_processes_without_hiddenarm(self, tmp_path: Path) -> None:
        TASK.write(tmp_path / "task.npz")
        with np.load(tmp_path / "task.npz") as found:
            assert set(found) == {"contexts", "labels", "explore", "tags", "cut", "ridge", "fraction_bits"}
            assert np.array_equal(found["contexts"], TASK.contexts)


class TestComparison:
    def test_an_exact_result_is_right(self) -> None:
        compared = compare(TASK, learned(TASK))
        assert compared.right
        assert (compared.agreement, compared.inverse_error, compared.weight_error) == (1, 0, 0)

    @pytest.mark.parametrize("name", ["inverses", "weights"])
    def test_a_model_that_is_off_is_wrong(self, name: str) -> None:
        exact = learned(TASK)
        off = getattr(exact, name).copy()
        off[3, 4] += 2e-3
        assert not compare(TASK, replace(exact, **{name: off})).right

    def test_an_arm_that_is_not_the_best_is_wrong_even_if_it_is_learned_well(self) -> None:
        other = replace(TASK, tags=TASK.tags[:, ::-1])
        compared = compare(TASK, learned(other))  # other ties and explored arms, taught as they were
        assert compared.agreement < 1
        assert compared.weight_error == 0
        assert not compared.right

    def test_a_result_of_another_task(self) -> None:
        with pytest.raises(ConfigError, match="another shape"):
            compare(Task.of(make_federation(2, 10, 20), 13), learned(TASK))

    def test_time_is_from_arm_to_arm_without_the_first(self) -> None:
        times = np.array([0, 50, 60, 61, 62, 65, 66, 99.0])
        assert replace(learned(TASK), times=times).us_per_step == 1e6
        assert learned(TASK).bytes_per_step is None


class TestRunning:
    def test_all_parties_are_run_and_what_the_first_found_is_read(self, script: Path) -> None:
        outcome = run()
        assert compare(TASK, outcome).right
        assert outcome.us_per_step == 1e6
        assert outcome.bytes_per_step == 100

    def test_a_party_that_fails_is_told_and_the_others_are_ended(self, script: Path) -> None:
        script.write_text(PLAIN.format(before="assert rank == 0, 'no such key'\ntime.sleep(500)"))
        with pytest.raises(ConfigError, match="plain, 2 parties: party 1 failed: AssertionError: no such key"):
            run()

    def test_a_party_that_hangs_is_ended(self, script: Path) -> None:
        script.write_text(PLAIN.format(before="time.sleep(500)"))
        with pytest.raises(ConfigError, match="took too long"):
            run(seconds=1.0)

    def test_no_result(self, script: Path) -> None:
        script.write_text(PLAIN.format(before="sys.exit(0)"))
        with pytest.raises(ConfigError, match="wrote no result"):
            run()

    def test_an_environment_that_is_there_is_used_again(self, script: Path, tmp_path: Path) -> None:
        place = tmp_path / "environments" / "plain"
        place.mkdir(parents=True)
        (place / "installed.txt").write_text("plain==1.2\n")
        assert environment(NOBODY, tmp_path / "environments") == place / "bin" / "python"

    def test_packages_that_cannot_be_installed(
        self, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PIP_NO_INDEX", "1")  # nothing is looked for elsewhere
        old = tmp_path / "environments" / "plain"
        old.mkdir(parents=True)
        (old / "installed.txt").write_text("plain==1.1\n")
        with pytest.raises(ConfigError, match=r"plain 1\.2 cannot be installed here"):
            environment(NOBODY, tmp_path / "environments")
        assert not (old / "installed.txt").exists()


class TestFigures:
    def test_ours_and_all_peers_take_turns_and_ratios_are_those_of_a_turn(self) -> None:
        told: list[str] = []
        ours, scale = iter([100.0, 200.0, 400.0]), iter([1.0, 2.0, 3.0])
        standing = peers.Standing(NOBODY)

        def outcome(peer: Peer) -> Outcome:
            exact = learned(TASK)
            return replace(exact, times=exact.times * 1e-3 * next(scale))

        times = peers.take_turns([standing], 3, TASK, lambda: next(ours), outcome, told.append)
        assert times == [100.0, 200.0, 400.0]
        assert standing.ratios == pytest.approx([10.0, 10.0, 7.5])
        assert [line.split(",")[0] for line in told[::2]] == ["turn 1 of 3", "turn 2 of 3", "turn 3 of 3"]

    def test_one_wrong_result_is_not_forgotten(self) -> None:
        results = iter([learned(TASK), replace(learned(TASK), weights=np.ones((10, 20))), learned(TASK)])
        standing = peers.Standing(NOBODY)
        peers.take_turns([standing], 3, TASK, lambda: 1.0, lambda peer: next(results), lambda text: None)
        assert standing.worst is not None
        assert not standing.worst.right

    def test_a_peer_that_fails_is_left_out_with_the_reason(self, script: Path) -> None:
        def fail(peer: Peer) -> Outcome:
            raise ConfigError("party 1 failed")

        standing = peers.Standing(NOBODY)
        times = peers.take_turns([standing], 2, TASK, lambda: 1.0, fail, lambda text: None)
        written = peers.result_of(times, [standing], TASK)
        assert json.loads(json.dumps(written)) == written
        (one,) = written["peers"]
        assert (one["why_not"], one["ratio_to_ours"], one["right"]) == ("party 1 failed", None, None)

    def test_what_is_printed(self, script: Path, capsys: pytest.CaptureFixture[str]) -> None:
        standing, absent = peers.Standing(NOBODY), peers.Standing(NOBODY, why_not="no package [for this machine]")
        peers.take_turns([standing], 1, TASK, lambda: 2e6, lambda peer: learned(TASK), lambda text: None)
        peers.print_result(open_console(), peers.result_of([2e6], [standing, absent], TASK))
        printed = capsys.readouterr().out
        assert "not measured: no package [for this machine]" in printed
        assert "equal" in printed
        assert "hides from: nobody" in printed

    def test_every_peer_says_what_it_hides_and_lacks_and_is_pinned(self) -> None:
        assert {peer.framework for peer in PEERS} == {"mpyc", "spu"}
        for peer in PEERS:
            assert peer.hides
            assert peer.lacks
            assert peer.version[0].isdigit()
            assert peer.script.exists()
            assert all("==" in line for line in peer.requirements.read_text().split())
