"""The layers are the folders, and imports run one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import hiddenarm

SOURCE = Path(hiddenarm.__file__).parent
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "ring": {"errors"},
    "mpc": {"errors", "ring"},
    "paper": {"errors", "ring", "mpc"},
    "bandit": {"errors", "ring", "mpc", "paper"},
    "net": {"errors", "ring"},
    "store": {"errors"},
    "roles": {"errors", "ring", "mpc", "bandit", "net", "store"},
    "research": {"errors", "ring", "mpc", "paper", "bandit", "net", "store", "roles"},
    "cli": {"errors", "ring", "mpc", "paper", "bandit", "net", "store", "roles", "research"},
    "__init__": {"errors", "bandit"},
    "__main__": {"cli"},
}
"""For each folder or module of the package, what it may import besides itself."""
MODULES = sorted(SOURCE.rglob("*.py"))


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """The full names of everything a module imports, at its top or anywhere inside."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes(path: Path) -> Iterator[str]:
    """Dotted names that a module uses, such as np.random.default_rng."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_downwards(path: Path) -> None:
    layer = layer_of(path)
    assert layer in BELOW, f"{layer} has no place among the layers yet: give it one here"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "hiddenarm":
            other = rest.partition(".")[0]
            assert other in BELOW[layer] | {layer}, f"{path.relative_to(SOURCE)} ({layer}) imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_module_uses_weak_randomness_or_pickle(path: Path) -> None:
    names = {*imports(path), *attributes(path)}
    for name in names:
        top = name.partition(".")[0]
        assert top not in {"random", "pickle", "shelve", "marshal", "dill"}, name
        if not path.is_relative_to(SOURCE / "research" / "data"):
            assert not name.startswith(("numpy.random", "np.random", "scipy.stats")), name


def test_one_module_calls_the_systems_entropy_for_secrets() -> None:
    """Keys start in ring.streams; names of epochs, which are public, in bandit.decisions."""
    entropy = ("os.urandom", "os.getrandom", "secrets")
    callers = {
        str(path.relative_to(SOURCE))
        for path in MODULES
        if layer_of(path) in {"ring", "mpc", "bandit"}
        and any(name.startswith(entropy) for name in {*imports(path), *attributes(path)})
    }
    assert callers == {"ring/streams.py", "bandit/decisions.py"}


def test_every_layer_is_there() -> None:
    found = {layer_of(path) for path in MODULES}
    assert {"errors", "ring", "mpc", "bandit"} <= found


def test_upward_imports_would_be_seen(tmp_path: Path) -> None:
    module = tmp_path / "low.py"
    module.write_text("def f():\n    from hiddenarm.bandit import local\n    import numpy.random\n")
    assert set(imports(module)) == {"hiddenarm.bandit.local", "numpy.random"}
