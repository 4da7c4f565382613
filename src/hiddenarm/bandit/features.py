"""What may enter the computation: finite features of the declared number and norm, rewards in [0, 1]."""

from __future__ import annotations

from math import hypot

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FeatureError, RewardError
from hiddenarm.ring.words import Floats, Words, encode


def checked_features(values: ArrayLike, federation: Federation, party: int) -> Words:
    """One party's features as words, clipped to its declared norm. Leading axes are replicates."""
    return encode(clipped_features(values, federation, party), federation.fraction_bits)


def checked_row(values: ArrayLike, federation: Federation, party: int) -> Words:
    """The same for the features of one context, without leading axes: a party does this while others wait for it."""
    row = as_floats(values, party)
    if row.ndim != 1:
        raise FeatureError(f"features of party {party} must be a list of numbers, got an array of shape {row.shape}")
    if len(row) == federation.features[party] and hypot(*row.tolist()) <= federation.norms[party]:
        return encode(row, federation.fraction_bits)
    return checked_features(row, federation, party)


def clipped_features(values: ArrayLike, federation: Federation, party: int) -> Floats:
    """One party's features, checked, and scaled down to its declared norm where they exceed it."""
    features = as_floats(values, party)
    expected = federation.features[party]
    if features.ndim == 0 or features.shape[-1] != expected:
        raise FeatureError(f"party {party} declared {expected} features but gave an array of shape {features.shape}")
    norms = np.sqrt(np.einsum("...i,...i->...", features, features))
    if (norms <= federation.norms[party]).all():  # most often: one pass over the features finds them finite and small
        return features
    _check_finite(features, norms, party)
    clipped: Floats = features / np.maximum(1.0, norms / federation.norms[party])[..., None]
    return clipped


def _check_finite(features: Floats, norms: Floats, party: int) -> None:
    if not np.isfinite(features).all():
        by_column = np.isfinite(features).reshape(-1, features.shape[-1]).all(axis=0)
        raise FeatureError(f"feature {int(np.flatnonzero(~by_column)[0])} of party {party} is not a finite number")
    if not np.isfinite(norms).all():
        raise FeatureError(f"the features of party {party} are too large to have a finite norm")


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
            return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise FeatureError(f"the features of party {party} are not numbers")
