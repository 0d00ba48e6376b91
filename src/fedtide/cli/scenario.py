"""`fedtide scenario`: the worlds that the package brings along."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedtide import config
from fedtide.cli.command import AsJson, friendly, out, print_json, print_text
from fedtide.config import Experiment
from fedtide.config.scenarios import names, scenario

scenario_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Worlds to learn in: data, devices and radio of a paper's system section, by one name.\n\n"
    "[dim]fedtide run scenario=paper[/]",
)
# What a radio is made of, each with the name that is not worth a word.
_RADIO = {"coverage": "equal", "channel": "", "csi": "perfect", "allocation": "equal_bits", "downlink": "instant"}


@scenario_app.command("list")
@friendly
def list_scenarios(as_json: AsJson = False) -> None:
    """List the scenarios: what world each one is, its data set, its devices and its radio.

    [dim]fedtide scenario list[/]
    """
    rows = {}
    for name in names():
        experiment = config.experiment(scenario=name)
        rows[name] = {
            "about": scenario(name).about,
            "data": experiment.data.name,
            "num_devices": experiment.fleet.num_devices,
            "radio": _radio(experiment),
        }
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column("scenario", style="cyan", no_wrap=True)
    table.add_column("world", overflow="fold")
    for name, row in rows.items():
        made_of = f"{row['data']}, N = {row['num_devices']}, {row['radio']}"
        table.add_row(name, f"{escape(str(row['about']))}\n[dim]{escape(made_of)}[/]")
    out.print(table, highlight=False)
    out.print(
        "\nfedtide run scenario=NAME [KEY=VALUE]... runs one; keys that you give yourself win. `fedtide scenario show NAME` "
        "prints its file.",
        highlight=False,
        style="dim",
    )


@scenario_app.command()
@friendly
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="One of `fedtide scenario list`.")],
    as_json: AsJson = False,
) -> None:
    """Print the file of a scenario: its keys, and in its comments the papers that it follows and what differs.

    [dim]fedtide scenario show paper[/]
    [dim]fedtide scenario show paper > mine.yaml[/]     a world of your own to begin with: fedtide run mine.yaml
    """  # fmt: skip
    found = scenario(name)
    if as_json:
        resolved = config.dump(config.experiment(scenario=name))
        print_json({"name": name, "about": found.about, "keys": found.keys, "text": found.text, "experiment": resolved})
    else:  # as it is: no line of a file may be broken or padded
        print_text(found.text)


def _radio(experiment: Experiment) -> str:
    """Say in a few words what a radio is made of."""
    chosen = {key: str(getattr(experiment.radio, key)) for key in _RADIO}
    return ", ".join(name for key, name in chosen.items() if name != _RADIO[key])
