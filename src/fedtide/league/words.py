"""What the league's page says in sentences: each is made of the runs, so that it follows when they change; and the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fedtide import config
from fedtide.league.methods import DENSE, EVEN, PAPER, REFERENCE
from fedtide.league.playing import CONFIRMING, JOINED
from fedtide.league.ranking import Row, Runs, Table, effect, gain, is_analog
from fedtide.studies.spec import name_of
from fedtide.studies.statistics import Comparison

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
    "6410069868457982": "Local momentum and QSGD together are the cause: without local momentum, or with `dead_zone` or the "
    "paper's codec in the place of QSGD, the run learns. Without momentum at the server it does not: it falls to chance with "
    "updates added to the current model, and diverges with the paper's server (one run each)."
}


def findings(tables: Sequence[Table], runs: Mapping[str, Runs]) -> list[str]:
    """Say what the tables come to."""
    parts = [*(_world(each, runs[each.arena.name]) for each in tables), *_design(tables, runs)]
    return [line for part in parts for line in (part, "")] + [_helping(tables), "", _robust(tables)]


def _world(each: Table, runs: Runs) -> str:
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


def diverged_words(row: Row, seeds: int) -> str:
    """Say on how many seeds a method diverged; nothing if on none."""
    counts = [(row.diverged, f"{seeds} seeds"), (row.diverged_fresh, f"{len(CONFIRMING)} fresh seeds")]
    return "".join(f", diverged on {count} of {of}" for count, of in counts if count)


def resolved(found: Comparison | None) -> str:
    """Write a gain with its interval, and that it is not resolved where it is not."""
    return effect(found) + ", not resolved" * (found is not None and found.verdict == "not resolved")


def _over(each: Table, runs: Runs, name: str, other: str) -> str:
    """Write a method's gain over another on the seeds that rank."""
    one, two = ({seed: runs[which][seed] for seed in each.seeds if seed in runs[which]} for which in (name, other))
    return resolved(gain(one, two))


def _design(tables: Sequence[Table], runs: Mapping[str, Runs]) -> list[str]:
    """Return a table of the paper's schedule, codec and clock against what else there is, one thing changed at a time."""

    def best(each: Table, group: str, without: Sequence[str]) -> Row | None:
        rows = (row for row in each.rows if row.entry.group == group and not row.entry.method.alone)
        return next((row for row in rows if row.name not in without), None)

    def place(each: Table) -> str:
        names = [row.name for row in each.rows if row.entry.group == "schedule"]
        return f"{names.index(PAPER) + 1} of {len(names)}" if PAPER in names else ""

    def over(each: Table, row: Row | None, other: str) -> str:
        own = runs[each.arena.name]
        return f"`{row.name}` {_over(each, own, row.name, other)}" if row and other in own else ""

    clock = {each.arena.name: next((row for row in each.rows if row.name == "fedavg"), None) for each in tables}
    lines: dict[str, Callable[[Table], str]] = {
        "its schedule among the schedules, all else as in the reference": place,
        "the best other schedule, over the paper's": lambda t: over(
            t, best(t, "schedule", (PAPER, REFERENCE, EVEN)), PAPER
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


def _helping(tables: Sequence[Table]) -> str:
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


def _robust(tables: Sequence[Table]) -> str:
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


RULES = """
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
