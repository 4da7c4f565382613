"""Which party holds which features."""

from __future__ import annotations

from hiddenarm.errors import ConfigError


def split_features(features: int, parties: int) -> list[int]:
    """How many features each party holds, party 0 first: contiguous slices, the longer ones first."""
    if parties < 1:
        raise ConfigError(f"features are split over at least 1 party, not {parties}")
    if features < parties:
        raise ConfigError(f"{features} features cannot be split over {parties} parties: each needs at least one")
    size, longer = divmod(features, parties)
    return [size + 1] * longer + [size] * (parties - longer)
