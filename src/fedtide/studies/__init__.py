"""Many runs: what to run, where results are kept, how they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.studies.paths import WHY, across, note, paired, summary
    from fedtide.studies.results import RunResult
    from fedtide.studies.run import Failure
    from fedtide.studies.spec import Study, make_study
    from fedtide.studies.statistics import (
        CONFIDENCE,
        FEWEST_SEEDS,
        METRICS,
        POWER,
        SPENT_BY_QUANTITY,
        Band,
        Comparison,
        Reaching,
        aligned,
        band,
        difference_band,
        diverged,
        final_accuracy,
        half_width,
        mean_accuracy,
        paired_difference,
        saws,
        seeds_needed,
        shared_seeds,
    )
    from fedtide.studies.store import Store
    from fedtide.studies.table import Reference, effect, finite_or_none

__all__ = [
    "CONFIDENCE",
    "FEWEST_SEEDS",
    "METRICS",
    "POWER",
    "SPENT_BY_QUANTITY",
    "WHY",
    "Band",
    "Comparison",
    "Failure",
    "Reaching",
    "Reference",
    "RunResult",
    "Store",
    "Study",
    "across",
    "aligned",
    "band",
    "difference_band",
    "diverged",
    "effect",
    "final_accuracy",
    "finite_or_none",
    "half_width",
    "make_study",
    "mean_accuracy",
    "note",
    "paired",
    "paired_difference",
    "saws",
    "seeds_needed",
    "shared_seeds",
    "summary",
]

__getattr__ = lazy_names(
    __name__,
    paths="WHY across note paired summary",
    results="RunResult",
    run="Failure",
    spec="Study make_study",
    statistics="CONFIDENCE FEWEST_SEEDS METRICS POWER SPENT_BY_QUANTITY Band Comparison Reaching aligned band "
    "difference_band diverged final_accuracy half_width mean_accuracy paired_difference saws seeds_needed shared_seeds",
    store="Store",
    table="Reference effect finite_or_none",
)
