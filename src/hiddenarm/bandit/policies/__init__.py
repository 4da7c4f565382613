"""The policies, each in a module of its own, found by the name of the module: `epsilon-greedy` in `epsilon_greedy.py`.

A module has `POLICY`, its policy. Nothing else lists them: to add one is to add a file.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Final

from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.options import hint, make

EPSILON_GREEDY: Final = "epsilon-greedy"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", re.ASCII)
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}


def policy_names() -> list[str]:
    """The names of all policies."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def policy_class(name: str) -> type[Policy]:
    """The policy of a name."""
    known = policy_names()
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name not in known:
        raise ConfigError(f"there is no policy {name!r}; {hint(name, known, 'known are')}")
    found: type[Policy] = import_module(f"{__name__}.{name.replace('-', '_')}").POLICY
    return found


def make_policy(name: str, options: Mapping[str, object]) -> Policy:
    """A policy from its name and options, as files and commands give them."""
    return make(policy_class(name), f"policy {name}", options)


def parse_policy(text: str, flags: Mapping[str, object] | None = None) -> Policy:
    """A policy as a command takes it: NAME or NAME:option=value,option=value, and options that were given apart."""
    name, _, rest = text.partition(":")
    options: dict[str, object] = {}
    for part in rest.split(",") if rest else ():
        option, equals, value = part.partition("=")
        if not equals or not option or not value or option in options:
            raise ConfigError(f"{text!r} is not a policy such as epsilon-schedule:initial=0.5,decay=1000")
        options[option.strip()] = option_value(value.strip())
    twice = sorted(options.keys() & (flags or {}))
    if twice:
        raise ConfigError(f"{twice[0]} of the policy is given twice: in {text!r}, and as --{twice[0]}")
    return make_policy(name, {**options, **(flags or {})})


def table_of(policy: Policy) -> dict[str, object]:
    """A policy as a table of a file: its name and its options."""
    return {"name": policy.name, **policy.options}


def policy_from_table(table: Mapping[str, object]) -> Policy:
    """The policy of such a table."""
    if "name" not in table:
        raise ConfigError(f"the policy's name is missing; known are {', '.join(policy_names())}")
    return make_policy(str(table["name"]), {name: value for name, value in table.items() if name != "name"})


def option_value(text: str) -> object:
    """A number or a truth value if it is one, else text."""
    if text in _TRUTH:
        return _TRUTH[text]
    if not _NUMBER.fullmatch(text):
        return text
    return int(text) if _WHOLE.fullmatch(text) else float(text)
