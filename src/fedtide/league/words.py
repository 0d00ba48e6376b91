"""What is said on the league's page by hand: from the page's own numbers, and the rules."""

from __future__ import annotations

FOUND = """
"""

RULES = """
- **Equal airtime.** Every method has the same symbols per unit of time, those of n in every period of T_max/4. FedAvg's
  rounds last T_max and have 4 n each; over the air, updates take d/2 symbols of the n, whoever sends. Methods from
  asynchronous clocks (FedAsync, FedBuff, CA2FL, FADAS, ...) play on the periodic one: on their own, the number of uploads is
  set by the fastest device and differs thirtyfold between seeds, since T_k may be near 0 ([paper](paper.md) has FedAsync on
  its own clock).
- **Equal tuning.** Each method has {candidates} candidates: learning rates {rates} of the devices, times two settings of its
  own; where it has none, the weights gamma^age with gamma = 1 or 0.846. The best by mean accuracy on seed {seed}, world by
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
