"""What the league's page says in sentences: each is made of the runs, so that it follows when they change; and the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedtide import config
from fedtide.core.files import write_output
from fedtide.studies.paths import summary
from fedtide.studies.spec import name_of
from fedtide.studies.statistics import Comparison
from fedtide_lab.league.methods import DENSE, EVEN, GROUPS, PAPER_METHOD, RATES, REFERENCE
from fedtide_lab.league.ranking import Runs, Standing, Standings, gain_over, is_analog, league_effect
from fedtide_lab.league.tune import BASE, CHANCE, CONFIRMING, JOINED, RANKING_SEEDS, TUNING_SEED
from fedtide_lab.worlds.studies import plain_world

CAVEATS = """
**Read this first.** The ranking is confounded. Servers are compared under the paper's codec, while robust servers and SCAFFOLD
have the codec `dead_zone`: compare those with their control `dense_mean` only. Tuning used one seed and the test images that
rank the methods. A second season, without these faults, follows.
"""

CHANGED = """
## What changed

These runs were made anew, since the method was mended: `mifa` (its learning rate), `fadas` (its bias correction), `fedavgm`,
`fedadam` and `fedyogi` (float64 at the server), `whittle_age` and `drift_plus_penalty` (ties are drawn), `equal_weights` (its
candidates), `fedavg` with phones (its rounds wait for all who take part), and `joined`, which is made of the best. FedBuff's
own clock was mended, too; here it plays on the periodic one. Runs that diverged now count as chance, and targets are exact
decimals.
"""

# What short runs say about a run that diverged, by the name of that run: one run each, on the same seed, one thing changed.
CAUSES = {
    "6a40ded72056d809": "Local momentum and QSGD together are the cause: without local momentum, or with `dead_zone` or the "
    "paper's codec in the place of QSGD, the run learns. Without momentum at the server it does not: it falls to chance with "
    "updates added to the current model, and diverges with the paper's server (one run each)."
}


def findings(tables: Sequence[Standings], runs: Mapping[str, Runs]) -> list[str]:
    """Say what the tables come to."""
    parts = [*(_world(each, runs[each.arena.name]) for each in tables), *_design(tables, runs)]
    return [line for part in parts for line in (part, "")] + [_helping(tables), "", _robust(tables)]


def _world(each: Standings, runs: Runs) -> str:
    first = each.winner
    said = [
        f"**{each.arena.title}.** Deploy `{first.name}`{f' ({first.entry.method.title})' * (first.name == JOINED)}."
    ]
    shares = {what: cost.ratio for what, cost in first.costs.items() if cost.ratio and cost.ratio.verdict == "lower"}
    words = [f"{math.exp(shares[what].mean):.2f} of the {what}" for what in ("time", "joules") if what in shares]
    if words:
        said.append(f"It reaches {each.target:g} with {' and '.join(words)} that random scheduling needs.")
    alone = next((row for row in each.rows if row.name != JOINED), None)
    if first.name == JOINED and alone and alone.over_reference and first.over_reference:
        parts = (alone.over_reference.mean, first.over_reference.mean)
        said.append(
            f"The best single method, `{alone.name}`, has {parts[0]:+.3f} of its {parts[1]:+.3f} over random scheduling."
        )
    other = each.digital
    if is_analog(first) and other:
        said.append(
            f"It needs a radio that adds analog signals; with packets, deploy `{other.name}` ({other.entry.method.title}). On "
            f"the seeds that rank the first is ahead of the second by {_over(each, runs, first.name, other.name)}."
        )
        if again := each.confirmed.get(other.name, {}).get(REFERENCE):
            said.append(f"Over random scheduling `{other.name}` gains {resolved(again)} on fresh seeds.")
    for row in each.rows[: first.rank - 1]:
        said.append(f"`{row.name}` ranks before `{first.name}`, but{diverged_words(row, len(each.seeds))[1:]}.")
        found = each.confirmed.get(row.name, {}).get(REFERENCE)
        if found:
            said.append(f"Its gain over random scheduling on fresh seeds is {resolved(found)}.")
        lost = [run for run in runs[row.name].values() if run.diverged is not None]
        said += [CAUSES[name] for run in lost if (name := name_of(config.experiment(run.experiment))) in CAUSES]
    return " ".join(said)


def diverged_words(row: Standing, seeds: int) -> str:
    """Say on how many seeds a method diverged; nothing if on none."""
    counts = [(row.diverged, f"{seeds} seeds"), (row.diverged_fresh, f"{len(CONFIRMING)} fresh seeds")]
    return "".join(f", diverged on {count} of {of}" for count, of in counts if count)


def resolved(found: Comparison | None) -> str:
    """Write a gain with its interval, and that it is not resolved where it is not."""
    return league_effect(found) + ", not resolved" * (found is not None and found.verdict == "not resolved")


def _over(each: Standings, runs: Runs, name: str, other: str) -> str:
    """Write a method's gain over another on the seeds that rank."""
    one, two = ({seed: runs[which][seed] for seed in each.seeds if seed in runs[which]} for which in (name, other))
    return resolved(gain_over(one, two))


def _design(tables: Sequence[Standings], runs: Mapping[str, Runs]) -> list[str]:
    """Return a table of the paper's schedule, codec and clock against what else there is, one thing changed at a time."""

    def best(each: Standings, group: str, without: Sequence[str]) -> Standing | None:
        rows = (row for row in each.rows if row.entry.group == group and not row.entry.method.alone)
        return next((row for row in rows if row.name not in without), None)

    def place(each: Standings) -> str:
        names = [row.name for row in each.rows if row.entry.group == "schedule"]
        return f"{names.index(PAPER_METHOD) + 1} of {len(names)}" if PAPER_METHOD in names else ""

    def over(each: Standings, row: Standing | None, other: str) -> str:
        own = runs[each.arena.name]
        return f"`{row.name}` {_over(each, own, row.name, other)}" if row and other in own else ""

    clock = {each.arena.name: next((row for row in each.rows if row.name == "fedavg"), None) for each in tables}
    lines: dict[str, Callable[[Standings], str]] = {
        "its schedule among the schedules, all else as in the reference": place,
        "the best other schedule, over the paper's": lambda t: over(
            t, best(t, "schedule", (PAPER_METHOD, REFERENCE, EVEN)), PAPER_METHOD
        ),
        "the best other codec, over the paper's, with random scheduling": lambda t: over(
            t, best(t, "codec", ()), REFERENCE
        ),
        "synchronous rounds, over its periodic clock": lambda t: over(t, clock[t.arena.name], REFERENCE),
    }
    head = [
        "| the paper's own design | " + " | ".join(each.arena.title for each in tables) + " |",
        f"|---|{'---|' * len(tables)}",
    ]
    rows = [f"| {name} | {' | '.join(map(say, tables))} |" for name, say in lines.items()]
    return [
        "\n".join([*head, *rows]),
        "The best of several is chosen by its mean on the same seeds, so its gain is partly luck.",
    ]


def _helping(tables: Sequence[Standings]) -> str:
    """List the methods that are ahead of random scheduling everywhere, and nowhere."""
    verdicts: dict[str, list[str]] = {}
    for each in tables:
        for row in each.rows:
            if row.over_reference:
                verdicts.setdefault(row.name, []).append(row.over_reference.verdict)
    everywhere = [name for name, found in verdicts.items() if set(found) == {"higher"} and len(found) == len(tables)]
    nowhere = [name for name, found in verdicts.items() if "higher" not in found]
    return (
        f"**What helps, and what does not.** Ahead of random scheduling in every world: {_listed(everywhere)}. In none: "
        f"{_listed(nowhere)}. Both by single 95 % intervals, and for short runs with this tuning."
    )


def _robust(tables: Sequence[Standings]) -> str:
    """Say what robust servers cost where nobody attacks."""
    found: dict[str, list[str]] = {}
    for each in tables:
        for row in each.rows:
            if row.entry.group == "robust" and row.name != DENSE and row.over_control:
                found.setdefault(row.name, []).append(resolved(row.over_control))
    words = "; ".join(f"`{name}` {' / '.join(gains)}" for name, gains in found.items())
    return (
        f"**Robust servers without an attacker**, over their control `{DENSE}`, world by world: {words or 'no runs'}."
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


LEAGUE_RULES = """
- **Equal airtime.** Every method has the same symbols per unit of time, those of n in every period of T_max/4. FedAvg's
  rounds last T_max and have 4 n each; over the air, updates take d/2 symbols of the n, whoever sends. Methods from
  asynchronous clocks (FedAsync, FedBuff, CA2FL, FADAS, ...) play on the periodic one: on their own, the number of uploads is
  set by the fastest device and has no finite expectation, since T_k may be near 0 ([paper](paper.md) has FedAsync on its
  own clock).
- **Equal tuning.** Each method has {candidates} candidates: learning rates {rates} of the devices, times two settings of its
  own; where it has none, the weights gamma^age with gamma = 1 or 0.846. `equal_weights` has nothing to set: it has the
  learning rates 0.07, 0.1, 0.14 and 0.2. The best by mean accuracy on seed {seed}, world by
  world, plays on seeds 0 to {last}. The grids are ours, the same in all worlds.
- **Divergence.** A run whose numbers do not stay finite counts as chance, {chance:g}, from then on, when its method is
  ranked and confirmed; in tuning, a candidate that diverged is behind all that stayed finite. An entry of which a run
  diverged, on any seed that it played, is not recommended. Such runs are stored as all others.
- **Controls.** The reference may choose gamma; a method with a setting of its own has gamma = 1, and is compared with random
  scheduling at gamma = 1 (`equal_weights`), too. Robust servers and SCAFFOLD need dense updates, and have `dead_zone` and
  updates added to the current model: so has their control, `dense_mean`. Compare them with it, not with random scheduling.
  `over_the_air` may have 40 devices send at a time, and sends no bits.
- **`joined`** is the best schedule, server, codec and local method of a world in one (those that beat their controls), as
  tuning on that seed says: it has had the tuning of all, and four runs of its own.
- **Ranks** go by the accuracy averaged over the horizon from time 0. The range in brackets is what the 95 % intervals of
  paired differences leave open. **++** and **−−**: resolved even among all comparisons of a world (Bonferroni); + and −: by its
  own 95 % interval, of which one in twenty misleads; · not resolved.
- **Costs** are medians over the seeds until the first evaluation at the target, a round number below where random scheduling
  ends; ×: geometric mean of the share of what random scheduling needs, * if that is resolved. Bits include reports to the
  server. A symbol costs 1 µJ (0.2 W at 200,000 symbols/s), a sample visited 0.1 mJ (1e6 cycles at 1 GHz, kappa = 1e-28).
- **Short and small.** 10 T_max, 8,000 training samples, N = 40, R = 8, non-i.i.d.: what is ahead in 40 aggregations need not be
  in 400. Nobody attacks: robust servers are here for what they cost.
- All runs have {common} unless said otherwise.
"""


# The page docs/league.md: what to deploy in every world and how sure that is, then all ranks, costs and settings.


_MARKS = {"higher": "+", "lower": "−"}
_MOST_RIVALS = 8  # that are named
_UNITS = {"time": ("time", 1.0, "{:.2f}"), "bits": ("Mbit", 1e6, "{:.1f}"), "joules": ("J", 1.0, "{:.0f}")}


def write_league_page(
    page: Path, gains: Path, curves: Path, tables: Sequence[Standings], runs: Mapping[str, Runs]
) -> None:
    """Write the page beside its figures."""
    lines = ["# A league of methods: same clock, same radio, same airtime", "", *_opening(tables, runs), ""]
    lines += [*CAVEATS.strip().splitlines(), ""]
    lines += ["## What to deploy, and how sure we are", "", *_answers(tables), "", *findings(tables, runs), ""]
    lines += [*CHANGED.strip().splitlines(), "", f"![Gains over random scheduling in every world]({gains})", ""]
    lines += [
        "The entries whose worst rank in the three worlds is best, with 95 % intervals of differences seed by seed. Green: "
        "ahead of random scheduling; orange: behind; grey: not resolved. Note the scales.",
        "",
    ]
    for each in tables:
        lines += [f"## {each.arena.title}", "", f"{each.arena.differs}.", "", *_standings(each), ""]
    lines += ["## Over time, bits and joules", "", f"![Accuracy of the leaders]({curves})", ""]
    lines += ["Mean over the seeds; dotted: the target of the tables.", "", "## Rules", "", *_rules(), ""]
    lines += ["## Settings as tuned", "", *_settings(tables)]
    page.parent.mkdir(parents=True, exist_ok=True)
    content = ("\n".join(lines).rstrip() + "\n").encode()
    write_output(page, content, rb"# .*fedtide league", "a page of `fedtide league`")


def league_rows(tables: Sequence[Standings]) -> list[dict[str, Any]]:
    """Return everything as plain data, for `--json`."""
    return [
        {
            "world": each.arena.name,
            "method": row.name,
            "group": row.entry.group,
            "rank": row.rank,
            "rank_range": [row.highest, row.lowest],
            "diverged": row.diverged,
            "diverged_fresh": row.diverged_fresh,
            "mean_accuracy": row.accuracy,
            "final_accuracy": row.final,
            "gain_over_random": _plain(row.over_reference),
            "control": row.entry.method.control,
            "gain_over_control": _plain(row.over_control or row.over_reference),
            "gain_over_proposed": _plain(row.over_paper),
            "target": each.target,
            **{
                f"{what}_to_target": cost.middle if math.isfinite(cost.middle) else None
                for what, cost in row.costs.items()
            },
            "settings": plain_world(row.entry.tree),
        }
        for each in tables
        for row in each.rows
    ]


def _plain(found: Comparison | None) -> dict[str, Any] | None:
    """Return a gain as plain data, without what JSON cannot say."""
    return found and {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in found._asdict().items()
    }


def _opening(tables: Sequence[Standings], runs: Mapping[str, Runs]) -> list[str]:
    results = [result for world in runs.values() for seeds in world.values() for result in seeds.values()]
    methods = max(len(each.rows) for each in tables)
    return [
        f"{methods} entries in {len(tables)} worlds: the same devices, data, fading and symbols for all, each method tuned "
        "with the same number of runs on a seed that does not rank, differences taken seed by seed. `fedtide league` runs "
        "what is missing and writes this page; the runs are in `results/league`, and `fedtide report results/league` is a "
        "page to click through. What the methods are: [methods](methods.md), [schedulers](schedulers.md), "
        "[codecs](codec.md).",
        "",
        summary(results),
    ]


def _answers(tables: Sequence[Standings]) -> list[str]:
    lines = [
        "| world | deploy | accuracy over the horizon, at its end | statistically tied with | over random "
        "| over the paper's schedule | the paper's schedule: rank (range) |",
        f"|{'---|' * 7}",
    ]
    for each in tables:
        first, paper = each.winner, next((row for row in each.rows if row.name == PAPER_METHOD), None)
        rivals = ", ".join(f"`{row.name}`" for row in each.level[:_MOST_RIVALS]) or "none"
        rivals += f" and {len(each.level) - _MOST_RIVALS} more" if len(each.level) > _MOST_RIVALS else ""
        place = f"{paper.rank} ({paper.highest} to {paper.lowest}) of {len(each.rows)}" if paper else "lacks runs"
        again = each.confirmed.get(first.name, {})
        over = [_again(again.get(name)) if name != first.name else "" for name in (REFERENCE, PAPER_METHOD)]
        lines.append(
            f"| {each.arena.title} | **{_named(first)}** | {first.accuracy:.3f}, {first.final:.3f} | {rivals} "
            f"| {over[0]} | {over[1]} | {place} |"
        )
    return [
        *lines,
        "",
        f"Ranked on seeds 0 to {RANKING_SEEDS - 1}. The winner is the best entry of which no run diverged, on "
        "these or on fresh seeds. "
        f"The gains in this table are from the fresh seeds {CONFIRMING[0]} to {CONFIRMING[-1]}: the best of many entries is "
        "partly lucky, and fresh seeds remove that bias. Only the winner (also of those that send packets), entries ranked "
        "before it, the paper's schedule and random scheduling ran on them, so they confirm a gain over these two, not the "
        f"first rank. A run that diverged counts as chance ({CHANCE:g}) from then on, in tuning, ranks and gains.",
    ]


def _again(found: Comparison | None) -> str:
    """Write a gain on fresh seeds, and on how many of them, if some are missing."""
    if found is None:
        return "not run yet"
    missing = found.num_seeds < len(CONFIRMING)
    return league_effect(found) + (f", {found.num_seeds} of {len(CONFIRMING)} seeds" if missing else "")


def _named(row: Standing) -> str:
    return f"`{row.name}`: {row.entry.method.title}" if row.name == JOINED else f"`{row.name}`"


def _standings(each: Standings) -> list[str]:
    heads = " | ".join(f"{unit} to {each.target:.2f}" for unit, _, _ in _UNITS.values())
    lines = [
        f"| rank (range) | method | changes | gain over random | over its control | accuracy: mean, at the end | {heads} |",
        f"|{'---|' * 9}",
    ]
    for row in each.rows:
        name = f"**`{row.name}`**" if row.name in (PAPER_METHOD, REFERENCE, JOINED) else f"`{row.name}`"
        name += diverged_words(row, len(each.seeds))
        mark = _MARKS.get(row.over_reference.verdict, "·") if row.over_reference else ""
        mark = f"**{mark}{mark}**" if row.surely else mark
        costs = " | ".join(_cost(row, what) for what in _UNITS)
        lines.append(
            f"| {row.rank} ({row.highest} to {row.lowest}) | {name} | {row.entry.group} "
            f"| {mark} {league_effect(row.over_reference)} | {league_effect(row.over_control)} | "
            f"{row.accuracy:.3f}, {row.final:.3f}"
            f" | {costs} |"
        )
    if each.left_out:
        missing = ", ".join(f"`{name}` ({count} of {len(each.seeds)})" for name, count in each.left_out.items())
        lines += ["", f"Left out, since runs are missing: {missing}."]
    return lines


def _cost(row: Standing, what: str) -> str:
    """Write what the target costs, in brackets as a share of the reference's."""
    cost, (_, unit, form) = row.costs[what], _UNITS[what]
    if what == "bits" and is_analog(row):
        return "analog"
    some = f", {cost.reached} of {cost.seeds}" if cost.reached < cost.seeds else ""
    if not math.isfinite(cost.middle):
        return f"not reached{some}"
    words = form.format(cost.middle / unit)
    if cost.ratio is None or cost.ratio.verdict == "no difference":
        return words + some
    star = "" if cost.ratio.verdict == "not resolved" else "*"
    return f"{words} (×{math.exp(cost.ratio.mean):.2f}{star}{some})"


def _rules() -> list[str]:
    common = ", ".join(f"`{word}`" for word in plain_world(BASE))
    rates = " and ".join(f"{rate:g}" for rate in RATES)
    return [
        LEAGUE_RULES.strip().format(
            common=common,
            rates=rates,
            candidates=2 * len(RATES),
            seed=TUNING_SEED,
            last=RANKING_SEEDS - 1,
            chance=CHANCE,
        )
    ]


def _settings(tables: Sequence[Standings]) -> list[str]:
    heads = " | ".join(each.arena.title for each in tables)
    lines = ["| method | what it is | the same in all worlds | " + heads + " |", f"|---|---|---|{'---|' * len(tables)}"]
    for group in GROUPS:
        for method in group.methods:
            entries = [next((row.entry for row in each.rows if row.name == method.name), None) for each in tables]
            cells = [
                " ".join(f"`{word}`" for word in plain_world({**entry.setting, "rate": entry.rate})) if entry else ""
                for entry in entries
            ]
            same = " ".join(f"`{word}`" for word in plain_world(method.tree)) or "the reference"
            lines.append(f"| `{method.name}` | {method.title} | {same} | {' | '.join(cells)} |")
    for each in tables:
        for row in each.rows:
            if row.name == JOINED:
                words = " ".join(f"`{word}`" for word in plain_world(row.entry.tree))
                lines.append(
                    f"| `{JOINED}` | in {each.arena.title}: {row.entry.method.title} | {words} |{' |' * len(tables)}"
                )
    return ["<details><summary>All of them</summary>", "", *lines, "", "</details>"]
