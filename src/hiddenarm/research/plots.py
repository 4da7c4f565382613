"""The picture of a run: how the private and the plain learner earn, step by step.

The two curves coincide when all is well, so the plain one is wide and pale and the private one thin, on top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.ledger import VACUOUS_FROM, Statement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]

SUFFIXES = (".png", ".svg", ".pdf")
POINTS = 1500


@dataclass(frozen=True)
class Pen:
    """How one learner is drawn."""

    label: str
    colour: str
    width: float
    alpha: float


# Orange and blue of Okabe and Ito's palette: told apart with any colour vision, and in grey by their width.
PLAIN = Pen("plain", "#E69F00", 5.0, 0.55)
PRIVATE = Pen("private", "#0072B2", 1.3, 1.0)


def plot_learning_curves(
    path: Path,
    private_rewards: ArrayLike,
    plain_rewards: ArrayLike,
    *,
    title: str,
    subtitle: str = "",
    window: int | None = None,
) -> None:
    """Write the picture of rewards [T], or of R replicates [R, T], to `path`: PNG, SVG or PDF by its suffix.

    Left, the mean over the last `window` steps (a fortieth of the run unless told); right, the mean since the
    start. Replicates show as their mean and a band of one standard deviation.
    """
    check_plot_path(path)
    private, plain = _replicates(private_rewards), _replicates(plain_rewards)
    if private.shape != plain.shape:
        raise ConfigError(f"the learners' runs do not compare: {private.shape} and {plain.shape} rewards")
    window = _window(window, private.shape[1])
    figure = _empty_figure(title, subtitle)
    recent, since_start = figure.subplots(1, 2, sharex=True, sharey=True)
    for rewards, pen in ((plain, PLAIN), (private, PRIVATE)):
        _draw(recent, moving_mean(rewards, window), pen)
        _draw(since_start, running_mean(rewards), pen)
    _dress(recent, f"Mean of the last {window:,} steps", private.shape[1])
    _dress(since_start, "Mean since the start", private.shape[1])
    recent.set_ylabel("reward per step (0 to 1)")
    _add_legend(since_start, replicates=len(private))
    save_picture(figure, path)


def plot_losses(path: Path, counts: Sequence[int], statements: Sequence[Statement]) -> None:
    """Write the picture of what decisions tell about one row against their number, both on logarithmic axes."""
    figure = _empty_figure("What all decisions together tell about one row", f"privacy {statements[-1].mechanism}")
    axes = figure.subplots()
    for relation, label, pen in (
        ("own_action", "its own action alone", PLAIN),
        ("dropped", "was it learned, from all other actions", PRIVATE),
    ):
        losses = [found[relation].epsilon for found in statements]
        axes.plot(counts, losses, color=pen.colour, linewidth=2.0, label=f"{label} ({losses[-1]:,.4g})")
    axes.axhline(VACUOUS_FROM, color="0.5", linewidth=0.8, linestyle="--", label="vacuous from here on")
    axes.set(xscale="log", yscale="log", xlabel="decisions", ylabel=f"epsilon at delta {statements[-1].delta:g}")
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(framealpha=1, edgecolor="none")
    save_picture(figure, path)


def check_plot_path(path: Path) -> None:
    """Refuse a path that no picture can be written to: worth asking before a long run."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"cannot tell the picture's format from {path}: end it in {', '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {path.parent}")


def running_mean(rewards: FloatArray) -> FloatArray:
    """The mean of the first 1, 2, ... T rewards along the last axis."""
    mean: FloatArray = np.cumsum(rewards, axis=-1) / np.arange(1, rewards.shape[-1] + 1)
    return mean


def moving_mean(rewards: FloatArray, window: int) -> FloatArray:
    """The mean of the last `window` rewards at each step; not a number until there are that many."""
    sums = np.cumsum(rewards, axis=-1)
    sums[..., window:] -= sums[..., :-window].copy()
    sums[..., : window - 1] = np.nan
    mean: FloatArray = sums / window
    return mean


def _replicates(rewards: ArrayLike) -> FloatArray:
    """Rewards as [R, T], with R = 1 for a single run."""
    array = np.atleast_2d(np.asarray(rewards, dtype=np.float64))
    if array.ndim != 2 or array.size == 0:
        raise ConfigError("rewards to plot are one row for each run, with at least one step")
    return array


def _window(window: int | None, steps: int) -> int:
    if window is None:
        return max(1, min(steps, max(50, steps // 40)))
    if not 1 <= window <= steps:
        raise ConfigError(f"a moving mean over {window} steps does not fit a run of {steps}")
    return window


def _empty_figure(title: str, subtitle: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(9.6, 4.4), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.12))
    FigureCanvasAgg(figure)
    reserved = f"{title}\n" if subtitle else title
    figure.suptitle(reserved, x=0.012, ha="left", fontsize=13, fontweight="bold", linespacing=1.5)
    figure.text(0.012, 0.92, subtitle, va="top", fontsize=10, color="0.35")
    return figure


def _draw(axes: Axes, curves: FloatArray, pen: Pen) -> None:
    """The mean of `curves` [R, T], at no more than POINTS steps, and a band if there are several."""
    total = curves.shape[1]
    places = np.unique(np.linspace(0, total - 1, min(total, POINTS)).round().astype(np.int64))
    mean, deviation = curves[:, places].mean(axis=0), curves[:, places].std(axis=0)
    steps = places + 1
    if len(curves) > 1:
        axes.fill_between(steps, mean - deviation, mean + deviation, color=pen.colour, alpha=0.2, linewidth=0)
    spread = f" ± {deviation[-1]:.4f}" if len(curves) > 1 else ""
    (line,) = axes.plot(steps, mean, color=pen.colour, linewidth=pen.width, alpha=pen.alpha)
    line.set(label=f"{pen.label} ({mean[-1]:.4f}{spread})", solid_capstyle="butt")


def _dress(axes: Axes, title: str, steps: int) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("step (decisions made)")
    axes.set_xlim(0, steps)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.set_ylim(0.0, 1.0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _add_legend(axes: Axes, replicates: int) -> None:
    runs = f" ± standard deviation of {replicates} runs" if replicates > 1 else " reward"
    lines = axes.get_lines()[::-1]
    axes.legend(handles=lines, title=f"learner (mean{runs})", alignment="left", framealpha=1, edgecolor="none")


def save_picture(figure: Figure, path: Path) -> None:
    """Write it; the suffix says how."""
    try:
        figure.savefig(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
