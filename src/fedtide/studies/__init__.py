"""Many runs: what to run, where results are kept, how they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.studies.metrics import METRICS, Reaching, amount_spent, final_accuracy, mean_accuracy
    from fedtide.studies.results import RunResult
    from fedtide.studies.run import Outcome
    from fedtide.studies.spec import Study, make_study
    from fedtide.studies.statistics import (
        CONFIDENCE,
        FEWEST_SEEDS,
        POWER,
        WHY,
        Band,
        Comparison,
        across,
        aligned,
        band,
        difference_band,
        diverged,
        half_width,
        note,
        paired,
        paired_difference,
        saws,
        seeds_needed,
        summary,
    )
    from fedtide.studies.store import Store
    from fedtide.studies.table import Reference, effect, finite_or_none

__all__ = [
    "CONFIDENCE",
    "FEWEST_SEEDS",
    "METRICS",
    "POWER",
    "WHY",
    "Band",
    "Comparison",
    "Outcome",
    "Reaching",
    "Reference",
    "RunResult",
    "Store",
    "Study",
    "across",
    "aligned",
    "amount_spent",
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
    "summary",
]

__getattr__ = lazy_names(
    __name__,
    metrics="METRICS Reaching amount_spent final_accuracy mean_accuracy",
    results="RunResult",
    run="Outcome",
    spec="Study make_study",
    statistics="CONFIDENCE FEWEST_SEEDS POWER WHY Band Comparison across aligned band difference_band diverged half_width note "
    "paired paired_difference saws seeds_needed summary",
    store="Store",
    table="Reference effect finite_or_none",
)
