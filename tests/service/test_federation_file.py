"""A federation in TOML: what it becomes, and how each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from federation_files import TRAVEL, write_federation_file
from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.federation_file import FederationFile

HOTEL, AIRLINE = Identity(Role.PARTY, 0), Identity(Role.PARTY, 1)


def test_what_a_federation_file_becomes(tmp_path: Path) -> None:
    federation_file = FederationFile.read(write_federation_file(tmp_path))
    assert federation_file.members == [DEALER, HOTEL, AIRLINE, ACTOR, REWARDER]
    assert [federation_file.folder(member) for member in federation_file.members] == [
        "dealer",
        "hotel",
        "airline",
        "actor",
        "rewarder",
    ]
    files = {member: federation_file.kit_file(member) for member in federation_file.members}
    federation = files[HOTEL].build_federation()
    assert (federation.arms, federation.features, federation.norms) == (4, (3, 2), (1.0, 0.5))
    assert files[AIRLINE].feature_names == ("miles", "delay")
    assert files[ACTOR].arm_names == ("beach", "city", "mountains", "cruise")
    assert files[HOTEL].arm_names == files[DEALER].feature_names == ()
    assert {name: at.port for name, at in files[ACTOR].addresses.items()} == {
        "dealer": 7402,
        "party 0": 7400,
        "party 1": 7401,
    }
    assert len({file.monitor_port for file in files.values()}) == len(files)
    assert len({file.names for file in files.values()}) == 1
    assert not any(file.durable for file in files.values())
    assert {file.missing_keys for file in files.values()} == {("refuse", "refuse")}
    assert {file.organisations for file in files.values()} == {("hotel", "airline")}


def test_every_kit_knows_what_a_missing_key_means_at_each_party(tmp_path: Path) -> None:
    federation_file = FederationFile.read(
        write_federation_file(tmp_path, "norm = 0.5", 'norm = 0.5\nmissing_key = "zeros"')
    )
    assert {federation_file.kit_file(member).missing_keys for member in federation_file.members} == {
        ("refuse", "zeros")
    }
    with pytest.raises(ConfigError, match=r"line 16: party\[1\]\.missing_key: .*'refuse' or 'zeros'; for example"):
        FederationFile.read(write_federation_file(tmp_path, "norm = 0.5", 'norm = 0.5\nmissing_key = "ones"'))


def test_state_lasts_unless_the_federation_file_says_otherwise(tmp_path: Path) -> None:
    federation_file = FederationFile.read(
        write_federation_file(tmp_path, "durable = false\n", "checkpoint_every = 10\n")
    )
    files = [federation_file.kit_file(member) for member in federation_file.members]
    assert {(file.durable, file.checkpoint_every) for file in files} == {(True, 10)}


def test_options_reach_the_kits(tmp_path: Path) -> None:
    text = 'max_batch = 50\nfraction_bits = 18\nsuite = "paper"\n' + TRAVEL.replace(
        "port = 7401", "port = 7401\nstock=8"
    )
    path = tmp_path / "federation.toml"
    dealer = 'monitor_port = 9000\nmonitor_listen = "10.0.0.3"\nlisten = "0.0.0.0"\n'
    path.write_text(f"{text}{dealer}[actor]\nmonitor_port = 9001\n")
    federation_file = FederationFile.read(path)
    files = {member: federation_file.kit_file(member) for member in federation_file.members}
    assert {file.max_batch for file in files.values()} == {50}
    assert {(file.federation.suite, file.federation.fraction_bits) for file in files.values()} == {("paper", 18)}
    assert (files[AIRLINE].stock, files[HOTEL].stock) == (8, 256)
    assert (files[DEALER].monitor_port, files[ACTOR].monitor_port) == (9000, 9001)
    assert (files[DEALER].monitor_listen, files[ACTOR].monitor_listen) == ("10.0.0.3", "127.0.0.1")
    assert (files[DEALER].listen, files[HOTEL].listen) == ("0.0.0.0", None)


@pytest.mark.parametrize(
    ("old", "new"), [('"stars"', '"rooms"'), ('"beach", "city"', '"city", "beach"'), ('"hotel"', '"inn"')]
)
def test_every_name_counts_in_the_hello(tmp_path: Path, old: str, new: str) -> None:
    one = FederationFile.read(write_federation_file(tmp_path)).kit_file(DEALER).names
    assert FederationFile.read(write_federation_file(tmp_path, old, new)).kit_file(DEALER).names != one


SCHEDULED = '[policy]\nname = "epsilon-schedule"\ninitial = 0.5\n'


def test_a_federation_file_may_say_which_values_are_opened(tmp_path: Path) -> None:
    path = write_federation_file(tmp_path)
    whole = path.read_text()
    path.write_text(f'{whole}\n[evaluation]\nmu = 0.2\nopened_to = "actor"\npolicies = "uniform"\n')
    federation_file = FederationFile.read(path)
    values = [federation_file.kit_file(member).build_federation().evaluation for member in federation_file.members]
    assert values == [PolicyValues(0.2, "actor", policies="uniform")] * 5
    lockstep_only = 'mu = 0.2\nopened_to = "actor"\nestimator = "low-variance"', "evaluated in lockstep only"
    for table, word in (
        ("mu = 0.2", "needs opened_to"),
        ('mu = -1\nopened_to = "actor"', "mu must be a positive"),
        lockstep_only,
    ):
        path.write_text(f"{whole}\n[evaluation]\n{table}\n")
        with pytest.raises(ConfigError, match=rf"line \d+: .*{word}.*; for example: \[evaluation\]"):
            FederationFile.read(path)


def test_a_federation_file_may_name_a_policy(tmp_path: Path) -> None:
    path = write_federation_file(tmp_path, "epsilon = 0.1\n", "")
    path.write_text(f"{path.read_text()}\n{SCHEDULED}")
    federation_file = FederationFile.read(path)
    policy = EpsilonSchedule(initial=0.5)
    assert [federation_file.kit_file(member).build_federation().policy for member in federation_file.members] == [
        policy
    ] * 5


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("initial", "inital", ["line 23: policy epsilon-schedule has no option 'inital'; did you mean initial?"]),
        ("epsilon-schedule", "epsilon-shedule", ["line 23: there is no policy 'epsilon-shedule'; did you mean"]),
        ("0.5", "1.5", ["line 23: initial must lie in [0, 1]", "for example: [policy] with name"]),
        ("0.5", "[0.5]", ["policy.initial"]),
        ('name = "epsilon-schedule"', "", ["the policy's name is missing; known are bonus, epsilon-greedy"]),
    ],
)
def test_a_mistake_in_a_policy_is_told(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    path = write_federation_file(tmp_path, "epsilon = 0.1\n", "")
    path.write_text(f"{path.read_text()}\n{SCHEDULED.replace(old, new)}")
    with pytest.raises(ConfigError) as caught:
        FederationFile.read(path)
    assert str(caught.value).startswith(str(path))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epsilon = 0.1", "epsilon = 0.1.2", ["is not TOML", "line 3"]),
        ("epsilon = 0.1\n", "", ["epsilon is missing", "for example: epsilon = 0.1"]),
        ("epsilon = 0.1", 'epsilon = "0.1"', ["line 3: epsilon: input should be a valid number"]),
        ("epsilon = 0.1", "epsilon = 1.5", ["epsilon must lie in [0, 1]"]),
        ("epsilon = 0.1", "epsilon = nan", ["epsilon must lie in [0, 1]"]),
        ("epsilon = 0.1", "epsilon = 0.1\nrigde = 1.0", ["line 4: rigde is not a known key; did you mean ridge?"]),
        ("epsilon = 0.1", 'epsilon = 0.1\nsuite = "slow"', ["suite", "fast"]),
        ('arms = ["beach", "city", "mountains", "cruise"]', 'arms = ["beach"]', ["line 2: arms: ", "for example"]),
        ('"mountains"', '"city"', ["arms: 'city' stands there twice"]),
        ('"mountains"', '"a,b"', ["line 2: arms[2]: must be 1 to 64 letters, without commas"]),
        ("port = 7401", "port = 74010", ["line 17: party[1].port: ", "less than or equal to 65535", "port = 7400"]),
        ("port = 7401", 'port = "7401"', ["line 17: party[1].port: input should be a valid integer"]),
        ("port = 7401\n", "", ["line 12: party[1].port is missing"]),
        ("port = 7401", "prot = 7401", ["line 12: party[1].port is missing"]),
        ("port = 7401", "port = 7401\nnrom = 1.0", ["line 18: party[1].nrom is not a known key; did you mean norm?"]),
        ("port = 7401", "port = 7400", ["addresses: '127.0.0.1:7400' stands there twice"]),
        ("norm = 0.5", "norm = -1.0", ["the norm bound of party 1 must lie in"]),
        ('"airline"', '"hotel"', ["names of roles: 'hotel' stands there twice"]),
        ('"airline"', '"dealer"', ["'dealer' stands there twice"]),
        ('"airline"', '"authority"', ["'authority' stands there twice"]),
        ('"airline"', '"../airline"', ["line 13: party[1].name: must be 1 to 32 small letters"]),
        ('["miles", "delay"]', "[]", ["line 14: party[1].features: "]),
        ('["miles", "delay"]', '["miles", "miles"]', ["the features of party 1 (airline): 'miles' stands there twice"]),
        ('[dealer]\nhost = "127.0.0.1"\nport = 7402', "", ["dealer is missing", "for example: [dealer] with host"]),
        ('[dealer]\nhost = "127.0.0.1"', '[dealer]\nhost = "a host"', ["line 20: dealer.host: must be the name"]),
        ("port = 7402", "port = 7402\nstock = 3", ["dealer.stock is not a known key"]),
        ("port = 7401", "port = 7401\nstock = 3", ["stock", "greater than or equal to 4"]),
        ("epsilon = 0.1", "epsilon = 0.1\nfraction_bits = 25", ["fraction_bits"]),
        ("[dealer]", f"{SCHEDULED}\n[dealer]", ["epsilon is short for", "give one of the two"]),
        ("epsilon = 0.1", 'epsilon = 0.1\nsuite = "paper"\nrepair_every = 5', ["repair_every belongs to suite fast"]),
    ],
)
def test_each_mistake_is_told_with_its_place(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    path = write_federation_file(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        FederationFile.read(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"[[party]]\n" * 10, b"party = 3"])
def test_files_that_are_no_federation_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "federation.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"federation\.toml"):
        FederationFile.read(path)


def test_a_federation_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        FederationFile.read(tmp_path / "nowhere.toml")


def test_a_single_party_is_no_federation(tmp_path: Path) -> None:
    head, _, rest = TRAVEL.partition('[[party]]\nname = "airline"')
    path = tmp_path / "federation.toml"
    path.write_text(head + rest[rest.index("[dealer]") :])
    with pytest.raises(ConfigError, match="party: list should have at least 2 items"):
        FederationFile.read(path)
