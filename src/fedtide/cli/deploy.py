"""`fedtide deploy` and `fedtide replay`: the same policies on devices, and what happened there in the simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape

from fedtide.cli import options
from fedtide.cli.command import Group, command
from fedtide.cli.console import err, out, print_json, print_line, print_table, say, warn
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from fedtide.runs import RoundRecord


@click.group("deploy", cls=Group)
def deploy() -> None:
    """Run the same parts on real devices with Flower (needs the extra `flower`)."""


def _need_flower() -> None:
    import importlib.util

    if importlib.util.find_spec("flwr") is None:
        raise FedtideError("this needs Flower: pip install 'fedtide[flower]'")


@deploy.command("demo")
@options.words
@options.out_option("Run folder (default: runs/demo-<time>).")
@click.option("--periods", "num_periods", type=click.IntRange(1), default=20, help="Number of aggregations.")
@click.option("--period", type=click.FloatRange(5), default=15.0, help="Seconds between two aggregations.")
@click.option(
    "--nodes",
    "num_nodes",
    type=click.IntRange(1, 64),
    default=6,
    help="Number of SuperNodes, about 190 MB of memory each.",
)
@click.option("--synthetic", is_flag=True, help="Use synthetic images instead of MNIST.")
@click.option("--secure", is_flag=True, help="Use TLS and a key for every node.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Seed of all random numbers.")
@options.as_json
def deploy_demo(words: tuple[str, ...], folder: Path | None, synthetic: bool, as_json: bool, **shown: Any) -> None:
    """Run a SuperLink and six SuperNodes of different speeds on this machine, and watch the model learn.

    All processes are stopped at the end and on Ctrl-C. The run folder is that of a simulation plus a trace:

    fedtide show RUN
    fedtide replay RUN
    fedtide replay RUN policy.scheduler=random
    """
    _need_flower()
    import time

    from rich.live import Live

    from fedtide import config
    from fedtide.deploy.demo import Demo, demo_table, demo_terms, run_demo
    from fedtide.deploy.settings import deployment_doubts
    from fedtide.engine.making import load_dataset
    from fedtide.engine.system import build, make_trainer

    demo = Demo(data="synthetic" if synthetic else "mnist", **shown)
    terms = demo_terms(demo, config.read_words(words))
    experiment = terms.experiment
    for problem in deployment_doubts(terms):
        warn(problem)
    folder = folder or Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
    dataset = load_dataset(experiment, say)  # fetched once, before six nodes ask for it
    make_trainer(build(experiment, dataset=dataset))  # whatever cannot be made is told before anything is started
    length = f"{demo.num_periods} periods of {demo.period:g} s, about {demo.num_periods * demo.period / 60 + 0.5:.0f} minutes"
    say(f"{demo.num_nodes} SuperNodes, {length}; run folder {folder}")
    seen = -1
    with Live(console=err, auto_refresh=False, transient=True) as live:

        def show(rounds: list[RoundRecord], note: str) -> None:
            nonlocal seen
            if err.is_terminal:
                live.update(demo_table(experiment, rounds, note), refresh=True)
            elif len(rounds) != seen:
                seen = len(rounds)
                say(_period(rounds[-1]) if rounds else note)

        run_demo(demo, terms, folder, show)
    _summary(folder, as_json)


def _period(record: RoundRecord) -> str:
    return f"period {record.index}: ready {record.ready}, picked {record.picked}, accuracy {record.test_accuracy}"


def _summary(folder: Path, as_json: bool) -> None:
    from fedtide.deploy.demo import demo_table
    from fedtide.report.summary import summarise
    from fedtide.runs import read_run

    run = read_run(folder)
    if as_json:
        print_json({"folder": str(folder), **summarise(run.experiment, run.rounds, run.num_parameters)})
        return
    out.print(demo_table(run.experiment, run.rounds, "done"), highlight=False)
    print_line(f"\n[dim]fedtide show {escape(str(folder))}\nfedtide replay {escape(str(folder))}[/]")


@deploy.command("app")
@options.cli_argument("target", "FOLDER", "Where to write the Flower app.", type=options.PATH)
@options.words
@click.option("--run", "run_folder", type=options.PATH, default=Path("run"), help="Run folder, on the server's host.")
@click.option(
    "--set", "-s", "setting", multiple=True, metavar="KEY=VALUE", help="A deployment setting; see --settings."
)
@click.option("--settings", "show_settings", is_flag=True, help="List the deployment settings and exit.")
def deploy_make_app(
    target: Path, words: tuple[str, ...], run_folder: Path, setting: tuple[str, ...], show_settings: bool
) -> None:
    """Write the Flower app of a federation on real hosts; send it to a SuperLink with `flwr run FOLDER`.

    fedtide deploy app federation fleet.num_devices=20 timeline.period=60 timeline.horizon=6000 -s min_nodes=20
    """
    _need_flower()
    from fedtide import config
    from fedtide.deploy.settings import (
        Deployment,
        Terms,
        acts_as_it_sees_fit,
        check_terms,
        deployment,
        deployment_doubts,
        trust_doubts,
        write_app,
    )

    if show_settings:
        from fedtide.cli.parts import key_row, print_keys

        print_keys({name: key_row(field.default, field) for name, field in Deployment.model_fields.items()}, False)
        return
    terms = Terms(config.experiment(config.read_words(words)), deployment(config.parse_overrides(setting)))
    check_terms(terms)
    for problem in [*deployment_doubts(terms), *trust_doubts(terms.experiment)]:
        warn(problem)
    write_app(target, terms, run_folder.absolute())
    keys = terms.experiment.timeline
    length = f"{round(keys.horizon / keys.period)} periods of {keys.period:g} s"
    if acts_as_it_sees_fit(terms.experiment):
        length = f"{keys.horizon:g} s"
    print_line(
        f"{escape(str(target))}: {terms.experiment.fleet.num_devices} devices, {length}\n"
        f"[dim]flwr run {escape(str(target))} <connection>[/]"
    )


@deploy.command("status")
@options.cli_argument("run", "RUN", "The run folder of a deployment.", type=options.PATH)
@options.as_json
def deploy_status(run: Path, as_json: bool) -> None:
    """Show the state of a federation: periods, lateness, updates, refused replies, the last warnings."""
    from fedtide.deploy.status import Follower, status_texts

    status = Follower(run).look()
    if as_json:
        print_json({**status._asdict(), "problem": status.problem})
        return
    for name, text in status_texts(status).items():
        print_line(f"{name + ':':26} {escape(text)}")
    for warning in status.warnings:
        print_line(f"[yellow]{escape(warning)}[/]")


@deploy.command("metrics")
@options.cli_argument("run", "RUN", "The run folder of a deployment, which need not exist yet.", type=options.PATH)
@click.option("--host", default="127.0.0.1", help="Address to listen on; 0.0.0.0 means all.")
@click.option("--port", type=click.IntRange(0, 65535), default=9464, help="Port to listen on; 0 picks a free one.")
def deploy_metrics(run: Path, host: str, port: int) -> None:
    """Serve /metrics for Prometheus, /health and /ready of a federation's run until Ctrl-C (needs the extra `metrics`)."""
    from fedtide.deploy.status import metrics_server

    with metrics_server(run, host, port) as server:
        say(f"http://{host}:{server.server_address[1]}/metrics")
        server.serve_forever(poll_interval=0.2)


@deploy.command("keys")
@options.cli_argument("folder", "FOLDER", "A new folder for the files.", type=options.PATH)
@click.option("--nodes", type=click.IntRange(0, 10_000), default=6, help="How many nodes get a key pair.")
@click.option("--host", multiple=True, help="Name or address of the SuperLink. Repeatable.")
@click.option("--days", type=click.IntRange(1, 36_500), default=365, help="How long the certificates are valid.")
def deploy_keys(folder: Path, nodes: int, host: tuple[str, ...], days: int) -> None:
    """Make certificates and keys for a test federation: an authority, the SuperLink's certificate, a key per node."""
    _need_flower()
    from fedtide.deploy.credentials import make_credentials

    made = make_credentials(folder, list(host) or ["localhost", "127.0.0.1"], nodes, days)
    for path in (made.authority, made.certificate, made.key, *(path for pair in made.nodes for path in pair)):
        print_line(escape(str(path)))


@deploy.command("privacy")
@options.words
@click.option("--epsilon", "-e", type=float, multiple=True, help="Privacy parameter epsilon. Repeatable.")
@click.option("--draws", type=click.IntRange(1), default=10, help="Number of draws of the noise.")
@options.as_json
def deploy_privacy(words: tuple[str, ...], epsilon: tuple[float, ...], draws: int, as_json: bool) -> None:
    """Show how much private label histograms cost the schedule, without training."""
    from fedtide import config
    from fedtide.deploy.privacy import privacy_cost
    from fedtide.report.terminal import TableColumn

    experiment = config.experiment(config.read_words(words))
    prices = privacy_cost(experiment, list(epsilon) or [0.001, 0.003, 0.01, 0.03, 0.1, 1.0], draws)
    if as_json:
        print_json([price._asdict() for price in prices])
        return
    rows = [("exact counts", f"{prices[0].exact:.4g}", "100 %")]
    for price in reversed(prices):
        all_saved = price.random - price.exact
        saved = (price.random - price.label_variance) / all_saved if all_saved > 0 else 0.0
        rows.append((f"{price.epsilon:g}", f"{price.label_variance:.4g}", f"{100 * saved:.0f} %"))
    rows.append(("random schedule", f"{prices[0].random:.4g}", "0 %"))
    names = ("epsilon", "label variance", "of what labels save")
    print_table([TableColumn(name, right=True) for name in names], rows)


@command("replay")
@options.cli_argument("run", "RUN", "The run folder of a deployment.", type=options.PATH)
@options.cli_argument(
    "words", "[KEY=VALUE]...", "Keys to change. Without any, checks that the bits are the same.", nargs=-1
)
@options.out_option("Folder of the replayed run.")
@options.threads
@options.as_json
def replay(run: Path, words: tuple[str, ...], folder: Path | None, threads: int, as_json: bool) -> None:
    """Replay the trace of a deployment in the simulator, bit for bit or with another scheduler, weighting or codec.

    fedtide replay runs/demo                           check: the same models, bit for bit
    fedtide replay runs/demo policy.scheduler=random   another scheduler on the same devices and links
    """
    from fedtide import config
    from fedtide.deploy.replay import replay as play
    from fedtide.runs import read_rounds

    result = play(run, config.parse_overrides(words), folder, threads)
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
            print_line(line)
    if same is False:
        raise click.exceptions.Exit(1)


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


@deploy.command("node")
@options.cli_argument("address", "HOST:PORT", "The SuperLink.")
@click.option(
    "--node-config",
    "-c",
    "configs",
    multiple=True,
    help="Configuration of a node, as for a SuperNode. Repeat for several nodes.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=options.PATH,
    help="Private key of a node. Repeat for several nodes. Default: no keys.",
)
@click.option(
    "--root-certificates", "authority", type=options.PATH, help="Certificates to verify the SuperLink. Default: no TLS."
)
@click.option("--look", type=click.FloatRange(0.05), default=1.0, help="Seconds between two polls for messages.")
@click.option("--allow", multiple=True, help="A part outside fedtide that runs may use, such as FILE:name. Repeatable.")
def deploy_node(
    address: str,
    configs: tuple[str, ...],
    keys: tuple[Path, ...],
    authority: Path | None,
    look: float,
    allow: tuple[str, ...],
) -> None:
    """Join a federation with one or more nodes in one process, which is faster and smaller than flower-supernode.

    It runs the fedtide that is installed here and no code from the server. Parts outside fedtide need --allow.

    fedtide deploy node fl.example.org:8000 -c partition-id=0 --key node-0.key --root-certificates authority.pem
    """
    _need_flower()
    from flwr.common.config import parse_config_args

    from fedtide.deploy.thin import Door, run_thin_nodes

    settings = [dict(parse_config_args([text])) for text in configs or ("",)]
    if keys and len(keys) != len(settings):
        raise FedtideError(f"{len(keys)} keys for {len(settings)} nodes: give --key once for each --node-config")
    own_keys = keys or (None,) * len(settings)
    run_thin_nodes(Door(address, authority, look, allow), list(zip(settings, own_keys, strict=True)))
