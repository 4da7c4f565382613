"""What differs between the protocol suites once their programs are run: the model's form, what is brought to a
decision, and how the actor learns the arm. A federation says by its type which suite runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit import paper_suite, programs
from hiddenarm.bandit.audit import reveal_model
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.paper_suite import NEWTON_ITERATIONS, PaperFederation, check_iterations
from hiddenarm.bandit.programs import Decided, Model, own_words
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.shuffle import permutation_of
from hiddenarm.ring.words import Floats, Words

SUITES = ("fast", "paper")


class Suite(Protocol):
    """A suite, for one federation."""

    name: str
    terms: str
    """All that the roles must agree on besides the public numbers of a `Federation`, in words."""
    solves: bool
    """Whether many interactions can be learned at once, and the model solved anew from sums."""

    def initial_model(self, party: int, replicates: int) -> Model:
        """A party's share of the model before anything was learned."""

    def brought(self, model: Model) -> list[Words]:
        """What a party brings to a decision before its own features."""

    def arms(self, actor_words: Words, decided: Sequence[Decided]) -> NDArray[np.int64]:
        """The arms [replicates, count], as the actor finds them: from its own words, and from what the parties send.

        `actor_words` [replicates, count, words] are those of the actor's seed."""

    def reveal(self, models: Sequence[Model]) -> tuple[Floats, Floats]:
        """Inverses and weights in the clear, for whoever holds all shares."""


class FastSuite:
    """Masked evaluation (`mpc`), the default."""

    name = terms = "fast"
    solves = True

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def initial_model(self, party: int, replicates: int) -> Model:
        return programs.initial_model(self._federation, party, replicates)

    def brought(self, model: Model) -> list[Words]:
        return own_words(model.weights)

    def arms(self, actor_words: Words, decided: Sequence[Decided]) -> NDArray[np.int64]:
        slot = decided[0].slot
        assert slot is not None
        return np.take_along_axis(permutation_of(actor_words), slot[..., None].astype(np.intp), axis=-1)[..., 0]

    def reveal(self, models: Sequence[Model]) -> tuple[Floats, Floats]:
        return reveal_model(self._federation, models)


class PaperSuite:
    """The paper's protocol (`paper`). The biases take the place of the weights in a model."""

    name = "paper"
    solves = False

    def __init__(self, federation: PaperFederation) -> None:
        self._federation = federation
        self.terms = f"{self.name}, newton_iterations {federation.newton_iterations}"

    def initial_model(self, party: int, replicates: int) -> Model:
        return paper_suite.initial_model(self._federation, party, replicates)

    def brought(self, model: Model) -> list[Words]:
        return own_words(model.inverses, model.weights)

    def arms(self, actor_words: Words, decided: Sequence[Decided]) -> NDArray[np.int64]:
        return paper_suite.chosen_arms(decided)

    def reveal(self, models: Sequence[Model]) -> tuple[Floats, Floats]:
        return paper_suite.reveal_model(self._federation, models)


def suite_of(federation: Federation) -> Suite:
    """The suite that runs a federation."""
    return PaperSuite(federation) if isinstance(federation, PaperFederation) else FastSuite(federation)


def check_suite(suite: str, newton_iterations: int | None = None) -> None:
    """Refuse a suite that there is not, and an option that it does not have."""
    if suite not in SUITES:
        raise ConfigError(f"there is no suite {suite!r}; there are {' and '.join(SUITES)}")
    if newton_iterations is not None:
        if suite != "paper":
            raise ConfigError("newton_iterations belong to suite paper: choose it, or leave them out")
        check_iterations(newton_iterations)


def federation_in(suite: str, newton_iterations: int | None = None, **numbers: Any) -> Federation:
    """A federation that the suite of this name runs; `numbers` are those of a `Federation`."""
    check_suite(suite, newton_iterations)
    if suite == "paper":
        iterations = NEWTON_ITERATIONS if newton_iterations is None else newton_iterations
        return PaperFederation(newton_iterations=iterations, **numbers)
    return Federation(**numbers)
