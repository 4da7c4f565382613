"""The picture is written in the format of its suffix, or the reason it cannot be is clear."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.research.plots import check_plot_path, moving_mean, plot_learning_curves, running_mean

MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def coins(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(2, size=shape).astype(np.float64)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".PNG"])
def test_format_follows_the_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    plot_learning_curves(path, coins(300), coins(300), title="digits", subtitle="two parties")
    assert path.read_bytes().startswith(MAGIC[suffix.lower()])


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 80), (4, 5000)])
def test_any_length_and_replicates(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tmp_path / "run.png"
    plot_learning_curves(path, coins(*shape), coins(*shape), title="run")
    assert path.stat().st_size > 10_000


def test_the_legend_tells_the_final_means(tmp_path: Path) -> None:
    """An SVG keeps each string it draws in a comment."""
    path = tmp_path / "run.svg"
    private = np.array([[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    plot_learning_curves(path, private, np.ones((2, 4)), title="a title", subtitle="a subtitle", window=2)
    drawn = path.read_text()
    for words in (
        "private (0.5000 ± 0.2500)",
        "plain (1.0000 ± 0.0000)",
        "a title",
        "a subtitle",
        "last 2 steps",
    ):
        assert words in drawn


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run\.jpg: end it in \.png, \.svg, \.pdf"):
        check_plot_path(tmp_path / "run.jpg")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no folder"):
        plot_learning_curves(tmp_path / "none" / "run.png", coins(9), coins(9), title="run")


def test_unwritable_file(tmp_path: Path) -> None:
    path = tmp_path / "run.png"
    path.mkdir()
    with pytest.raises(ConfigError, match=r"cannot write .*run\.png"):
        plot_learning_curves(path, coins(9), coins(9), title="run")


@pytest.mark.parametrize(("private", "plain"), [((9,), (8,)), ((2, 9), (3, 9)), ((0,), (0,)), ((1, 1, 9), (9,))])
def test_rewards_that_do_not_compare(tmp_path: Path, private: tuple[int, ...], plain: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="rewards"):
        plot_learning_curves(tmp_path / "run.png", coins(*private), coins(*plain), title="run")


@pytest.mark.parametrize("window", [0, 10])
def test_window_out_of_range(tmp_path: Path, window: int) -> None:
    with pytest.raises(ConfigError, match=f"over {window} steps does not fit a run of 9"):
        plot_learning_curves(tmp_path / "run.png", coins(9), coins(9), title="run", window=window)


def test_means_against_the_definition() -> None:
    rewards = coins(2, 40)
    np.testing.assert_allclose(running_mean(rewards)[:, 12], rewards[:, :13].mean(axis=1))
    for window in (1, 7, 40):
        moving = moving_mean(rewards, window)
        assert np.isnan(moving[:, : window - 1]).all()
        expected = np.lib.stride_tricks.sliding_window_view(rewards, window, axis=1).mean(axis=2)
        np.testing.assert_allclose(moving[:, window - 1 :], expected, atol=1e-12)


def test_global_state_is_left_alone(tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot_learning_curves(tmp_path / "run.png", coins(9), coins(9), title="run")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.processes
def test_import_is_light() -> None:
    modules = "hiddenarm.research.plots, hiddenarm.research.progress, hiddenarm.research.data.load"
    program = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert {"matplotlib", "sklearn", "scipy"}.isdisjoint(loaded.split())
