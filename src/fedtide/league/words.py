"""What is said on the league's page by hand: from the page's own numbers, and the rules."""

from __future__ import annotations

FOUND = """
**In the paper's cell** deploy the paper's schedule together with the codec `dead_zone`, updates that are added to the
current model and local momentum 0.5: 0.9 is reached in 0.44 of the time and with 0.43 of the joules that random
scheduling needs. Nobody is level with it on the seeds that rank, and fresh seeds say the same. Most of it is not the
schedule: `dense_mean`, the same codec and server under random scheduling, has +0.068 of the +0.110.

**In the crowded macro cell** bits are scarce: codecs that fill them better and schedules that prefer good channels
gain 0.2 to 0.35. `joined` is first on seeds 0 to 4, but **on fresh seed 11 its training did not stay finite** (it has
momentum at the server and on the devices; which of the two it was, nobody looked). Deploy `dense_mean` there, random
scheduling with `dead_zone` and updates added to the current model, which is 0.035 (0.013 to 0.057) behind and whose
runs all stayed finite; or `over_the_air` where the radio can do it: the two are level (+0.006, -0.007 to +0.019).

**With phones that come and go** deploy `joined`, the paper's schedule with QSGD and AsyncFedED's server. `scaffold`
is not to be told from it on the seeds that rank, and is itself level with its control `dense_mean` (+0.015, -0.008 to
+0.038): it is not resolved that control variates are what it owes its place to.

**Where the paper's own design stands.** Its schedule is first of the thirteen schedules in the paper's cell and with
phones, where it is 5th of all 44 entries; in the macro cell it is 17th, and a soft trade of rate and labels in the
place of its hard cut at half of the channels is ahead by +0.078, not resolved (-0.016 to +0.172). In the paper's cell
the soft one is behind by 0.011 (0.005 to 0.017). Its codec holds it back: by their means, changing nothing but the
codec gains more than changing nothing but the schedule in two of three worlds, and the paper's codec is in none of
the winners. Its periodic clock is right: synchronous FedAvg is last or next to last in the other two worlds (-0.116
and -0.099), and not resolved in the macro cell.

**What hardly helps here.** Adaptive servers (FedAdam, FedYogi, FADAS), FedAsync in its three forms, FedAT and MIFA
are level with random scheduling or behind it outside the macro cell; that says something of 40 aggregations with this
tuning, and nothing of 4,000. Fairness and age (`proportional_fair`, `age_based`, `whittle_age`) cost accuracy there,
too, and gain, if at all, where they bring better channels. Robust servers without an attacker cost 0.02
(`trimmed_mean`) to 0.08 (`median`) against their control; of norm clipping no cost is resolved.
"""

RULES = """
- **Equal airtime.** Every method has the same symbols per unit of time, those of n in every period of T_max/4. FedAvg's
  rounds last T_max and have 4 n each; over the air, updates take d/2 symbols of the n, whoever sends. Methods from
  asynchronous clocks (FedAsync, FedBuff, CA2FL, FADAS, ...) play on the periodic one: on their own, the number of uploads is
  set by the fastest device and differs thirtyfold between seeds, since T_k may be near 0 ([paper](paper.md) has FedAsync on
  its own clock).
- **Equal tuning.** Each method has {candidates} candidates: learning rates {rates} of the devices, times two settings of its
  own; where it has none, the weights gamma^age with gamma = 1 or 0.846. `equal_weights` has nothing to set: it has the learning
  rates 0.07, 0.1, 0.14 and 0.2. The best by mean accuracy on seed {seed}, world by
  world, plays on seeds 0 to {last}. A candidate whose numbers do not stay finite is out. The grids are ours, the same in all
  worlds.
- **Controls.** The reference may choose gamma; a method with a setting of its own has gamma = 1, and is compared with random
  scheduling at gamma = 1 (`equal_weights`), too. Robust servers and SCAFFOLD need dense updates, and have `dead_zone` and
  updates added to the current model: so has their control, `dense_mean`. What they gain over random scheduling is mostly that.
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
