"""A kit that is damaged, foreign or open to others is refused with one clear line, before anything is sent."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from role_processes import (
    check_message,
    ends,
    federation_of,
    kit_of,
    local_roles,
    log_of,
    members,
    paper_federation_of,
    serve,
)

from hiddenarm.bandit.evaluation import PolicyValues
from hiddenarm.bandit.federation import DEFAULT_MAX_BATCH, SUITES, Federation
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import ConfigError, FeatureError, HiddenArmError, IdentityError
from hiddenarm.net.certificates import Authority
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import decode
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.features import StoredFeatures
from hiddenarm.service.kit import Kit, KitFederation, KitFile, write_features
from hiddenarm.service.process import Endpoint

PARTY0, PARTY1 = Identity(Role.PARTY, 0), Identity(Role.PARTY, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Kits of all roles of a federation of two; nothing runs."""
    for listener in local_roles(tmp_path, federation_of(2))._listeners.values():
        listener.close()
    return tmp_path


def edit(kit: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((kit / "kit.json").read_text())
    change(content)
    (kit / "kit.json").write_text(json.dumps(content))


def test_a_kit_holds_every_number_of_a_federation_and_the_hello_compares_it(folder: Path) -> None:
    """`max_batch` stands in the kit itself, a bound of scores only in earlier kits, arm features as a table."""
    names = {field.name for field in fields(Federation)}
    held = names - {"max_batch", "arm_features"} | {"epsilon", "score_bound", "arm_table"}
    assert KitFederation.model_fields.keys() == held
    assert KitFile.model_fields["max_batch"].default == DEFAULT_MAX_BATCH
    given: dict[str, Any] = {"arms": 3, "features": (2, 2), "epsilon": 0.1}
    for suite in SUITES:
        file = KitFederation(**given, suite=suite)
        assert file.federation(DEFAULT_MAX_BATCH) == Federation(**given, suite=suite)
        assert KitFederation.of(file.federation(DEFAULT_MAX_BATCH)).federation(7).arms == 3
    hello = Kit.read(kit_of(folder, PARTY0)).hello
    only_if_given = {"newton_iterations", "reward_slot", "default_reward", "retired", "expires_after", "expired_reward"}
    assert hello.keys() >= names - only_if_given - {"evaluation", "keep_interactions", "arm_features"} | {"epsilon"}
    assert (hello["suite"], hello["policy"], hello["epsilon"]) == ("fast", "epsilon-greedy", 0.2)


def test_a_kit_holds_reward_slots_and_the_hello_has_them_where_there_are_any() -> None:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.1, reward_slot=60, default_reward=0.25)
    file = KitFederation.of(federation)
    assert (file.reward_slot, file.default_reward) == (60, 0.25)
    assert file.federation(DEFAULT_MAX_BATCH) == federation
    assert not {"reward_slot", "default_reward"} & Federation(arms=3, features=(2, 2), epsilon=0.1).terms.keys()


def test_a_kit_holds_how_many_interactions_are_kept() -> None:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.1, keep_interactions=500)
    assert KitFederation.of(federation).federation(DEFAULT_MAX_BATCH) == federation
    assert federation.terms["keep_interactions"] == 500
    with pytest.raises(ConfigError, match="keep_interactions must lie in 0"):
        Federation(arms=3, features=(2, 2), epsilon=0.1, keep_interactions=-1)
    values = PolicyValues(0.2, "rewarder", window=300)
    with pytest.raises(ConfigError, match="keep_interactions must be at least 556, got 500"):
        Federation(arms=3, features=(2, 2), epsilon=0.1, evaluation=values, keep_interactions=500)
    Federation(arms=3, features=(2, 2), epsilon=0.1, evaluation=values, keep_interactions=556)


def test_a_kit_holds_an_evaluation_and_the_hello_has_it_where_there_is_one() -> None:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.1, evaluation=PolicyValues(0.2, "rewarder", window=300))
    file = KitFederation.of(federation)
    assert file.evaluation == {"mu": 0.2, "opened_to": "rewarder", "window": 300, "policies": "greedy,uniform"}
    assert KitFederation.model_validate_json(file.model_dump_json(exclude_none=True)).federation(256) == federation
    assert federation.terms["evaluation"] == "mu=0.2,opened_to=rewarder,window=300,policies=greedy,uniform"
    assert "evaluation" not in Federation(arms=3, features=(2, 2), epsilon=0.1).terms


def test_a_kit_holds_a_policy_and_the_hello_has_its_options_under_their_names() -> None:
    federation = Federation(arms=3, features=(2, 2), policy=EpsilonSchedule(0.5, decay=100))
    file = KitFederation.of(federation)
    assert file.policy == {"name": "epsilon-schedule", "initial": 0.5, "final": 0.01, "decay": 100.0}
    assert KitFederation.model_validate_json(file.model_dump_json(exclude_none=True)).federation(256) == federation
    with pytest.raises(ConfigError, match="no option 'inital'; did you mean initial"):
        KitFederation(arms=3, features=(2, 2), policy={"name": "epsilon-schedule", "inital": 0.5}).federation(256)
    with pytest.raises(ConfigError, match="give one of the two"):
        KitFederation(arms=3, features=(2, 2), epsilon=0.1, policy={"name": "epsilon-schedule"}).federation(256)


def test_a_kit_of_the_papers_suite_that_an_earlier_version_wrote_is_read() -> None:
    """It holds numbers that had no meaning there, always the same ones; others were meant, and are rejected."""
    given: dict[str, Any] = {"suite": "paper", "arms": 3, "features": [2, 2], "epsilon": 0.1, "ridge": 1.0}
    written = {"max_interactions": 0, "reciprocal_bits": 8, "repair_every": 10_000, "newton_iterations": 5}
    federation = KitFederation.model_validate({**given, **written}).federation(256)
    assert federation == Federation(arms=3, features=(2, 2), epsilon=0.1, suite="paper", newton_iterations=5)
    with pytest.raises(ConfigError, match="repair_every belongs to suite fast"):
        KitFederation.model_validate({**given, **written, "repair_every": 7}).federation(256)


def test_kits_of_all_roles_are_read_back(folder: Path) -> None:
    for member in members(federation_of(2)):
        kit = Kit.read(kit_of(folder, member))
        assert kit.identity == member
        assert kit.federation == federation_of(2)
    features = Kit.read(kit_of(folder, PARTY0)).features().encoded(federation_of(2), 0)
    assert len(features.words("user 3")) == 3


def test_a_kit_says_what_a_missing_key_means_at_each_party(folder: Path) -> None:
    kits = [kit_of(folder, PARTY0), kit_of(folder, PARTY1)]
    assert Kit.read(kits[0]).hello["missing_keys"] == ("refuse", "refuse")
    for kit in kits:
        edit(kit, lambda content: content.update(missing_keys=["refuse", "zeros"]))
    tables = [Kit.read(kit).features() for kit in kits]
    assert len(tables[0]) == len(tables[1])
    refusing, filling = (table.encoded(federation_of(2), party) for party, table in enumerate(tables))
    assert filling.words("nobody").tolist() == [0] * len(filling.words("user 3"))
    assert filling.words("user 3").any()
    with pytest.raises(FeatureError, match="no features"):
        refusing.words("nobody")


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_a_kit_says_the_suite(tmp_path: Path, suite: str) -> None:
    federation = federation_of(2) if suite == "fast" else paper_federation_of(2, newton_iterations=5)
    for listener in local_roles(tmp_path, federation)._listeners.values():
        listener.close()
    kit = kit_of(tmp_path, PARTY0)
    written = json.loads((kit / "kit.json").read_text())["federation"]
    assert written["suite"] == suite
    assert ("newton_iterations" in written) == (suite == "paper")
    assert Kit.read(kit).federation == federation
    assert type(Kit.read(kit).federation) is type(federation)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(stok=3), ["stok", "did you mean stock?"]),
        (lambda c: c["federation"].update(epsilonn=0.2), ["federation.epsilonn", "did you mean epsilon?"]),
        (lambda c: c["addresses"]["dealer"].update(prt=1), ["addresses.dealer.prt", "did you mean port?"]),
        (lambda c: c.update(xyzzy=1), ["xyzzy is not a known key"]),
        (lambda c: c.pop("role"), ["role", "required"]),
        (lambda c: c["federation"].pop("epsilon"), ["federation.epsilon", "required"]),
        (lambda c: c.update(role="auditor"), ["role", "party"]),
        (lambda c: c.update(number=2), ["party 2", "federation has 2"]),
        (lambda c: c.update(number=-1), ["-1"]),
        (lambda c: c.update(stock=0), ["stock"]),
        (lambda c: c.update(stock=10**6), ["stock"]),
        (lambda c: c["addresses"]["dealer"].update(port=70000), ["port"]),
        (lambda c: c["addresses"]["dealer"].update(port=0), ["port"]),
        (lambda c: c["federation"].update(epsilon=1.5), ["epsilon"]),
        (lambda c: c["federation"].update(epsilon=float("nan")), ["NaN"]),
        (lambda c: c["federation"].update(fraction_bits=25), ["fraction_bits"]),
        (lambda c: c["federation"].update(arms=1), ["arms"]),
        (lambda c: c["federation"].update(suite="slow"), ["slow", "fast and paper"]),
        (lambda c: c["federation"].update(newton_iterations=7), ["newton_iterations", "suite paper"]),
        (lambda c: c["federation"].update(suite="paper", newton_iterations=21), ["newton_iterations", "0..20"]),
        (lambda c: c.update(missing_keys=["zeros"]), ["missing_keys must have an entry for each of 2 parties, got 1"]),
        (lambda c: c.update(missing_keys=["zeros", "ones"]), ["missing_keys.1", "'refuse' or 'zeros'"]),
        (lambda c: c.update(organisations=["a", "b", "c"]), ["organisations must have an entry for each of 2 parties"]),
        (lambda c: c["federation"].update(suit="paper"), ["federation.suit", "did you mean suite?"]),
    ],
)
def test_a_configuration_that_does_not_hold(
    folder: Path, change: Callable[[dict[str, Any]], object], words: list[str]
) -> None:
    kit = kit_of(folder, PARTY0)
    edit(kit, change)
    with pytest.raises(HiddenArmError) as caught:
        Kit.read(kit)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"name": NaN}', b"[" * 100_000, b'"kit"'], ids=repr
)
def test_a_kit_that_is_not_json(folder: Path, content: bytes) -> None:
    path = kit_of(folder, PARTY0) / "kit.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"kit\.json|NaN"):
        Kit.read(path.parent)


def test_a_kit_without_its_file(folder: Path) -> None:
    kit = kit_of(folder, PARTY0)
    (kit / "kit.json").unlink()
    ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "kit.json cannot be read: No such file")


def test_an_unknown_key_names_the_nearest_one_on_the_command_line(folder: Path) -> None:
    kit = kit_of(folder, PARTY0)
    edit(kit, lambda c: c["federation"].update(epsilonn=0.2))
    ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "did you mean epsilon?")


def test_a_key_file_that_others_may_read(folder: Path) -> None:
    kit = kit_of(folder, ACTOR)
    (kit / "key.pem").chmod(0o644)
    ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "key.pem is open to group or others")


def test_the_certificate_of_another_party(folder: Path) -> None:
    kit = kit_of(folder, PARTY1)
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(kit_of(folder, PARTY0) / name, kit / name)
    ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "certificate.pem is that of party 0, but kit.json is for party 1")


@pytest.mark.parametrize("content", [b"", b"not a certificate", None], ids=["empty", "text", "missing"])
def test_a_certificate_that_is_none(folder: Path, content: bytes | None) -> None:
    path = kit_of(folder, PARTY1) / "certificate.pem"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"certificate\.pem"):
        Kit.read(path.parent)


def test_a_key_that_does_not_fit_the_certificate(folder: Path) -> None:
    kit = kit_of(folder, PARTY1)
    shutil.copy(kit_of(folder, PARTY0) / "key.pem", kit / "key.pem")
    with pytest.raises(IdentityError, match=r"key\.pem"):
        Endpoint(Kit.read(kit))


def test_a_certificate_of_another_authority_is_refused_at_the_door(tmp_path: Path) -> None:
    """The actor shows a certificate that the federation's authority never signed."""
    roles = local_roles(tmp_path, federation_of(2))
    kit = kit_of(tmp_path, ACTOR)
    certificate, key = Authority.create("somebody else").issue(ACTOR)
    (kit / "certificate.pem").write_bytes(certificate)
    (kit / "key.pem").write_bytes(key)
    with roles:
        assert ends(roles, [ACTOR]) == {ACTOR: 4}
        assert roles.process(DEALER).poll() is None
    check_message(log_of(tmp_path, ACTOR))


@pytest.mark.parametrize("odd", [PARTY1, REWARDER], ids=str)
def test_another_configuration_is_refused_at_the_hello_naming_the_field(tmp_path: Path, odd: Identity) -> None:
    roles = local_roles(tmp_path, federation_of(2))
    edit(kit_of(tmp_path, odd), lambda content: content["federation"].update(epsilon=0.3))
    with roles:
        assert ends(roles, [odd]) == {odd: 4}
    log = log_of(tmp_path, odd)
    check_message(log)
    # Whoever meets first ends the federation: the odd one is refused by those it dials, or refuses those that dial it
    # and then misses the others. Either way its log names the field and both values.
    assert "field 'epsilon' differs" in log
    assert {"0.2", "0.3"} <= set(re.findall(r"0\.[23]", log))


_NO_FAST_NUMBERS = dict.fromkeys(("max_interactions", "reciprocal_bits", "repair_every"))


@pytest.mark.parametrize(
    ("change", "values"),
    [
        ({"suite": "paper", **_NO_FAST_NUMBERS}, ["field 'suite' differs", '"fast"', '"paper"']),
        ({"newton_iterations": 3}, ["field 'newton_iterations' differs", "5", "3"]),
    ],
    ids=["suite", "iterations"],
)
def test_another_suite_is_refused_at_the_hello(tmp_path: Path, change: dict[str, Any], values: list[str]) -> None:
    federation = federation_of(2) if "suite" in change else paper_federation_of(2, newton_iterations=5)
    roles = local_roles(tmp_path, federation)
    edit(kit_of(tmp_path, PARTY1), lambda content: content["federation"].update(change))
    with roles:
        assert ends(roles, [PARTY1]) == {PARTY1: 4}
    log = log_of(tmp_path, PARTY1).replace('\\"', '"')
    check_message(log)
    assert all(value in log for value in values)


def test_an_address_in_use(folder: Path) -> None:
    kit = kit_of(folder, DEALER)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        edit(kit, lambda content: content["addresses"]["dealer"].update(port=taken.getsockname()[1]))
        ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "cannot listen at 127.0.0.1", "in use")


def test_a_descriptor_that_is_no_socket(folder: Path) -> None:
    ended = serve(kit_of(folder, DEALER), "--listen-fd", "77")
    assert ended.code == 2
    check_message(ended.stderr, "--listen-fd 77")


def test_a_member_without_an_address(folder: Path) -> None:
    kit = kit_of(folder, PARTY1)
    edit(kit, lambda content: content["addresses"].pop("dealer"))
    ended = serve(kit)
    assert ended.code == 2
    check_message(ended.stderr, "no address for dealer")


@pytest.mark.parametrize("content", [b"", bytes(31), bytes(33)])
def test_an_epoch_key_of_the_wrong_length(folder: Path, content: bytes) -> None:
    path = kit_of(folder, DEALER) / "epoch.key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="32 bytes"):
        Kit.read(path.parent).take_epoch_key()


class TestFeatures:
    def test_come_back_by_key(self, tmp_path: Path) -> None:
        write_features(tmp_path, ["a", "é"], np.array([[1.0, 2.0], [3.0, 4.0]]))
        federation = Federation(arms=2, features=(2, 1), epsilon=0.1)
        features = StoredFeatures.read(tmp_path / "features.npz", 2).encoded(federation, 0)
        assert decode(features.words("é"), federation.fraction_bits) == pytest.approx([0.6, 0.8], abs=2**-20)
        with pytest.raises(FeatureError, match="no features"):
            features.words("b")

    @pytest.mark.parametrize(
        "arrays",
        [
            {"keys": np.array(["a"])},
            {"values": np.zeros((1, 2))},
            {"keys": np.array(["a"]), "values": np.zeros((1, 3))},
            {"keys": np.array(["a"]), "values": np.zeros((2, 2))},
            {"keys": np.array(["a"]), "values": np.zeros(2)},
            {"keys": np.array(["a", "b"]), "values": np.array([["x", "y"], ["z", "w"]])},
            {"keys": np.array([["a"]]), "values": np.zeros((1, 2))},
            {"keys": np.array("a"), "values": np.zeros((1, 2))},
            {"keys": np.array(["a", "a"]), "values": np.zeros((2, 2))},
            {"keys": np.array(["a"], dtype=object), "values": np.zeros((1, 2))},
        ],
        ids=lambda arrays: "-".join(f"{name}{array.shape}" for name, array in arrays.items()),
    )
    def test_that_are_none(self, tmp_path: Path, arrays: dict[str, Any]) -> None:
        np.savez(tmp_path / "features.npz", **arrays)
        with pytest.raises(ConfigError, match=r"features\.npz"):
            StoredFeatures.read(tmp_path / "features.npz", 2)

    @pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 not a zip", b"text"])
    def test_that_are_no_file_of_arrays(self, tmp_path: Path, content: bytes | None) -> None:
        path = tmp_path / "features.npz"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"features\.npz"):
            StoredFeatures.read(path, 2)
