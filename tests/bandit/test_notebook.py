"""What a notebook wants of a federation: many decisions at once, names, seeds, files, and a short description."""

from __future__ import annotations

import doctest
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import hiddenarm.bandit.local
from hiddenarm import ArmTable, EpsilonGreedy, EpsilonSchedule, LocalFederation, NoisySums, read_arms
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.errors import ConfigError, DecisionIdError, FeatureError, InputError, RewardError

ARMS = ("beach", "city", "mountains")


def contexts(count: int, seed: int = 0) -> list[np.ndarray]:
    """Rows of two parties."""
    random = np.random.default_rng(seed)
    return [random.uniform(-0.5, 0.5, (count, features)) for features in (2, 1)]


def weights(federation: LocalFederation) -> np.ndarray:
    clear: np.ndarray = federation._lockstep.reveal_model()[1][0]
    return clear


def plain_weights(rows: list[np.ndarray], arms: list[int], rewards: list[float]) -> np.ndarray:
    twin = PlainBandit(len(ARMS), 3)
    for row, arm, reward in zip(np.hstack(rows), arms, rewards, strict=True):
        twin.learn(row, arm, reward)
    return twin.weights


def test_numbers_of_numpy_are_numbers() -> None:
    numbers: dict[str, Any] = {
        "arms": np.int64(3),
        "features": np.array([2, 1]),
        "epsilon": np.float32(0.5),
        "ridge": np.float32(2),
        "norms": np.array([1.0, 0.5]),
        "fraction_bits": np.int8(20),
        "max_interactions": np.int32(100),
        "max_batch": np.uint8(16),
        "repair_every": np.int64(10),
        "max_pending": np.int64(50),
        "keep_interactions": np.int64(40),
        "seed": np.int64(1),
    }
    given = LocalFederation(**numbers)
    plain = LocalFederation(
        arms=3,
        features=[2, 1],
        epsilon=0.5,
        ridge=2,
        norms=[1.0, 0.5],
        max_interactions=100,
        max_batch=16,
        repair_every=10,
        max_pending=50,
        keep_interactions=40,
        seed=1,
    )
    assert given.federation == plain.federation
    rows = contexts(4)
    eligible: Any = np.array([0, 2])
    chosen = [federation.decide_many(rows, eligible=eligible) for federation in (given, plain)]
    assert [one.arm for one in chosen[0]] == [one.arm for one in chosen[1]]
    changes: dict[str, Any] = {"epsilon": np.float32(0.25), "max_batch": np.int64(32)}
    given.change(**changes)
    assert (given.federation.policy, given.federation.max_batch) == (EpsilonGreedy(0.25), 32)
    options: dict[str, Any] = {"initial": np.float32(0.5), "decay": np.int64(2)}
    assert EpsilonSchedule(**options) == EpsilonSchedule(initial=0.5, decay=2.0)


@pytest.mark.parametrize("wrong", [{"seed": np.float64(1)}, {"arms": np.float64(3)}, {"max_batch": np.bool_(True)}])
def test_numbers_of_numpy_are_checked_like_others(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="whole number"):
        LocalFederation(**{"arms": 3, "features": [2, 1], "epsilon": 0.1, **wrong})


FRAME = pandas.DataFrame({"name": list(ARMS), "sun": [1.0, 0.25, 0.5], "height": [0, 0, 1]})


@pytest.mark.parametrize("arms", [FRAME, FRAME[["sun", "height"]].to_numpy(), [["beach"], ["city"]]])
def test_a_table_is_not_taken_for_names_of_arms(arms: Any) -> None:
    with pytest.raises(ConfigError, match=r"got a table: .* ArmTable.of_frame"):
        LocalFederation(arms=arms, features=[2, 1], epsilon=0.1)


def test_names_of_arms_may_be_a_series_or_an_array() -> None:
    given: list[Any] = [FRAME["name"], FRAME["name"].to_numpy(), np.array(ARMS), pandas.Index(ARMS)]
    for names in given:
        assert LocalFederation(arms=names, features=[2, 1], epsilon=0.1).arm_names == ARMS


def test_a_frame_and_files_make_the_same_table_of_arms(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "arms.csv", index=False)
    FRAME.to_parquet(tmp_path / "arms.parquet")
    table = ArmTable.of_frame(FRAME)
    assert table == ArmTable.of([[1.0, 0.0], [0.25, 0.0], [0.5, 1.0]], ARMS, ["sun", "height"])
    assert read_arms(tmp_path / "arms.csv") == read_arms(str(tmp_path / "arms.parquet")) == table
    renamed = FRAME.rename(columns={"name": "item"}).astype({"height": "Int64"})
    assert ArmTable.of_frame(renamed, name="item") == table
    federation = LocalFederation(arms=table, features=[2, 1], epsilon=0.1)
    assert federation.decide([[0.5, 0.5], [0.1]]).arm_name in ARMS


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (FRAME.rename(columns={"name": "item"}), "'name', the names of the arms, is due; this has the columns item,"),
        (FRAME.assign(sun=["1.0", "0.2", "0.5"]), "'sun' of the data frame has no number in row 0"),
        (FRAME.assign(sun=[1.0, None, 0.5]), "'sun' of the data frame has no number in row 1"),
        (FRAME.assign(height=pandas.array([1, None, 2], dtype="Int64")), "'height' of the data frame has no number"),
        (FRAME.assign(name=["beach", None, "city"]), "row 1 of the data frame has no name"),
        (FRAME.assign(name="beach"), "all of them different"),
        (FRAME.set_axis(["name", "sun", "sun"], axis=1), "the column 'sun' twice"),
        (FRAME[["name"]], "must have a row for each arm"),
        ([[1.0]], "this has the columns of none"),
    ],
)
def test_a_frame_that_is_no_table_of_arms_is_refused(frame: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ArmTable.of_frame(frame)


def test_examples_in_docstrings_hold() -> None:
    found = doctest.testmod(hiddenarm.bandit.local, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 5
    assert not found.failed


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_many_decisions_and_rewards_are_learned_as_the_plain_twin_does(suite: str) -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=1.0, suite=suite, seed=1)
    rows, rewards = contexts(20), [float(n % 3 == 0) for n in range(20)]
    decisions = federation.decide_many(rows)
    federation.reward_many([decision.id for decision in decisions], rewards)
    expected = plain_weights(rows, [decision.arm for decision in decisions], rewards)
    assert np.abs(weights(federation) - expected).max() < (1e-4 if suite == "fast" else 0.05)


def test_rewards_of_decisions_made_apart_may_come_together_and_those_made_together_apart() -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=1.0, seed=1)
    rows, rewards = contexts(9), [0.0, 1.0, 0.5] * 3
    decisions = [federation.decide([row[n] for row in rows]) for n in range(3)]
    decisions += federation.decide_many([row[3:] for row in rows])
    order = [4, 0, 8, 2, 1, 7, 3, 6, 5]
    federation.reward(decisions[order[0]].id, rewards[order[0]])
    federation.reward_many([decisions[n].id for n in order[1:6]], [rewards[n] for n in order[1:6]])
    for n in order[6:]:
        federation.reward(decisions[n].id, rewards[n])
    expected = plain_weights(rows, [decision.arm for decision in decisions], rewards)
    assert np.abs(weights(federation) - expected).max() < 1e-4


def test_more_than_max_batch_at_once() -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5, max_batch=4)
    decisions = federation.decide_many(contexts(10))
    assert len({decision.id for decision in decisions}) == 10
    federation.reward_many([decision.id for decision in decisions], [1.0] * 10)
    assert federation._lockstep.interactions_learned == 10


def test_arms_have_names() -> None:
    federation = LocalFederation(arms=ARMS, features=[2, 1], epsilon=1.0)
    for decision in federation.decide_many(contexts(30)):
        assert decision.arm_name == ARMS[decision.arm]
    chosen = {federation.decide([[0, 0], [0]], eligible=["city", 2]).arm_name for _ in range(30)}
    assert chosen == {"city", "mountains"}
    assert LocalFederation(arms=3, features=[2, 1], epsilon=1.0).decide([[0, 0], [0]]).arm_name == ""


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ("abc", "a list of their names"),
        (["a", "a"], "the same name"),
        (["a", ""], "printable text"),
        (["a", 1], "printable text"),
        (["a", "b\n"], "printable text"),
    ],
)
def test_names_that_are_none_are_refused(arms: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalFederation(arms=arms, features=[2, 1], epsilon=0.1)


def test_data_frames_are_taken() -> None:
    class Frame:
        """As NumPy sees a data frame."""

        def __init__(self, values: np.ndarray) -> None:
            self._values = values

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self._values.astype(dtype or float)

    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    frames: Any = [Frame(values) for values in contexts(5)]
    assert len(federation.decide_many(frames)) == 5


def test_wrong_input_is_refused_and_consumes_nothing() -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    hotel, airline = contexts(4)
    decisions = federation.decide_many([hotel, airline])
    ids, before = [decision.id for decision in decisions], repr(federation)
    with pytest.raises(FeatureError, match="gave 4, 3 rows"):
        federation.decide_many([hotel, airline[:3]])
    with pytest.raises(FeatureError, match=r"party 1 must give rows of 1 features.*shape \(4,\)"):
        federation.decide_many([hotel, airline[:, 0]])
    with pytest.raises(InputError, match="no arm 'beach'"):
        federation.decide([[0, 0], [0]], eligible=["beach"])
    with pytest.raises(InputError, match="4 ids but 3 rewards"):
        federation.reward_many(ids, [1.0] * 3)
    with pytest.raises(RewardError):
        federation.reward_many(ids, [1.0, 1.0, 1.0, 2.0])
    with pytest.raises(DecisionIdError, match="listed twice"):
        federation.reward_many([ids[0], ids[0]], [1.0, 1.0])
    with pytest.raises(DecisionIdError, match="never made"):
        federation.reward(federation._ids.id_of(5), 1.0)
    assert repr(federation) == before
    federation.reward_many(ids, [1.0] * 4)
    with pytest.raises(DecisionIdError, match="rewarded before"):
        federation.reward(ids[2], 1.0)


def test_rewards_beyond_what_the_model_holds_are_refused_as_a_whole() -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5, max_interactions=10_000, max_batch=4)
    federation._lockstep.schedule = federation._lockstep.schedule.resumed(0, 0, 9_995)
    ids = [decision.id for decision in federation.decide_many(contexts(6))]
    with pytest.raises(InputError, match="max_interactions"):
        federation.reward_many(ids, [1.0] * 6)
    assert federation._lockstep.interactions_learned == 0


# Seeds


def run(federation: LocalFederation, steps: int) -> list[int]:
    arms = []
    for row in range(steps):
        decision = federation.decide([values[row] for values in contexts(steps)])
        federation.reward(decision.id, float(decision.arm == 0))
        arms.append(decision.arm)
    return arms


def test_runs_of_one_seed_are_the_same() -> None:
    make = [LocalFederation(arms=3, features=[2, 1], epsilon=0.5, seed=seed) for seed in (1, 1, 2)]
    first, second, third = (run(federation, 40) for federation in make)
    assert first == second != third
    with pytest.raises(ConfigError, match="seed must be a whole number"):
        LocalFederation(arms=3, features=[2, 1], epsilon=0.5, seed=0.5)  # type: ignore[arg-type]


# Files


@pytest.mark.parametrize("options", [{"epsilon": 0.3}, {"policy": EpsilonSchedule(0.9, 0.1, 50)}], ids=str)
def test_a_saved_federation_goes_on(tmp_path: Path, options: dict[str, Any]) -> None:
    federation = LocalFederation(arms=ARMS, features=[2, 1], ridge=0.5, repair_every=7, seed=3, **options)
    run(federation, 20)
    waiting = federation.decide([[0.1, 0.2], [0.3]])
    several = federation.decide_many(contexts(3))
    federation.reward(several[1].id, 1.0)
    path = tmp_path / "travel.hiddenarm"
    federation.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = LocalFederation.load(path)
    assert repr(loaded) == repr(federation)
    assert loaded.federation == federation.federation
    for one in (federation, loaded):
        one.reward_many([several[0].id, waiting.id], [1.0, 0.0])
        with pytest.raises(DecisionIdError, match="rewarded before"):
            one.reward(several[1].id, 1.0)
    assert run(loaded, 10) == run(federation, 10), "with a seed all comes as if it had not been saved"
    assert (weights(loaded) == weights(federation)).all()


def test_a_file_may_be_loaded_twice_and_no_mask_comes_twice(tmp_path: Path) -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    run(federation, 5)
    waiting = federation.decide([[0.1, 0.2], [0.3]])
    federation.save(tmp_path / "file")
    copies = [federation, *(LocalFederation.load(tmp_path / "file") for _ in range(2))]
    masks = []
    for one in copies:
        [kept] = one._lockstep._pending.values()
        assert kept[0].masked_arm is not None
        words = [kept[0].masked_arm, *(mask for own in kept for mask in (own.arm_mask, own.reward_mask))]
        masks += [array.tobytes() for array in words]
    assert len(set(masks)) == len(masks)
    for one in copies:
        one.reward(waiting.id, 1.0)
    for one, other in pairwise(copies):
        assert np.abs(weights(one) - weights(other)).max() < 1e-4
    assert len({one.decide([[0.1, 0.2], [0.3]]).id for one in copies}) == 1, "ids go on, and are names of one history"


def test_noisy_sums_are_saved(tmp_path: Path) -> None:
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5, privacy=NoisySums(4.0, first_refresh=10), seed=1)
    run(federation, 15)
    federation.save(tmp_path / "file")
    loaded = LocalFederation.load(tmp_path / "file")
    assert run(loaded, 10) == run(federation, 10)


def test_a_flipped_byte_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    """Not every byte of an archive means something."""
    path, refused = tmp_path / "file", 0
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    federation.save(path)
    content = path.read_bytes()
    places = range(0, len(content), len(content) // 60)
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 255
        path.write_bytes(flipped)
        try:
            loaded = LocalFederation.load(path)
        except ConfigError:
            refused += 1
            continue
        assert loaded.federation == federation.federation
        for one, other in zip(loaded._lockstep.states, federation._lockstep.states, strict=True):
            assert all((one[name] == other[name]).all() for name in other)
    assert refused > len(places) // 2


@pytest.mark.parametrize("damage", ["text", "cut", "missing"])
def test_what_is_no_saved_federation_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "file"
    federation = LocalFederation(arms=3, features=[2, 1], epsilon=0.5)
    federation.save(path)
    content = path.read_bytes()
    changed = {"text": b"not an archive", "cut": content[: len(content) // 2]}
    path.write_bytes(changed.get(damage, b""))
    if damage == "missing":
        path.unlink()
    with pytest.raises(ConfigError, match="cannot read" if damage == "missing" else "not a federation"):
        LocalFederation.load(path)
    with pytest.raises(ConfigError, match="cannot write"):
        federation.save(tmp_path / "there is no such folder" / "file")


# Showing


def test_what_it_shows_holds_no_secret() -> None:
    federation = LocalFederation(arms=["<b>beach</b>", "city"], features=[2, 1], epsilon=0.25)
    run(federation, 3)
    federation.decide([[0, 0], [0]])
    shown = "arms=2, features=[2, 1], policy='epsilon-greedy:epsilon=0.25', decisions=4, rewards=3, pending=1"
    assert repr(federation) == f"LocalFederation({shown})"
    assert "<th>pending</th><td>1</td>" in federation._repr_html_()
    assert "beach" not in federation._repr_html_()
