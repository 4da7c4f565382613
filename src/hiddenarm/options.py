"""Things that are chosen by name and have options: policies, and what a federation promises about privacy.

Each is a frozen dataclass whose fields are its options: numbers, text or truth values. What is given is checked by the
annotation of the field, so that whatever a file, a command or a caller gives is rejected in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any, TypeVar

from hiddenarm.errors import ConfigError

Option = int | float | str | bool
_KINDS: dict[str, tuple[type, Callable[[Any], Option], str]] = {
    "float": (Real, float, "a number"),
    "int": (Integral, int, "a whole number"),
    "str": (str, str, "text"),
    "bool": (bool, bool, "true or false"),
}
"""By the annotation of an option: what may be given, numbers of NumPy among it; what it is kept as, so that 1 and 1.0
are the same at the hello; and what it is called."""


@dataclass(frozen=True)
class Optioned:
    """Has options, which are its fields."""

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_kind(field.name, getattr(field.type, "__name__", str(field.type)))

    @property
    def options(self) -> dict[str, Option]:
        """The options by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def _check_kind(self, name: str, annotation: str) -> None:
        value = getattr(self, name)
        kind, kept, called = _KINDS[annotation]
        if not isinstance(value, kind) or (isinstance(value, bool) and annotation != "bool"):
            raise ConfigError(f"{name} must be {called}, got {value!r}")
        object.__setattr__(self, name, kept(value))


Made = TypeVar("Made", bound=Optioned)


def make(kind: type[Made], called: str, options: Mapping[str, object]) -> Made:
    """One of a kind, `called` in errors, from its options as files and commands give them."""
    known = {field.name: field for field in fields(kind)}
    for option in options:
        if option not in known:
            raise ConfigError(f"{called} has no option {option!r}; {hint(option, known, 'it has', 'no options')}")
    for field in known.values():
        if field.name not in options and field.default is MISSING and field.default_factory is MISSING:
            raise ConfigError(f"{called} needs {field.name}")
    return kind(**options)


def hint(given: object, known: Mapping[str, object] | Sequence[str], all_of: str, none: str = "") -> str:
    """What may have been meant: the nearest name, or all names."""
    near = get_close_matches(str(given), known, n=1)
    return f"did you mean {near[0]}?" if near else f"{all_of} {', '.join(known) or none}"
