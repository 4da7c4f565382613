"""The layers are the folders, and imports run one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hiddenarm

SOURCE = Path(hiddenarm.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
PACKAGES = {"prometheus_client": "prometheus-client", "sklearn": "scikit-learn"}
"""Of libraries, where the name of the package is not that of the import."""
EXTRAS = {"service": ("parquet", "postgresql")}
"""Extras of a layer: what needs them says so, and everything else does without."""
POSTGRESQL = SOURCE / "store" / "postgresql.py"
"""The module that is imported only where a kit names a server."""
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "files": set(),
    "options": {"errors"},
    "ring": {"errors"},
    "privacy": {"errors", "options", "ring"},
    "mpc": {"errors", "ring"},
    "paper": {"errors", "ring", "mpc"},
    "bandit": {"errors", "files", "options", "ring", "mpc", "paper", "privacy"},
    "net": {"errors", "ring"},
    "store": {"errors"},
    "roles": {"errors", "ring", "mpc", "privacy", "bandit", "net", "store"},
    "service": {"errors", "files", "options", "ring", "mpc", "privacy", "bandit", "net", "store", "roles"},
    "web": {"errors", "ring", "bandit", "net", "roles", "service"},
    "research": {"errors", "files", "ring", "mpc", "paper", "privacy", "bandit", "net", "store", "roles", "service"},
    "cli": {
        "errors",
        "ring",
        "mpc",
        "paper",
        "privacy",
        "bandit",
        "net",
        "store",
        "roles",
        "service",
        "research",
        "web",
    },
    "__init__": {"errors", "privacy", "bandit", "service", "web"},
    "__main__": {"cli"},
}
"""For each folder or module of the package, what it may import besides itself."""
HTTP_CLIENTS = ("Actor", "AsyncActor", "AsyncRewarder", "Ranked", "Rewarder")
MODULES = sorted(SOURCE.rglob("*.py"))
every_layer = pytest.mark.parametrize("layer", BELOW)


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def modules_of(layer: str) -> list[Path]:
    found = [path for path in MODULES if layer_of(path) == layer]
    assert found, f"there is no {layer}"
    return found


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> Iterator[str]:
    """The full names of everything a module imports, at its top or anywhere inside."""
    return _names(path, ast.walk(parsed(path)))


def imports_at_once(path: Path) -> Iterator[str]:
    """The full names of what a module imports when it is imported itself: not what its functions import."""
    return _names(path, _outside_functions(parsed(path)))


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _outside_functions(child)


def _names(path: Path, nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively; write the whole name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def attributes(path: Path) -> Iterator[str]:
    """Dotted names that a module uses, such as np.random.default_rng."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@every_layer
def test_imports_run_downwards(layer: str) -> None:
    for path in modules_of(layer):
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "hiddenarm":
                other = rest.partition(".")[0]
                assert other in BELOW[layer] | {layer}, f"{path.relative_to(SOURCE)} imports {name}"


@every_layer
def test_no_module_uses_weak_randomness_or_pickle(layer: str) -> None:
    for path in modules_of(layer):
        for name in {*imports(path), *attributes(path)}:
            top = name.partition(".")[0]
            assert top not in {"random", "pickle", "shelve", "marshal", "dill"}, f"{path}: {name}"
            if not path.is_relative_to(SOURCE / "research" / "data"):
                assert not name.startswith(("numpy.random", "np.random", "scipy.stats")), f"{path}: {name}"


@every_layer
def test_libraries_are_declared_and_a_party_needs_none_of_the_extra(layer: str) -> None:
    """What a party installs has all that it imports; what only `research` imports is in the extra of that name, or in
    that of clusters. Where a layer has extras of its own, functions import them when they are called."""
    declared = _packages(PROJECT["dependencies"])
    if layer == "research":
        declared |= _packages(PROJECT["optional-dependencies"]["research"])
        declared |= _packages(PROJECT["optional-dependencies"]["cluster"])
    if layer == "web":
        declared |= _packages(PROJECT["optional-dependencies"]["http"])
    optional = {name for extra in EXTRAS.get(layer, ()) for name in _packages(PROJECT["optional-dependencies"][extra])}
    for path in modules_of(layer):
        if path == POSTGRESQL:
            declared |= _packages(PROJECT["optional-dependencies"]["postgresql"])
        assert _libraries(imports_at_once(path)) <= declared, path
        assert _libraries(imports(path)) <= declared | optional, path


def _libraries(names: Iterator[str]) -> set[str]:
    """The packages, of other people, that these names are of."""
    imported = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"hiddenarm"}
    return {PACKAGES.get(name, name) for name in imported}


def _packages(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


def test_the_extra_has_only_what_a_party_does_not_need() -> None:
    assert not _packages(PROJECT["dependencies"]) & _packages(PROJECT["optional-dependencies"]["research"])
    assert not {"matplotlib", "scikit-learn", "scipy"} & _packages(PROJECT["dependencies"])


@pytest.mark.parametrize("path", sorted((SOURCE / "cli").glob("*.py")), ids=lambda path: path.name)
def test_commands_import_research_only_when_they_run(path: Path) -> None:
    assert not [name for name in imports_at_once(path) if name.startswith("hiddenarm.research")]
    if path.name not in {"main.py", "research.py"}:
        assert not [name for name in imports(path) if name.startswith("hiddenarm.research")]


@pytest.mark.parametrize("path", [*sorted((SOURCE / "cli").glob("*.py")), SOURCE / "__init__.py"], ids=str)
def test_the_web_is_imported_only_where_it_is_used(path: Path) -> None:
    only_typed = {"hiddenarm.web.clients." + name for name in HTTP_CLIENTS}
    found = {name for name in imports_at_once(path) if name.startswith("hiddenarm.web")}
    assert not found - (only_typed if path.name == "__init__.py" else set())


@pytest.mark.processes
def test_importing_the_package_imports_no_library_of_the_web() -> None:
    program = "import hiddenarm, sys; hiddenarm.Actor"
    program += "\nassert not {'httpx', 'fastapi', 'uvicorn'} & sys.modules.keys()"
    program += "\nhiddenarm.Actor('http://127.0.0.1:9', token='x')"
    program += "\nassert 'httpx' in sys.modules and 'fastapi' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_store_in_postgresql_is_imported_only_where_a_kit_names_one() -> None:
    for path in MODULES:
        assert "hiddenarm.store.postgresql" not in {
            name for name in imports_at_once(path) if not _is_for_types(path, name)
        }, path


def _is_for_types(path: Path, name: str) -> bool:
    """Whether a module is imported for annotations only."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return name in _names(path, ast.walk(node))
    return False


@pytest.mark.processes
def test_all_that_a_party_runs_can_be_imported_without_research() -> None:
    hidden = ["hiddenarm.research", "distributed", "joblib", "matplotlib", "sklearn", "scipy", "pandas"]
    hidden += ["hiddenarm.web", "fastapi", "httpx", "uvicorn", "pyarrow", "psycopg"]
    names = [
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        for path in MODULES
        if layer_of(path) not in {"research", "web", "__main__"} and path != POSTGRESQL
    ]
    program = f"import sys, importlib\nsys.modules.update(dict.fromkeys({hidden}))\n" + "".join(
        f"importlib.import_module({name!r})\n" for name in names
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
    assert found == set(BELOW), "a layer has no place among the layers yet: give it one here"


def test_upward_imports_would_be_seen(tmp_path: Path) -> None:
    module = tmp_path / "low.py"
    module.write_text("def f():\n    from hiddenarm.bandit import local\n    import numpy.random\n")
    assert set(imports(module)) == {"hiddenarm.bandit.local", "numpy.random"}
    assert set(imports_at_once(module)) == set()


MACHINES = {"Party", "Dealer", "Actor", "Rewarder"}
"""The machines of roles: one each (docs/architecture.md)."""


def test_nothing_asks_which_machine_a_role_is() -> None:
    """A machine of a role is known by its type where it is made. `JointRewarder` is the one that processes run."""
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)}
                assert not asked & {*MACHINES, "JointRewarder"}, f"{path.relative_to(SOURCE)}: {ast.unparse(node)}"


def test_there_is_one_machine_per_role() -> None:
    machines = [
        node.name
        for path in (SOURCE / "roles").rglob("*.py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef) and any(name.name == "on_frame" for name in _methods(node))
        if not node.name.endswith("Epoch")
    ]
    assert set(machines) - {"Client", "Machine"} <= MACHINES, machines


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [child for child in node.body if isinstance(child, ast.FunctionDef)]
