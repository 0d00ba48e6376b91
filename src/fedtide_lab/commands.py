"""The laboratory's commands: `fedtide paper`, `fedtide worlds`, `fedtide skies`, `fedtide league`, `fedtide essay`, `fedtide theory`.

fedtide finds them by the entry points of the group `fedtide.commands`; they import what they need when they are called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from rich.markup import escape

from fedtide.cli import command, do_study_runs, finish_study, options, out, print_json, print_table, say
from fedtide.errors import FedtideError

if TYPE_CHECKING:
    from fedtide.studies import Outcome, Store
    from fedtide_lab.external.studies import PublishedCell
    from fedtide_lab.league.tune import LeagueWorld
    from fedtide_lab.worlds.studies import Survey, World

_World = TypeVar("_World", bound="World | LeagueWorld | PublishedCell")
_draw_only_option = click.option("--draw-only", is_flag=True, help="Run nothing; draw the stored runs.")

# ---- `fedtide paper`: the paper's figures and claims, from runs


@command.command("paper")
@options.cli_argument(
    "figures",
    "[FIGURE]...",
    "R, period, frameworks, training_loss, schedulers, weights, timelines, and others that docs/paper.md lists; or `claims` "
    "for the verdicts. Default: all.",
    nargs=-1,
)
@click.option("--seeds", "-n", type=click.IntRange(1), help="Seeds per curve (default: those of the plan).")
@click.option("--quick", is_flag=True, help="Quick look: a tenth of the horizon, two seeds.")
@options.store_option("results/paper")
@options.out_option("Folder for figures and the page paper.md.", "to", default=Path("docs"))
@options.work_options
@click.option("--force", is_flag=True, help="Write the page even if the existing one has more figures or runs.")
@_draw_only_option
@click.option("--details", is_flag=True, help="Print every claim with its quote and its comparisons.")
@options.style
@options.as_json
def paper(
    figures: tuple[str, ...],
    seeds: int | None,
    quick: bool,
    store: Path,
    to: Path,
    force: bool,
    draw_only: bool,
    details: bool,
    style: str,
    as_json: bool,
    **work: Any,
) -> None:
    """Reproduce the paper: run what is missing, draw its figures with error bars, and give a verdict on each claim.

    fedtide paper --quick                everything, at a tenth of the horizon
    fedtide paper schedulers --seeds 5   one figure, in full
    fedtide paper claims                 print a verdict per claim, from the stored runs
    fedtide paper claims --details       with every comparison
    """
    from fedtide.cli import study_progress
    from fedtide.plot import style_named
    from fedtide_lab.paper import draw, page, reproduce
    from fedtide_lab.paper.figures import FIGURES

    style_named(style)  # before anything is run
    names = reproduce.reproduced_figures([name for name in figures if name != "claims"])
    with_page = not figures or "claims" in figures
    shrunk = reproduce.QUICK_SHARE if quick else None
    if quick:
        store, to = (path / "quick" if path in (Path("results/paper"), Path("docs")) else path for path in (store, to))
    kept = opened_store(store, to, "paper")
    failures: list[Outcome] = []
    if not draw_only and figures != ("claims",):
        failures = do_study_runs("paper", reproduce.reproduced_studies(names, seeds, shrunk), kept, **work)
    say("reading and comparing the stored runs")
    results = reproduce.collect_reproduced(list(FIGURES), kept, shrunk, seeds or 0)
    planned = not quick and not seeds
    decided, besides = reproduce.reproduced_verdicts(results, planned), reproduce.reproduced_observations(results)
    if with_page and not force:
        reproduce.refuse_a_poorer_page(to / "paper.md", results, store)
    if with_page:  # the page shows whole figures only, and says what is missing from the others
        names = [
            name for name in reproduce.reproduced_figures([]) if not reproduce.without_reproduced_run(name, results)
        ]
    with study_progress("drawing", len(names), len(names), "figures") as advance:
        drawn = reproduce.draw_reproduced(names, results, to / "figures", say, style, advance)
    if with_page and any(verdict.weakest.difference for verdict in decided):
        drawn["verdicts"] = draw.draw_verdicts(decided, to / "figures" / "paper-verdicts", style)
    say(f"drawn: {sum(map(len, drawn.values()))} files in {to / 'figures'}")
    if with_page:
        page.write_paper_page(to / "paper.md", drawn, results, decided, besides, quick, store)
        say(f"written: {to / 'paper.md'}")
    else:
        say(f"the page {to / 'paper.md'} is as it was; `fedtide paper claims` writes it anew")
    claims, seen = reproduce.claims_rows(decided), reproduce.observed_rows(besides)
    if as_json:
        print_json([*claims, *seen])
    elif details:
        _print_claims(claims)
        _print_observed(seen)
    else:
        _print_verdicts(claims, len(seen), to / "paper.md")
    finish_study(failures)


def opened_store(store: Path, to: Path, name: str) -> Store:
    """Return the store of a command's runs, once its page can be written."""
    from fedtide.core import require_writable
    from fedtide.studies import Store

    require_writable(to)
    return Store(store, name)


def _print_verdicts(rows: Sequence[dict[str, Any]], others: int, page: Path) -> None:
    """Print a line for every claim, how many there are of each verdict, and where the rest is."""
    from fedtide.report import TableColumn

    counts = Counter(row["verdict"] for row in rows)
    cells = [(escape(row["text"]), _coloured(row["verdict"], row["verdict"])) for row in rows]
    columns = (TableColumn("claim", wraps=True), TableColumn("verdict", wraps=True))
    told = ", ".join(f"{_coloured(verdict, verdict)} {count}" for verdict, count in counts.most_common())
    out.print(f"{len(rows)} claims of the paper: {told}; {others} other findings.\n", highlight=False)
    print_table(columns, cells)
    out.print(f"\n[dim]Differences and quotes: {escape(str(page))}, or --details.[/]", highlight=False)


def _print_claims(rows: Sequence[dict[str, Any]]) -> None:
    """Print every claim with its verdict, and below it the comparisons that decide it."""
    from fedtide.studies import table_effect
    from fedtide_lab.paper.reproduce import in_words

    out.print("\n[dim]Differences are positive where they are as claimed.[/]", highlight=False)
    for row in rows:
        out.print(
            f"\n[bold]{_coloured(row['verdict'], row['verdict'] + ':')} {escape(row['text'])}[/]", highlight=False
        )
        if row["by_other_measure"] != row["verdict"]:
            metrics = dict.fromkeys(each["by_other_measure"]["metric"] for each in row["comparisons"])
            out.print(f"    [dim]by {', '.join(metrics)}: {row['by_other_measure']}[/]", highlight=False)
        _print_aside(f'"{row["quote"]}" ({row["section"]})')
        if row["reading"]:
            _print_aside(f"We read it as: {row['reading']}")
        _print_comparisons(
            [(in_words(each), _coloured(each["verdict"], table_effect(each))) for each in row["comparisons"]]
        )


def _print_observed(rows: Sequence[dict[str, Any]]) -> None:
    """Print what else we measure, without verdicts."""
    from fedtide.studies import table_effect
    from fedtide_lab.paper.reproduce import difference_words

    out.print("\n[bold]Other findings[/] [dim](not claims of the paper)[/]", highlight=False)
    for row in rows:
        out.print(f"\n[bold]{escape(row['text'])}[/]", highlight=False)
        _print_aside(row["note"])
        _print_comparisons([(difference_words(each), escape(table_effect(each))) for each in row["comparisons"]])


def _print_comparisons(rows: Sequence[tuple[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 1), pad_edge=False)
    table.add_column(min_width=2)
    for words, found in rows:
        table.add_row("", escape(words), found)
    out.print(table, highlight=False)


def _print_aside(text: str) -> None:
    from rich.padding import Padding

    out.print(Padding(f"[dim]{escape(text)}[/]", (0, 0, 0, 4), expand=False), highlight=False)


def _coloured(verdict: str, text: str) -> str:
    from fedtide.studies import EQUIVALENT

    colours = {"holds": "green", "contradicted": "red", EQUIVALENT: "cyan", "not resolved": "yellow"}
    colour = next((colour for kind, colour in colours.items() if verdict.startswith(kind)), "dim")
    return f"[{colour}]{escape(text)}[/]"


# ---- `fedtide worlds` and `fedtide skies`: the paper's main comparisons in other worlds and under other skies, from runs


_WIDE = 14  # columns of the terminal that a verdict takes; a claim takes two of them
_seeds_option = click.option("--seeds", "-n", type=click.IntRange(1, 20), help="Seeds per curve (default: 3 to 5).")


@command.command("worlds")
@options.cli_argument("names", "[WORLD]...", "paper, fashion, macro, walking, phones, cifar. Default: all.", nargs=-1)
@_seeds_option
@options.store_option("results/worlds")
@options.out_option("Folder for the figure and the page worlds.md.", "to", default=Path("docs"))
@options.work_options
@_draw_only_option
@options.style
@options.as_json
def worlds(**given: Any) -> None:
    """Test whether the paper's conclusions hold with different data, radio or device models.

    fedtide worlds --draw-only       write the page and its figure from the stored runs
    fedtide worlds macro --seeds 8   more seeds of one world
    """
    from fedtide_lab.worlds.studies import WORLDS_SURVEY

    _survey(WORLDS_SURVEY, **given)


@command.command("skies")
@options.cli_argument("names", "[SKY]...", "paper, macro, and others that docs/skies.md lists. Default: all.", nargs=-1)
@_seeds_option
@options.store_option("results/skies")
@options.out_option("Folder for the figure and the page skies.md.", "to", default=Path("docs"))
@options.work_options
@_draw_only_option
@options.style
@options.as_json
def skies(**given: Any) -> None:
    """Test which conclusions depend on Shannon's links: the same system with 5G modems, interference, measured links and satellites.

    fedtide skies --draw-only        write the page and its figure from the stored runs
    fedtide skies macro-nr cells     two skies; runs stored in results/worlds and results/league are reused
    """
    from fedtide_lab.skies.page import SKIES_SURVEY

    _survey(SKIES_SURVEY, **given)


def _survey(
    survey: Survey,
    names: tuple[str, ...],
    seeds: int | None,
    store: Path,
    to: Path,
    draw_only: bool,
    style: str,
    as_json: bool,
    **work: Any,
) -> None:
    """Run what is missing of a survey, draw its figure and write its page."""
    from fedtide.plot import style_named
    from fedtide.studies import Store
    from fedtide_lab.worlds import page
    from fedtide_lab.worlds.studies import collect_worlds

    style_named(style)  # before anything is run
    every = (*survey.worlds, *survey.arms)
    wanted = chosen_worlds(names, every, survey.called)
    kept = opened_store(store, to, survey.name)
    borrowed = [Store(store.parent / name) for name in survey.borrowed]
    failures: list[Outcome] = []
    if not draw_only:
        parts = [survey.study(world, range(seeds) if seeds else None) for world in wanted]
        known = {name for each in borrowed for name in each.names()}
        parts = [part._replace(runs=tuple(run for run in part.runs if run.name not in known)) for part in parts]
        failures = do_study_runs(survey.name, parts, kept, **work)
    say("reading and comparing the stored runs")
    results = collect_worlds(every, kept, *borrowed, study=survey.study)
    found = page.decided_worlds(survey.worlds, results, survey.claims)
    if not found:
        raise FedtideError(
            f"{store} holds no run of these {survey.name}; leave out --draw-only, or name another --store"
        )
    drawn = page.draw_worlds(found, to / "figures" / survey.name, style, survey.panels)
    page.write_worlds_page(to / f"{survey.name}.md", Path(f"figures/{survey.name}.png"), found, results, store, survey)
    say(f"drawn: {len(drawn)} files in {to / 'figures'}")
    say(f"written: {to / survey.name}.md")
    if as_json:
        print_json(page.world_rows(found, survey.called))
    else:
        _print_worlds(found)
    finish_study(failures)


def chosen_worlds(names: Sequence[str], worlds: Sequence[_World], called: str = "world") -> list[_World]:
    """Return the worlds named, all of them if none is; raise for a name that is none."""
    known = {world.name: world for world in worlds}
    for name in names:
        if name not in known:
            raise FedtideError(f"{called} {name!r} is not known; choose from {', '.join(known)}")
    return [known[name] for name in names or known]


def _print_worlds(found: list[Any]) -> None:
    from fedtide.report import TableColumn

    names = [each.world.name for each in found]
    claims = [verdict.claim.text for verdict in found[0].verdicts]
    verdicts = [[each.verdicts[number].verdict for each in found] for number in range(len(claims))]
    if out.width >= _WIDE * (len(names) + 2):
        columns = [TableColumn(name, wraps=True) for name in ("claim", *names)]
        every = zip(claims, verdicts, strict=True)
        print_table(columns, [(escape(claim), *(_coloured(cell, cell) for cell in cells)) for claim, cells in every])
        return
    for claim, cells in zip(claims, verdicts, strict=True):  # a column for every world would cut their verdicts
        where = {cell: [name for name, one in zip(names, cells, strict=True) if one == cell] for cell in cells}
        out.print(f"[bold]{escape(claim)}[/]", highlight=False)
        for cell, those in where.items():
            out.print(f"  {_coloured(cell, cell + ':')} {escape(', '.join(those))}", highlight=False)


# ---- `fedtide league`: the methods that papers cite, tuned alike, at equal airtime, in three worlds


@command.command("league")
@options.cli_argument(
    "names", "[WORLD]...", "paper, macro, phones, long, attacked, paper-codec, macro-codec. Default: all.", nargs=-1
)
@options.store_option("results/league")
@options.out_option("Folder for the figures and the page league.md.", "to", default=Path("docs"))
@click.option(
    "--rows",
    type=options.PATH,
    help="A YAML file with methods of your own, to be tuned and ranked with the others.",
)
@options.work_options
@_draw_only_option
@options.style
@options.as_json
def league(
    names: tuple[str, ...],
    store: Path,
    to: Path,
    rows: Path | None,
    draw_only: bool,
    style: str,
    as_json: bool,
    **work: Any,
) -> None:
    """Rank schedulers, servers, codecs and local methods with paired intervals: which method should you deploy?

    fedtide league --draw-only   write the page and its figures from the stored runs
    fedtide league macro         one world: about half an hour on two cores

    fedtide league paper --rows mine.yaml   with rows of your own, as in src/fedtide_lab/league/methods.yaml

    Each method is tuned with the same number of runs, on seeds and samples that do not rank it. Parts in files of your own are
    named as in any experiment.
    """
    from fedtide.plot import style_named
    from fedtide_lab.league import draw, page
    from fedtide_lab.league.methods import own_league_methods
    from fedtide_lab.league.ranking import ranking_benchmark, ranking_studies
    from fedtide_lab.league.tune import LEAGUE_WORLDS

    style_named(style)  # before anything is run
    wanted = chosen_worlds(names, LEAGUE_WORLDS)
    own = own_league_methods(rows) if rows else ()
    kept = opened_store(store, to, "league")
    failures: list[Outcome] = []
    if not draw_only:
        entries = _tuned(wanted, kept, own, work)
        for stage, parts in ranking_studies(wanted, entries, kept):
            failures += do_study_runs(stage, parts, kept, **work)
    say("reading and comparing the stored runs")
    ranked = ranking_benchmark(LEAGUE_WORLDS, kept, own)
    if not ranked:
        raise FedtideError(f"{store} holds no run of the league; leave out --draw-only, or name another --store")
    tables = [table for table, _ in ranked]
    runs = {table.world.name: results for table, results in ranked}
    figures = to / "figures"
    drawn = draw.draw_league_gains(tables, figures / "league", style) + draw.draw_league_curves(
        tables, runs, figures / "league-curves", style
    )
    links = [Path("figures/league.png"), Path("figures/league-curves.png")]
    page.write_league_page(to / "league.md", links, tables, runs, store)
    say(f"drawn: {len(drawn)} files in {to / 'figures'}")
    say(f"written: {to / 'league.md'}")
    if as_json:
        print_json(page.league_rows(tables))
    else:
        _league_print(tables)
    finish_study(failures)


def _tuned(worlds: Sequence[Any], store: Store, own: Sequence[Any], work: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Tune the methods of the league under a progress bar."""
    from fedtide.cli import study_progress
    from fedtide_lab.league.tune import TUNING_RUNS, tuned_entries

    total = TUNING_RUNS * sum(len(world.methods) + len(own) + 1 for world in worlds)
    done = 0
    faults: dict[str, str] = {}
    with study_progress("tuning", total, total) as advance:

        def on_done(outcome: Outcome) -> None:
            nonlocal done
            done += 1
            advance(1, done, f"{outcome.run.label}, seed {outcome.run.experiment.seed}")

        def on_fault(name: str, error: FedtideError) -> None:
            faults[name] = str(error)

        where = {name: work[name] for name in ("workers", "backend", "address")}
        entries = tuned_entries(worlds, store, own, on_done=on_done, on_fault=on_fault, **where)
    for name, reason in faults.items():
        say(f"left out: {name}: {reason}")
    return entries


def _league_print(tables: list[Any], most: int = 10) -> None:
    from fedtide.report import TableColumn
    from fedtide_lab.league.methods import PAPER_METHOD, REFERENCE
    from fedtide_lab.prose import gain_words

    words = {"method": True, "rank": False, "range": False, "accuracy": False, "gain over random": True}
    columns = [TableColumn(name, right=name in ("rank", "accuracy"), wraps=wraps) for name, wraps in words.items()]
    for each in tables:
        shown = [row for row in each.rows if row.rank <= most or row.name in (PAPER_METHOD, REFERENCE)]
        gains = {row.name: escape(gain_words(row.over_reference)) for row in shown}
        rows = [
            (escape(row.name), str(row.rank), f"{row.highest} to {row.lowest}", f"{row.accuracy:.3f}", gains[row.name])
            for row in shown
        ]
        print_table(columns, rows, each.world.title)


# ---- `fedtide essay`: one page over all of them, from the stored runs


@command.command("essay")
@options.store_option("results")
@options.out_option("The file to write.", "to", default=Path("build/essay.html"))
def essay(store: Path, to: Path) -> None:
    """Write one page over all stored results: which claims survive, and what to deploy.

    fedtide essay                  read results/, write build/essay.html
    fedtide essay -o essay.html    a single file that works offline
    """
    from fedtide.pages import check_page_output, write_page_output
    from fedtide_lab.essay.page import essay_page

    check_page_output(to)
    content = essay_page(store)
    to.parent.mkdir(parents=True, exist_ok=True)
    say(f"written: {to} ({write_page_output(to, content) / 1000:,.0f} kB)")


# ---- `fedtide theory`: Theorem 1, evaluated and measured


@command.command("theory")
@options.cli_argument(
    "words", "[KEY=VALUE]...", "Keys that override the default task; or `claims` for statements of the paper.", nargs=-1
)
@options.out_option("Output folder for theory.json and the figures; of `claims`: its results [results/theory].")
@click.option("--page", type=click.Path(path_type=Path), help="With `claims`: write its section of this page.")
@options.style
@options.as_json
@click.option("--keys", "show_keys", is_flag=True, help="List every key with its default and exit.")
def theory(
    words: tuple[str, ...], folder: Path | None, page: Path | None, style: str, as_json: bool, show_keys: bool
) -> None:
    """Evaluate Theorem 1: its constants and how they were obtained, the step-size condition, and the bound beside measurements.

    fedtide theory task=softmax num_levels=8 --out theory
    fedtide theory claims   # what the paper says about Gamma, zeta and gradient descent; minutes, unless stored
    """
    if show_keys:
        from fedtide.cli import key_row, print_keys
        from fedtide_lab.theory.options import Options

        fields = Options.model_fields
        print_keys({key: key_row(field.default, field) for key, field in fields.items()}, as_json)
        return
    if words == ("claims",):
        _theory_claims(folder or Path("results/theory"), page, as_json)
        return
    if page is not None:
        raise FedtideError("--page goes with `fedtide theory claims`; leave it out")
    from fedtide.plot import style_named
    from fedtide_lab.theory.command import run_theory

    run_theory(words, folder, out, as_json, say, style_named(style).name)


def _theory_claims(folder: Path, page: Path | None, as_json: bool) -> None:
    from fedtide.report import TableColumn
    from fedtide_lab.theory.claims import run_claims

    decided = run_claims(folder, page, say)
    if as_json:
        print_json([{"statement": statement, "verdict": verdict} for statement, verdict in decided.items()])
    else:
        print_table((TableColumn("statement", wraps=True), TableColumn("verdict")), list(decided.items()))
