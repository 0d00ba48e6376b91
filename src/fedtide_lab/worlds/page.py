"""What the page of the worlds says in sentences. Every number is filled in from the runs, so that it follows when they change.

A place such as {macro[random][kept]} is a cell of the page's table of worlds: world, schedule, column.
{macro[change][random, BC]} is what the gain of random over BC changes by from the paper's cell to that world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedtide.core.files import write_output
from fedtide.plot.figure import name_panel, our_style, save, sheet
from fedtide.plot.forest import TINTS, ForestRow, draw_rows, few_numbers
from fedtide.plot.style import SCREEN
from fedtide.studies.paths import summary
from fedtide.studies.results import RunResult
from fedtide.studies.statistics import CONFIDENCE, final_accuracy
from fedtide.studies.table import effect
from fedtide_lab.paper.claims import FigureResults, Verdict, decide
from fedtide_lab.paper.page import RULE
from fedtide_lab.paper.reproduce import claims_rows, in_words
from fedtide_lab.worlds.studies import (
    COMMON_KEYS,
    CURVES,
    HORIZON,
    NO_CLAIMS,
    WORLDS,
    Change,
    World,
    change,
    claims,
    plain_world,
)

EXPLAINED = {
    "macro": """
**A macro cell.** Symbols are shared so that all who upload in a period send the same number of bits, so one poor link
costs all of them. In the paper's cell a poor link lasts one period; with path loss and shadowing it belongs to a
device. Under random scheduling an update keeps {macro[random][kept]} of its elements here and {paper[random][kept]} in
the paper's cell. Here it keeps {macro[proposed][kept]} under the proposed schedule and {macro[BC][kept]} under BC. But
then some devices never upload: {macro[BC][never]} under BC, {macro[proposed][never]} under the proposed schedule,
{macro[random][never]} under random scheduling. From the paper's cell to this one the gain of the proposed schedule over
random changes by {macro[change][proposed, random]}, and that of random over BC by {macro[change][random, BC]}.
""",
    "walking": """
**Slow fading, estimated.** Two things change at once: fading lasts over periods, and the server has estimates of the
links. An update whose packet has more bits than its link carries is lost: {walking[random][lost]} of them under random
scheduling, {walking[proposed][lost]} under the proposed schedule, {walking[BC][lost]} under BC. These runs do not
separate the two changes.
""",
    "phones": """
**Phones that come and go.** A device that leaves with a model comes back with an old update. Under random scheduling
ages are {phones[random][age]} periods (mean, largest) here and {paper[random][age]} in the paper's cell. An update
weighs in proportion to gamma^age, so gamma matters more where updates are older. From the paper's cell to this world
the gain of fresh updates changes by {phones[change][random, fresh, random]} under random scheduling and
{phones[change][proposed, fresh, proposed]} under the proposed schedule, that of old updates by
{phones[change][random, old, random]} and {phones[change][proposed, old, proposed]}. Two things change at once: when
devices are there, and how long a job takes. These runs do not separate them.
""",
    "cifar": """
**CIFAR-10** changes the images, the model, how labels are dealt, the learning rate, the batches and the symbols at
once, with fewer samples and fewer seeds. What differs there cannot be put down to one of them.
""",
}

CHANGED = """
## What changed

The runs with slow fading were made anew. An update is now lost if its packet has more bits than the link carries. Before, the
bits that were granted decided, whether or not the packet used them, and the page explained what followed from that. FedAvg
with phones was made anew, too: its rounds wait for all who take part, so that no update is stale. Differences between worlds
are now tested, and sentences that no run carried are gone.
"""

NOT_ASKED = """
**What was not asked.** BCBN2, FedAsync, i.i.d. data and other R; horizons beyond 10 T_max. `fedtide worlds` takes more seeds,
and a world is a few lines in `src/fedtide_lab/worlds/studies.py`.
"""


# The page docs/worlds.md: a verdict for every claim in every world, with its interval, and what the worlds are like.


_SIGNS = {"holds": "**+**", "contradicted": "**−**", "not resolved": "·", "runs missing": ""}
_CELL = WORLDS[0].name  # the paper's
_SHOWN = ("proposed", "random", "BC")  # schedules in the table of what worlds are like, and its columns
_DESCRIBED = ("ready", "capacity", "kept", "lost", "age", "never", "variance", "end")
# What the figure shows: claim, title of its panel
PANELS = {
    "random": "proposed over random",
    "BC": "proposed over BC",
    "random over BC": "random over BC",
    "FedAvg": "T_max/4 over FedAvg",
    "T_max/2": "T_max/4 over T_max/2",
    "fresh": "γ = 0.846 over γ = 1, random",
}


class Decided(NamedTuple):
    """A world with its claims, decided."""

    world: World
    verdicts: tuple[Verdict, ...]
    others: tuple[Verdict, ...]  # by the other measure


def decided(worlds: Sequence[World], results: FigureResults) -> list[Decided]:
    """Decide every claim in every world that has runs."""
    return [
        Decided(
            world,
            tuple(decide(each, results) for each in claims(world.name)),
            tuple(decide(each.by_other_measure(), results) for each in claims(world.name)),
        )
        for world in worlds
        if results.get(world.name)
    ]


def world_rows(found: Sequence[Decided]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [{"world": each.world.name, **row} for each in found for row in claims_rows(each.verdicts, each.others)]


def draw_worlds(found: Sequence[Decided], stem: Path, style: str = SCREEN) -> list[Path]:
    """Draw the main gains with their intervals, a panel for each comparison and a line for each world."""
    with our_style(style) as how:
        page, grid = sheet(how, 3, 2, 0.55 + 0.19 * len(found), sharey=not how.stacked)
        for number, (panel, (claim, title)) in enumerate(zip(grid.ravel(), PANELS.items(), strict=True)):
            rows = []
            for each in found:
                finding = next(v for v in each.verdicts if v.claim.name == claim).findings[0]
                rows.append(ForestRow(each.world.title, finding.at(CONFIDENCE), finding.answer(), finding.difference))
            draw_rows(panel, rows, TINTS)
            few_numbers(panel)
            name_panel(panel, how, number, title.replace("T_max", r"$T_{\max}$"))
        label = "gain in mean accuracy, seed by seed, with its 95 % interval"
        page.supxlabel(label, fontsize=how.size if how.titles else how.small)
        return save(page, stem)


def write_worlds_page(page: Path, figure: Path, found: Sequence[Decided], results: FigureResults) -> None:
    """Write the page beside its figure."""
    lines = ["# Do the paper's conclusions survive outside its laboratory?", "", *_opening(found, results), ""]
    lines += [
        f"![The main differences in every world]({figure})",
        "",
        "Gains of the first over the second. Green circles: resolved as claimed; orange crosses: the other way; open grey "
        "diamonds: not resolved. Small strokes are single seeds.",
        "",
    ]
    lines += [
        "## Verdicts",
        "",
        *_table(found),
        "",
        RULE,
        "",
        "## What differs from the paper's cell",
        "",
        *_differences(found, results),
        "",
        *CHANGED.strip().splitlines(),
        "",
    ]
    lines += ["## What the worlds are like", "", *_alike(found, results), "", "## The worlds", "", *_worlds(found), ""]
    lines += ["## Every comparison", "", *_comparisons(found)]
    page.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines).rstrip() + "\n").encode()
    write_output(page, content, rb"# .*fedtide worlds", "a page of `fedtide worlds`")


def _opening(found: Sequence[Decided], results: FigureResults) -> list[str]:
    common = ", ".join(f"`{word}`" for word in plain_world(COMMON_KEYS))
    runs = [result for curves in results.values() for seeds in curves.values() for result in seeds.values()]
    return [
        "Hu, Chen and Larsson's conclusions rest on MNIST, i.i.d. Rayleigh fading and devices that are always there. Here are "
        "their main comparisons again, in the paper's own cell and with different data, radio or device models. Some worlds "
        "change more than one thing, as the table of worlds says. `fedtide worlds` runs what is missing and writes this page; "
        "the runs are in `results/worlds`.",
        "",
        f"**These runs are short and small**: {HORIZON:g} T_max instead of 35 and 8,000 training samples instead of 60,000 "
        "(CIFAR-10: 4,000), so that the whole page costs less than an hour of one core. What they say holds for the "
        "first 40 "
        "aggregations; [paper.md](paper.md) has the paper's cell in full. Data is non-i.i.d. throughout. All worlds have "
        f"{common} unless said otherwise. Accuracies are compared as averages over the horizon from time 0, seed by seed.",
        "",
        f"{summary(runs)}",
    ]


def _seeds(each: Decided) -> int:
    return max((len(finding.difference) for verdict in each.verdicts for finding in verdict.findings), default=0)


def _table(found: Sequence[Decided]) -> list[str]:
    head = " | ".join(f"{each.world.title} ({_seeds(each)} seed{'s' * (_seeds(each) != 1)})" for each in found)
    lines = [f"| claim | {head} |", f"|---|{'---|' * len(found)}"]
    for number, claim in enumerate(claims("")):
        cells = [_cell(each.verdicts[number]) for each in found]
        lines.append(f"| {claim.text} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        "**+** holds, **−** contradicted, · not resolved; then the difference on which it hangs, with its 95 % interval. "
        "That random scheduling beats BC, and that favouring old updates beats gamma = 1, are no claims of the paper: they "
        "stand here for comparison.",
    ]


def _cell(verdict: Verdict) -> str:
    interval = verdict.weakest.at(CONFIDENCE)
    if interval is None:
        return _SIGNS[verdict.verdict]
    if not np.isfinite(interval.low):
        return f"{interval.mean:+.3f} (one seed)"
    return f"{_SIGNS[verdict.verdict]} {interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def _differences(found: Sequence[Decided], results: FigureResults) -> list[str]:
    """Return what each gain changes by from the paper's cell to every other world, tested, and what is known of the reasons."""
    others = [each for each in found if each.world.name != _CELL]
    checks = {", ".join(map(str, check[1:3])): check for claim in claims("") for check in claim.checks}
    told: dict[str, dict[str, Any]] = {each.world.name: _by_schedule(each, results) for each in found}
    lines = [f"| gain of | {' | '.join(each.world.title for each in others)} |", f"|---|{'---|' * len(others)}"]
    count = 0
    for name, check in checks.items():
        changes = {each.world.name: change(check._replace(figure=each.world.name), results) for each in others}
        for world, made in changes.items():
            told[world].setdefault("change", {})[name] = _resolved(made)
        count += sum(made is not None for made in changes.values())
        lines.append(f"| {check.better} over {check.worse} | {' | '.join(map(_bold, changes.values()))} |")
    complete = [name for name in EXPLAINED if all(set(_SHOWN) <= told.get(each, {}).keys() for each in (name, _CELL))]
    return [
        _in_short(found),
        "",
        "What a gain is in a world, less what it is in the paper's cell:",
        "",
        *lines,
        "",
        "A seed means the same T_k (but for phones), the same shards of the data (but for CIFAR-10) and the same Rayleigh "
        "fading (but for slow fading) in two worlds, so these differences are taken seed by seed, too. Such an interval is "
        "right whether or not two worlds are correlated. **Bold**: the 95 % interval excludes zero; †: only with paired seeds, "
        f"Welch's for two samples does not. Of these {count}, {count * (1 - CONFIDENCE):.0f} would be bold by chance.",
        *(line for name in complete for line in ("", " ".join(EXPLAINED[name].split()).format(**told))),
        "",
        *NOT_ASKED.strip().splitlines(),
    ]


def _in_short(found: Sequence[Decided]) -> str:
    """Say in how many worlds each claim of the paper holds, and where one is contradicted."""
    counts, against = [], []
    for number, claim in enumerate(claims("")):
        verdicts = {each.world.title: each.verdicts[number].verdict for each in found}
        if claim.name not in NO_CLAIMS:
            counts.append(f"{claim.text.rstrip('.')} ({list(verdicts.values()).count('holds')})")
            against += [f"{claim.text} ({title})" for title, verdict in verdicts.items() if verdict == "contradicted"]
    contradicted = (
        f"Contradicted: {' '.join(against)}" if against else "No claim of the paper is contradicted in any world."
    )
    return f"**In short.** {contradicted} In how many of the {len(found)} worlds each holds: {'; '.join(counts)}."


def _by_schedule(each: Decided, results: FigureResults) -> dict[str, Any]:
    runs = results[each.world.name]
    described = {name: _described(list(runs[name].values())) for name in _SHOWN if runs.get(name)}
    return {name: dict(zip(_DESCRIBED, cells, strict=True)) for name, cells in described.items()}


def _bold(made: Change | None) -> str:
    words = _resolved(made).removesuffix(", not resolved")
    if made is None or made.paired.verdict not in ("higher", "lower"):
        return words
    return f"**{words}**{'' if made.is_unpaired else ' †'}"


def _resolved(made: Change | None) -> str:
    if made is None:
        return ""
    found = made.paired
    if not np.isfinite(found.low):
        return f"{found.mean:+.3f} (one seed)"
    words = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
    return words + ", not resolved" * (found.verdict == "not resolved")


def _alike(found: Sequence[Decided], results: FigureResults) -> list[str]:
    """Return a table of what links, ages and uploads are under three schedules in every world."""
    lines = [
        "At T_max/4, over all uploads and seeds:",
        "",
        "| world | schedule | ready per aggregation | capacity of those picked, bit/symbol: 5 %, median, 95 % "
        "| kept of an update | lost | age: mean, largest | devices that never upload | variance of labels "
        "| accuracy at the end |",
        f"|{'---|' * 10}",
    ]
    for each in found:
        for schedule in _SHOWN:
            runs = list(results[each.world.name].get(schedule, {}).values())
            if runs:
                lines.append(f"| {each.world.title} | {schedule} | {' | '.join(_described(runs))} |")
    return lines


def _described(runs: Sequence[RunResult]) -> list[str]:
    def flat(name: str) -> Any:
        return np.concatenate([getattr(run.uploads, name) for run in runs])

    def total(name: str) -> float:
        return float(np.mean([run.totals[name] or 0 for run in runs]))

    age = flat("age")
    low, middle, high = np.quantile(flat("capacity"), [0.05, 0.5, 0.95])
    ready = np.concatenate([run.uploads.num_ready for run in runs])
    end = np.mean([final_accuracy(run) for run in runs])
    return [
        f"{ready.mean():.1f}",
        f"{low:.2f}, {middle:.2f}, {high:.2f}",
        f"{100 * total('mean_kept_share'):.0f} %",
        f"{100 * flat('lost').mean():.0f} %",
        f"{age.mean():.2f}, {age.max()}",
        f"{100 * np.mean([_never(run) for run in runs]):.0f} %",
        f"{total('mean_label_variance'):,.0f}",
        f"{end:.3f}",
    ]


def _never(run: RunResult) -> float:
    """Return the share of the devices that never uploaded."""
    devices = int(run.experiment["fleet"]["num_devices"])
    return 1 - len(np.unique(run.uploads.picked)) / devices


def _worlds(found: Sequence[Decided]) -> list[str]:
    lines = ["| world | what differs | as keys |", "|---|---|---|"]
    for each in found:
        words = " ".join(f"`{word}`" for word in plain_world(each.world.tree)) or "the defaults"
        lines.append(f"| {each.world.title} | {each.world.differs} | {words} |")
    return [
        *lines,
        "",
        f"Curves in every world: {', '.join(CURVES)}. FedAvg and the periods are with random scheduling.",
    ]


def _comparisons(found: Sequence[Decided]) -> list[str]:
    lines: list[str] = []
    for each in found:
        lines += [f"### {each.world.title}", "", "| comparison | mean accuracy | at the end |", "|---|---|---|"]
        seen: set[str] = set()
        for row in claims_rows(each.verdicts, each.others):
            for comparison in row["comparisons"]:
                words = _words(comparison)
                if words not in seen:
                    seen.add(words)
                    other = effect(comparison["by_other_measure"])
                    lines.append(f"| {words} | {effect(comparison)} | {other} |")
        lines.append("")
    return lines


def _words(comparison: Mapping[str, Any]) -> str:
    return in_words(comparison).rstrip(", ")
