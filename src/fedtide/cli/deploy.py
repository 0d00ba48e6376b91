"""`fedtide deploy` and `fedtide replay`: the same policies on devices, and what happened there in the simulator."""

from __future__ import annotations

import importlib.util
import math
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from fedtide import config
from fedtide.cli.command import CORES, AsJson, err, friendly, out, print_json, say, warn
from fedtide.errors import FedtideError

deploy_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Run the policies on real devices with Flower (needs the extra `flower`).",
)

_Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE] [KEY=VALUE]...", help="An experiment file, then keys that differ.")
]


def _need_flower() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise FedtideError("this needs Flower: pip install 'fedtide[flower]'")


@deploy_app.command("demo")
@friendly
def deploy_demo(
    words: _Overrides = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder (default: runs/demo-<time>).")] = None,
    periods: Annotated[int, typer.Option("--periods", min=1, help="How many aggregations.")] = 20,
    period: Annotated[float, typer.Option("--period", min=5, help="Seconds between two aggregations.")] = 15.0,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=64, help="SuperNodes, about 190 MB each.")] = 6,
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Synthetic images in place of MNIST.")] = False,
    secure: Annotated[bool, typer.Option("--secure", help="TLS, and a key for every node.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names every random stream.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Run a SuperLink and six SuperNodes of different speeds on this machine, and watch them learn.

    Everything that it starts is stopped again, also on Ctrl-C. The run folder is like any simulation's, plus a trace:

    [dim]fedtide show RUN[/]   [dim]fedtide replay RUN[/]   [dim]fedtide replay RUN policy.scheduler=random[/]
    """
    _need_flower()
    from fedtide.deploy.demo import Demo, View, demo_table, demo_terms, run_demo
    from fedtide.deploy.settings import doubts
    from fedtide.engine.system import build, load_dataset, make_trainer

    if not math.isfinite(period):
        raise FedtideError(f"--period {period}: timeline.period is a number of seconds; give 5 or more")
    demo = Demo(nodes, periods, period, "synthetic" if synthetic else "mnist", seed, secure)
    changes = config.read_words(words or [])
    terms = demo_terms(demo, changes)
    experiment = terms.experiment
    for problem in doubts(terms):
        warn(problem)
    folder = folder or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    dataset = load_dataset(experiment, say)  # fetched once, before six nodes ask for it
    make_trainer(build(experiment, dataset=dataset))  # whatever cannot be made is told before anything is started
    minutes = periods * period / 60 + 0.5
    say(f"{nodes} SuperNodes, {periods} periods of {period:g} s, about {minutes:.0f} minutes; run folder {folder}")
    seen = -1
    with Live(console=err, auto_refresh=False, transient=True) as live:

        def show(view: View) -> None:
            nonlocal seen
            if err.is_terminal:
                live.update(demo_table(experiment, view), refresh=True)
            elif len(view.rounds) != seen:
                seen = len(view.rounds)
                last = view.rounds[-1] if view.rounds else None
                say(
                    f"period {last.index}: ready {last.ready}, picked {last.picked}, accuracy {last.test_accuracy}"
                    if last
                    else view.note
                )

        run_demo(demo, terms, folder, show)
    _summary(folder, as_json)


def _summary(folder: Path, as_json: bool) -> None:
    from fedtide.deploy.demo import View, demo_table
    from fedtide.deploy.trace import read_trace
    from fedtide.report.summary import summarise
    from fedtide.runs import read_run

    run = read_run(folder)
    if as_json:
        print_json({"folder": str(folder), **summarise(run.experiment, run.rounds, run.num_parameters)})
        return
    out.print(demo_table(run.experiment, View(run.rounds, read_trace(folder).periods, "done")), highlight=False)
    out.print(
        f"\n[dim]fedtide show {escape(str(folder))}\nfedtide replay {escape(str(folder))}[/]",
        highlight=False,
        soft_wrap=True,
    )


@deploy_app.command("app")
@friendly
def deploy_make_app(
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write the Flower app.")],
    words: _Overrides = None,
    run_folder: Annotated[Path, typer.Option("--run", help="Run folder, on the server's host.")] = Path("run"),
    setting: Annotated[
        list[str] | None, typer.Option("--set", "-s", metavar="KEY=VALUE", help="A deployment setting; see --settings.")
    ] = None,
    show_settings: Annotated[bool, typer.Option("--settings", help="List the deployment settings, and stop.")] = False,
) -> None:
    """Write the Flower app of a federation on real hosts; send it to a SuperLink with `flwr run FOLDER`.

    [dim]fedtide deploy app federation fleet.num_devices=20 timeline.period=60 timeline.horizon=6000 -s min_nodes=20[/]
    """
    _need_flower()
    from fedtide.deploy.app_folder import write_app
    from fedtide.deploy.settings import Deployment, Terms, check_terms, deployment, doubts

    if show_settings:
        listed = Table(box=None, padding=(0, 2))
        for heading in ("setting", "default", "meaning"):
            listed.add_column(heading)
        for name, field in Deployment.model_fields.items():
            listed.add_row(f"[cyan]{name}[/]", escape(str(field.default)), escape(field.description or ""))
        out.print(listed, highlight=False)
        return
    terms = Terms(config.experiment(config.read_words(words or [])), deployment(config.parse_overrides(setting or [])))
    check_terms(terms)
    for problem in doubts(terms):
        warn(problem)
    write_app(target, terms, run_folder.absolute())
    periods = round(terms.experiment.timeline.horizon / terms.experiment.timeline.period)
    out.print(
        f"{escape(str(target))}: {terms.experiment.fleet.num_devices} devices, {periods} periods of "
        f"{terms.experiment.timeline.period:g} s\n[dim]flwr run {escape(str(target))} <connection>[/]",
        highlight=False,
        soft_wrap=True,
    )


@deploy_app.command("keys")
@friendly
def deploy_keys(
    folder: Annotated[Path, typer.Argument(help="A new folder for the files.")],
    nodes: Annotated[int, typer.Option("--nodes", min=0, help="How many nodes get a key pair.")] = 6,
    host: Annotated[list[str] | None, typer.Option("--host", help="Name or address of the SuperLink; repeat.")] = None,
    days: Annotated[int, typer.Option("--days", min=1, help="How long the certificates are valid.")] = 365,
) -> None:
    """Make certificates and keys for a test federation: an authority, the SuperLink's certificate, a key per node."""
    _need_flower()
    from fedtide.deploy.credentials import make_credentials

    made = make_credentials(folder, host or ["localhost", "127.0.0.1"], nodes, days)
    for path in (made.authority, made.certificate, made.key, *(path for pair in made.nodes for path in pair)):
        out.print(escape(str(path)), highlight=False, soft_wrap=True)


@deploy_app.command("privacy")
@friendly
def deploy_privacy(
    words: _Overrides = None,
    epsilon: Annotated[list[float] | None, typer.Option("--epsilon", "-e", help="Repeat for several.")] = None,
    draws: Annotated[int, typer.Option("--draws", min=1, help="Draws of the noise.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show what private label histograms cost the schedule; nothing is trained."""
    from fedtide.deploy.privacy import privacy_cost

    experiment = config.experiment(config.read_words(words or []))
    prices = privacy_cost(experiment, epsilon or [0.001, 0.003, 0.01, 0.03, 0.1, 1.0], draws)
    if as_json:
        print_json([price._asdict() for price in prices])
        return
    listed = Table(box=None, padding=(0, 2))
    for heading in ("epsilon", "label variance", "of what labels save"):
        listed.add_column(heading, justify="right")
    listed.add_row("exact counts", f"{prices[0].exact:.4g}", "100 %")
    for price in reversed(prices):
        saved = (
            (price.random - price.label_variance) / (price.random - price.exact) if price.random > price.exact else 0.0
        )
        listed.add_row(f"{price.epsilon:g}", f"{price.label_variance:.4g}", f"{100 * saved:.0f} %")
    listed.add_row("random schedule", f"{prices[0].random:.4g}", "0 %")
    out.print(listed, highlight=False)


@friendly
def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a deployment.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="What would be different; nothing: check the bits."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--out", "-o", help="A folder for the replayed run.")] = None,
    threads: Annotated[int, typer.Option("--threads", "-j", min=1, help="Devices trained at a time.")] = CORES,
    as_json: AsJson = False,
) -> None:
    """Play a deployment's trace again in the simulator: to the bit, or with another scheduler, weighting or codec.

    [dim]fedtide replay runs/demo[/]   the same models, bit for bit
    [dim]fedtide replay runs/demo policy.scheduler=random[/]   the same devices and links, another policy
    """
    from fedtide.deploy.replay import replay as play
    from fedtide.runs import read_rounds

    result = play(run, config.parse_overrides(words or []), folder, threads)
    before, after = (each[-1].test_accuracy if each else None for each in (read_rounds(run), result.rounds))
    same = result.first_difference is None if result.compared else None
    tree = {
        "folder": str(run),
        "periods": len(result.rounds),
        "same_bits": same,
        "first_difference": result.first_difference,
        "isa": result.isa[0],
        "devices_isa": result.isa[1],
        "recorded_accuracy": before,
        "accuracy": after,
        "label_variance": sum(each.label_variance for each in result.rounds) / len(result.rounds),
        "bits": result.rounds[-1].ledger.bits,
    }
    if as_json:
        print_json(tree)
    else:
        for line in _told(tree):
            out.print(line, highlight=False, soft_wrap=True)
    if same is False:
        raise typer.Exit(1)


def _told(tree: dict[str, Any]) -> list[str]:
    """Say the outcome of a replay to people."""
    if tree["same_bits"]:
        return [f"[green]the same bits[/] in all {tree['periods']} periods; accuracy {_share(tree['accuracy'])}"]
    if tree["same_bits"] is None:
        return [
            f"accuracy {_share(tree['accuracy'])}, on the devices it was {_share(tree['recorded_accuracy'])}",
            f"{tree['periods']} periods, {tree['bits']:.4g} bits sent, mean label variance {tree['label_variance']:.4g}",
        ]
    hint = ""
    if set(tree["devices_isa"]) != {tree["isa"]}:
        hint = (
            f"; here {tree['isa']} trains, the devices used {escape(', '.join(tree['devices_isa']))}: set FEDTIDE_ISA"
        )
    return [f"[red]other bits[/] from period {tree['first_difference']} on{hint}"]


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
