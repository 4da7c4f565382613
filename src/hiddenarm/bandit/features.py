"""What may enter the computation: finite features of the declared number and norm, rewards in [0, 1].

Features are clipped by the same operations whatever their values are: what is within the norm is multiplied by one.
Others see when a party sends its first words, and would otherwise see from it whose features exceed the norm. Only
features that are refused take another way.
"""

from __future__ import annotations

from math import isfinite, sqrt

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FeatureError, RewardError
from hiddenarm.ring.words import Floats, Words, encode


def checked_features(values: ArrayLike, federation: Federation, party: int) -> Words:
    """One party's features as words, clipped to its declared norm. Leading axes are replicates."""
    return encode(clipped_features(values, federation, party), federation.context_bits)


def checked_row(values: ArrayLike, federation: Federation, party: int) -> Words:
    """The same for the features of one context, without leading axes: a party does this while others wait for it."""
    row = as_floats(values, party)
    if row.ndim != 1:
        raise FeatureError(f"features of party {party} must be a list of numbers, got an array of shape {row.shape}")
    _check_count(row, federation, party)
    square = float(np.vdot(row, row))  # `dot` would warn of what is refused below
    if not isfinite(square):
        raise FeatureError(why_unusable(row, party))
    norm = federation.norms[party]
    return encode(row, federation.context_bits, norm / max(norm, sqrt(square)))


def clipped_features(values: ArrayLike, federation: Federation, party: int) -> Floats:
    """One party's features, checked, and scaled down to its declared norm where they exceed it."""
    features = as_floats(values, party)
    _check_count(features, federation, party)
    squares = np.einsum("...i,...i->...", features, features)
    if not np.isfinite(squares).all():
        raise FeatureError(why_unusable(features, party))
    norm = federation.norms[party]
    clipped: Floats = features * (norm / np.maximum(norm, np.sqrt(squares)))[..., None]
    return clipped


def _check_count(features: Floats, federation: Federation, party: int) -> None:
    expected = federation.features[party]
    if features.ndim == 0 or features.shape[-1] != expected:
        raise FeatureError(f"party {party} declared {expected} features but gave an array of shape {features.shape}")


def why_unusable(features: Floats, party: int) -> str:
    """Why features have no finite norm."""
    finite = np.isfinite(features).reshape(-1, features.shape[-1]).all(axis=0)
    if not finite.all():
        return f"feature {int(np.flatnonzero(~finite)[0])} of party {party} is not a finite number"
    return f"the features of party {party} are too large to have a finite norm"


def checked_reward(value: float) -> float:
    """A reward in [0, 1]."""
    if isinstance(value, str | bytes):
        raise RewardError("a reward must be a number in [0, 1], not text")
    try:
        reward = float(value)
    except (TypeError, ValueError, OverflowError):
        raise RewardError("a reward must be a number in [0, 1]") from None
    if not 0.0 <= reward <= 1.0:
        raise RewardError("a reward must lie in [0, 1]; scale yours before sending it")
    return reward


def as_floats(values: ArrayLike, party: int) -> Floats:
    """One party's features as an array. NumPy would parse text and cut complex numbers without a word: both are
    refused."""
    try:
        given = np.asarray(values)
        if given.dtype.kind in "biufO":
            return given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        pass
    raise FeatureError(f"the features of party {party} are not numbers")
