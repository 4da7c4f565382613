"""The commands that measure: `bench`, `reproduce`, `attack` and `audit`; and what all commands check that need the
extra `research`.

Each bench measures beside the plain twin, prints tables and writes JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_args

import click

from hiddenarm.cli.options import FILE, PRIVACY_OPTIONS, SUITE_OPTIONS, Decorator, chosen_privacy, with_options
from hiddenarm.errors import ConfigError

LIBRARIES: Final = ("joblib", "matplotlib", "sklearn")
"""As they are imported; `research` in pyproject.toml has the packages that bring them."""


class ResearchCommand(click.Command):
    """Before it does anything, it checks that the extra is installed. Its help needs nothing."""

    def invoke(self, ctx: click.Context) -> Any:
        check_research(ctx.command_path)
        return super().invoke(ctx)


def check_research(what: str) -> None:
    """Raise ConfigError if the extra is missing that something needs."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"`{what}` needs {' and '.join(missing)}, which a party's installation leaves out: "
            "pip install 'hiddenarm[research]'"
        )


class ResearchGroup(click.Group):
    """A group of such commands."""

    command_class = ResearchCommand


def _whole_numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """A list such as 10,20,40."""
    try:
        return tuple(sorted({int(part) for part in value.split(",")}))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers such as 10,20,40") from None


@click.group(cls=ResearchGroup)
def bench() -> None:
    """Measure private steps against plain ones."""


def _options(*options: Decorator) -> Decorator:
    """Several options, and those that every bench has."""
    return with_options(
        *options,
        *SUITE_OPTIONS,
        click.option("--json", "json_path", type=FILE, help="Write the figures."),
        click.option("--quick", is_flag=True, help="Takes seconds and runs everything once; figures are rough."),
    )


def _number(name: str, default: int, text: str) -> Decorator:
    return click.option(name, type=click.IntRange(min=1), default=default, show_default=True, help=text)


def _numbers(name: str, default: str, text: str) -> Decorator:
    return click.option(name, callback=_whole_numbers, default=default, show_default=True, help=text)


_PARTIES = _number("--parties", 2, "Organisations that hold features.")
_ARMS = _number("--arms", 10, "Arms of the bandit.")
_FEATURES = _number("--features", 20, "Features of all parties together.")
_SECONDS = click.option("--seconds", default=30.0, show_default=True, help="Maximum time for one federation.")
_RUNS = _number("--runs", 1, "Runs, each of a federation of its own; their median ratio is printed.")
_PLOT = click.option("--plot", "plot", type=FILE, help="Draw the points (.png, .svg, .pdf).")


@bench.command()
@_options(_PARTIES, _ARMS, _FEATURES, _number("--steps", 2000, "Steps to measure."), _SECONDS, _RUNS)
def step(json_path: Path | None, quick: bool, **sizes: Any) -> None:
    """One strictly online step over real processes with TLS. Also where its time goes."""
    from hiddenarm.research.bench.steps import bench_step

    _run(bench_step, json_path, {**sizes, **({"steps": 60, "seconds": 2.0} if quick else {})})


@bench.command()
@_options(
    _PARTIES,
    _ARMS,
    _FEATURES,
    click.option("--batch", type=click.IntRange(1, 256), default=100, show_default=True, help="Interactions at once."),
    _number("--batches", 40, "Batches to measure."),
    _SECONDS,
    _RUNS,
)
def batch(json_path: Path | None, quick: bool, **sizes: Any) -> None:
    """Time per interaction in batches. The plain learner takes them one by one.
    The paper's suite has no batches."""
    from hiddenarm.research.bench.steps import bench_batch

    _run(bench_batch, json_path, {**sizes, **({"batches": 3, "seconds": 2.0} if quick else {})})


@bench.command()
@_options(
    _PARTIES,
    _numbers("--arms", "10,20,40,100,200,400,1000", "Numbers of arms."),
    _FEATURES,
    _number("--steps", 400, "Steps to measure for each number of arms, at most."),
    _SECONDS,
    _PLOT,
    click.option(
        "--arm-features",
        type=click.IntRange(2, 64),
        help="Features of an arm: compare one model of all arms with a model for each, in one process.",
    ),
)
def arms(json_path: Path | None, quick: bool, plot: Path | None, arm_features: int | None, **sizes: Any) -> None:
    """Time per step by the number of arms. Fits an exponent from 40 arms on. With --arm-features, the cost of deciding
    and learning with one model of all arms and with a model for each, and of a step with 40 eligible arms."""
    from hiddenarm.research.bench.many_arms import bench_many_arms
    from hiddenarm.research.bench.steps import bench_arms

    _check_plot(plot)
    changed = {"arms": (10, 40, 80), "steps": 10, "seconds": 1.0} if quick else {}
    if arm_features is None:
        _run(bench_arms, json_path, {**sizes, **changed, "plot": plot})
    else:
        _run(bench_many_arms, json_path, {**sizes, **changed, "plot": plot, "arm_features": arm_features})


@bench.command()
@_options(
    _numbers("--parties", "2,3,4,5,6,7,8", "Numbers of parties."),
    _ARMS,
    _FEATURES,
    _number("--steps", 400, "Steps to measure for each number of parties, at most."),
    _SECONDS,
    _PLOT,
)
def parties(json_path: Path | None, quick: bool, plot: Path | None, **sizes: Any) -> None:
    """Time and bytes per step by the number of parties. Fits the exponent of the bytes."""
    from hiddenarm.research.bench.steps import bench_parties

    _check_plot(plot)
    changed = {"parties": (2, 3), "steps": 10, "seconds": 1.0} if quick else {}
    _run(bench_parties, json_path, {**sizes, **changed, "plot": plot})


@bench.command()
@_options(
    _PARTIES,
    _ARMS,
    _FEATURES,
    _number("--steps", 30, "Steps to measure."),
    click.option("--delay-ms", default=20.0, show_default=True, help="One-way delay between any two roles."),
)
def wan(json_path: Path | None, quick: bool, delay_ms: float, **sizes: Any) -> None:
    """A decision and a step over delayed links. Times are counted in one-way delays."""
    from hiddenarm.research.bench.wan import bench_wan

    if delay_ms <= 0:
        raise ConfigError(f"--delay-ms must be positive, got {delay_ms}")
    _run(bench_wan, json_path, {**sizes, "delay_ms": delay_ms, **({"steps": 3} if quick else {})})


@bench.command()
@_options(
    _PARTIES,
    _number("--replicates", 10_000, "Elements at once."),
    _number("--repeats", 15, "Runs of each operation."),
)
def ops(json_path: Path | None, quick: bool, **sizes: Any) -> None:
    """Rounds, bytes, dealt words and time of every operation."""
    from hiddenarm.research.bench.operations import bench_ops

    _run(bench_ops, json_path, {**sizes, **({"replicates": 500, "repeats": 3} if quick else {})})


@bench.command()
@_options(
    _PARTIES,
    _ARMS,
    _FEATURES,
    _number("--steps", 100_000, "Steps that are dealt while memory is read."),
    _number("--online-steps", 1000, "Steps to measure on-line."),
    click.option(
        "--batch", type=click.IntRange(2, 256), help="Also count what is dealt for this many interactions at once."
    ),
    _SECONDS,
)
def dealer(json_path: Path | None, quick: bool, **sizes: Any) -> None:
    """The dealer's time per step, what it sends, and its memory. Time is compared with that of the online step, memory
    read over a long run."""
    from hiddenarm.research.bench.dealer import bench_dealer

    _run(bench_dealer, json_path, {**sizes, **({"steps": 2000, "online_steps": 40, "seconds": 2.0} if quick else {})})


def _check_plot(path: Path | None) -> None:
    if path is not None:
        from hiddenarm.research.plots import check_plot_path

        check_plot_path(path)


def _run(measure: Callable[..., dict[str, Any]], json_path: Path | None, sizes: dict[str, Any]) -> None:
    """Run a bench on this console, and write what it found. The roles inside this process log what is wrong only."""
    from hiddenarm.research.bench.report import open_console, write_result
    from hiddenarm.service.logs import configure_logs

    configure_logs("warning", "text", "bench")
    result = measure(open_console(), **sizes)
    if json_path is not None:
        write_result(json_path, result)


_SUITES = ("both", "fast", "paper")
_BACKENDS = ("loky", "dask")
_SCALES = ("full", "quick", "tiny")
_FOLDER = click.Path(path_type=Path, file_okay=False)


PAPERS_EXPERIMENTS: Final = (
    *("training", "privacy", "operations", "arms-time", "parties-time", "privacy-arms", "membership", "precision"),
    "newton",
)
"""As in `research.experiments.reproduction`, which help does not load."""
FURTHER_EXPERIMENTS: Final = ("privacy-over-time", "attack", "policies", "many-arms")


@click.command(
    cls=ResearchCommand,
    epilog="\b\nExperiments of the paper:\n"
    f"  {', '.join(PAPERS_EXPERIMENTS[:6])},\n  {', '.join(PAPERS_EXPERIMENTS[6:])}\n"
    f"Further ones, made when they are named:\n  {', '.join(FURTHER_EXPERIMENTS)}",
)
@click.argument("names", nargs=-1, metavar="[NAME...|all]")
@click.option("--quick", is_flag=True, help="Shorter runs: minutes instead of hours.")
@click.option(
    "--out", "folder", type=_FOLDER, default=Path("reproduction"), show_default=True, help="Folder for the results."
)
@click.option("--data-dir", type=_FOLDER, help="Folder with the MNIST files. Without it: the cache, or else digits.")
@click.option("--suite", type=click.Choice(_SUITES), default="both", show_default=True, help="Protocols to compare.")
@click.option(
    "--backend",
    type=click.Choice(_BACKENDS),
    default="loky",
    show_default=True,
    help="Where runs execute: on all cores of this machine, or on a Dask cluster. Timed runs are always done here.",
)
@click.option("--cluster", metavar="ADDRESS", help="Scheduler of an existing Dask cluster, such as tcp://HOST:8786.")
@click.option("--scale", type=click.Choice(_SCALES), hidden=True, help="Overrides --quick; tiny is the tests' size.")
def reproduce(
    names: tuple[str, ...],
    quick: bool,
    folder: Path,
    data_dir: Path | None,
    suite: str,
    backend: str,
    cluster: str | None,
    scale: str | None,
) -> None:
    """Repeat the paper's experiments. Writes a page with every figure, table and claim.

    Without a name, all experiments of the paper are run. Finished runs are kept in the folder: after an interrupt, the
    same command resumes.
    """
    from rich.console import Console

    from hiddenarm.research.data.load import default_world
    from hiddenarm.research.experiments.experiment import Setting, Suite
    from hiddenarm.research.experiments.reproduction import Reproduction, chosen, print_summary

    if cluster is not None and backend != "dask":
        raise ConfigError("--cluster is the address of a Dask scheduler: give --backend dask too")
    small = quick or scale in ("quick", "tiny")
    data = "digits" if small and data_dir is None else default_world(data_dir)
    suites = get_args(Suite) if suite == "both" else (suite,)
    setting = Setting(scale or ("quick" if quick else "full"), data, suites)  # type: ignore[arg-type]
    console = Console()
    report = Reproduction(chosen(names), setting, folder, data_dir, backend, cluster).run(console)  # type: ignore[arg-type]
    print_summary(console, report, folder)


_LABELLED = ("digits", "mnist", "clusters")
_TARGETS = ("drop", "same", "any")


def _attack_options(steps: int, trials: int, *options: Decorator) -> Decorator:
    """Those that all attacks and the audit have, and some of their own before the files."""
    return with_options(
        click.option("--data", type=click.Choice(_LABELLED), default="digits", show_default=True),
        click.option("--data-dir", type=_FOLDER, help="Folder with the MNIST files."),
        click.option(
            "--arms", default=10, show_default=True, help="Arms of the bandit; other than 10 for clusters only."
        ),
        click.option("--features", default=20, show_default=True, help="Features of all parties together."),
        click.option("--steps", default=steps, show_default=True, help="Decisions of each trial's learner."),
        click.option("--epsilon", default=0.1, show_default=True, help="Probability of exploring."),
        click.option("--trials", default=trials, show_default=True, help="Learners to attack, half in each world."),
        *options,
        click.option("--seed", type=int, help="Fix all rows and coins."),
        click.option("--json", "json_path", type=FILE, help="Write the figures."),
    )


_TARGET = with_options(
    click.option(
        "--target",
        type=click.Choice(_TARGETS),
        default="drop",
        show_default=True,
        help="What the adversary tells apart: the row from no row, from another of its class, or from any other.",
    ),
    click.option("--position", type=int, help="The row's position in the run, from 0."),
    *PRIVACY_OPTIONS,
)


@click.group(cls=ResearchGroup)
def attack() -> None:
    """Attack what a learner releases. How well does an adversary who knows all other rows recognise one?"""


@attack.command("sequence")
@_attack_options(200, 4000, _TARGET, _PLOT)
def attack_sequence(json_path: Path | None, plot: Path | None, **options: Any) -> None:
    """The best attack on everything released. That is all arms, or noisy sums where --privacy names them."""
    from hiddenarm.research.attacks.commands import attack_sequence

    _check_files(json_path, plot)
    attack_sequence(_attack_plan(options, _label_world(options)), json_path, plot)


@attack.command("paper")
@_attack_options(200, 4000, _PLOT)
def attack_paper(json_path: Path | None, plot: Path | None, **options: Any) -> None:
    """The paper's attack on the finished model. It uses the arm and the reward of one row."""
    from hiddenarm.research.attacks.commands import attack_paper
    from hiddenarm.research.data.load import load_pair

    _check_files(json_path, plot)
    _check_arms(options)
    if options["data"] == "clusters":
        raise ConfigError("clusters have no held-out set: attack digits or mnist")
    training, held_out = load_pair(
        options["data"], features=options["features"], data_dir=_data_dir(options), seed=options["seed"] or 0
    )
    attack_paper(_attack_plan(options, training), held_out, json_path, plot)  # type: ignore[arg-type]


@click.command(cls=ResearchCommand)
@_attack_options(200, 40_000, _TARGET)
def audit(json_path: Path | None, **options: Any) -> None:
    """Compare bounds on epsilon: from the best attack, and proven. The attacked row is a tenth into the run unless
    --position is given."""
    from hiddenarm.research.attacks.commands import audit

    _check_files(json_path, None)
    if options["position"] is None:
        options["position"] = options["steps"] // 10
    audit(_attack_plan(options, _label_world(options)), json_path)


def _check_files(json_path: Path | None, plot: Path | None) -> None:
    _check_plot(plot)
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise ConfigError(f"cannot write {json_path}: there is no folder {json_path.parent}")


def _check_arms(options: dict[str, Any]) -> None:
    if options["data"] != "clusters" and options["arms"] != 10:
        raise ConfigError(
            f"the arms of {options['data']} are its 10 classes here, whose rewards the adversary knows: leave --arms "
            "at 10, or give --data clusters"
        )


def _data_dir(options: dict[str, Any]) -> Path | None:
    return options["data_dir"] if options["data"] == "mnist" else None


def _label_world(options: dict[str, Any]) -> Any:
    from hiddenarm.research.data.load import load_world

    _check_arms(options)
    return load_world(
        options["data"],
        arms=options["arms"],
        features=options["features"],
        seed=options["seed"] or 0,
        data_dir=_data_dir(options),
        steps=max(2000, 2 * options["steps"]),
    )


def _attack_plan(options: dict[str, Any], world: Any) -> Any:
    from hiddenarm.research.attacks.measure import Plan
    from hiddenarm.ring.streams import fresh_key

    seed = options["seed"]
    given: dict[str, Any] = {}
    if "target" in options:
        given = {
            "target": options["target"],
            "position": options["position"],
            "privacy": chosen_privacy(options),
        }
    return Plan(
        world=world,
        steps=options["steps"],
        epsilon=options["epsilon"],
        trials=options["trials"],
        key=fresh_key() if seed is None else sha256(f"hiddenarm attack {seed}".encode()).digest(),
        **given,
    )
