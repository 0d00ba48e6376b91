"""Many runs: what to run, where results are kept, how they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.studies.metrics import (
        MARGINS,
        METRICS,
        Reaching,
        amount_spent,
        counted_note,
        final_accuracy,
        mean_accuracy,
        metric_margin,
        metric_named,
    )
    from fedtide.studies.propose import propose_candidates
    from fedtide.studies.race import races
    from fedtide.studies.results import RunResult
    from fedtide.studies.run import Outcome
    from fedtide.studies.spec import Study, make_study
    from fedtide.studies.statistics import (
        CONFIDENCE,
        EQUIVALENCE_LEVEL,
        EQUIVALENT,
        FEWEST_SEEDS,
        POWER,
        WHY,
        Band,
        Comparison,
        aligned_seeds,
        curves_zigzag,
        difference_band,
        diverged_runs_note,
        half_width,
        mean_band,
        mixed_pairs_note,
        mixed_seeds_note,
        pair_paths_summary,
        paired_difference,
        paired_results,
        seeds_needed,
    )
    from fedtide.studies.store import Store
    from fedtide.studies.table import Reference, finite_table_value, table_effect

__all__ = [
    "CONFIDENCE",
    "EQUIVALENCE_LEVEL",
    "EQUIVALENT",
    "FEWEST_SEEDS",
    "MARGINS",
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
    "aligned_seeds",
    "amount_spent",
    "counted_note",
    "curves_zigzag",
    "difference_band",
    "diverged_runs_note",
    "final_accuracy",
    "finite_table_value",
    "half_width",
    "make_study",
    "mean_accuracy",
    "mean_band",
    "metric_margin",
    "metric_named",
    "mixed_pairs_note",
    "mixed_seeds_note",
    "pair_paths_summary",
    "paired_difference",
    "paired_results",
    "propose_candidates",
    "races",
    "seeds_needed",
    "table_effect",
]

__getattr__ = lazy_names(
    __name__,
    metrics="MARGINS METRICS Reaching amount_spent counted_note final_accuracy mean_accuracy metric_margin metric_named",
    propose="propose_candidates",
    race="races",
    results="RunResult",
    run="Outcome",
    spec="Study make_study",
    statistics="CONFIDENCE EQUIVALENCE_LEVEL EQUIVALENT FEWEST_SEEDS POWER WHY Band Comparison aligned_seeds curves_zigzag "
    "difference_band diverged_runs_note half_width mean_band mixed_pairs_note mixed_seeds_note pair_paths_summary paired_difference "
    "paired_results seeds_needed",
    store="Store",
    table="Reference table_effect finite_table_value",
)
