"""An experiment: its setting, its jobs and its findings: figures, tables, and verdicts on the claims of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeVar

from hiddenarm.research.experiments.jobs import Job, ResultStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure


Scale = Literal["full", "quick", "tiny"]
"""full: the paper's sizes. quick: minutes, on digits. tiny: the tests' size, too small to conclude anything."""
Data = Literal["mnist", "digits"]
Suite = Literal["fast", "paper"]

T = TypeVar("T")

SUITE_NAMES: Mapping[Suite, str] = {"fast": "fast suite", "paper": "paper's suite"}
"""What figures and tables call them."""

EPSILONS = (0.01, 0.02, 0.05, 0.1)
"""The four of the learning curves and of the attack. The paper does not print its values."""


@dataclass(frozen=True)
class Setting:
    """The same for all experiments."""

    scale: Scale
    data: Data
    suites: tuple[Suite, ...] = ("fast", "paper")

    def sized(self, sizes: Mapping[Scale, T]) -> T:
        """The entry for this scale."""
        return sizes[self.scale]

    @property
    def sweep(self) -> int:
        """Steps of one sweep through the training set, or as many as the scale allows."""
        if self.scale == "tiny":
            return 60
        return 60_000 if self.data == "mnist" and self.scale == "full" else 1_500


Cell = str | int | float | None
Verdict = Literal["holds", "differs", "not checked"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be checked, and what was measured. `explanation` is needed where it differs, and
    says what is missing where this run cannot check it."""

    sentence: str
    place: str
    measured: str
    verdict: Verdict
    explanation: str = ""

    def __post_init__(self) -> None:
        if self.verdict != "holds" and not self.explanation:
            raise ValueError(f"say why this is not so: {self.sentence}")


@dataclass(frozen=True)
class Table:
    """Numbers under names; written as CSV and JSON, and shown on the page if it is short."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    shown: bool = True


@dataclass(frozen=True)
class Picture:
    """A figure, and the line below it."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Findings:
    """What follows from the results of an experiment's jobs."""

    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()
    remarks: Sequence[str] = field(default_factory=list)


class Experiment(Protocol):
    """One experiment of the paper."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""

    @property
    def title(self) -> str:
        """What it is about."""

    @property
    def place(self) -> str:
        """Where it is in the paper."""

    def jobs(self, setting: Setting) -> Sequence[Job]:
        """All work that it needs."""

    def conclude(self, setting: Setting, kept: ResultStore) -> Findings:
        """What follows, once all jobs are done."""


def judged(condition: bool) -> Verdict:
    """Holds or differs."""
    return "holds" if condition else "differs"
