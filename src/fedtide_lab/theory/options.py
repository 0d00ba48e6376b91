"""The keys of `fedtide theory`, as a frozen value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtide.config import MOST_TICKS, Count, Decibels, NonNegativeInt, NotNegative, Positive, explain_validation
from fedtide.core import parse_yaml_word, plain_yaml_tree
from fedtide.errors import FedtideError

_MOST_GIGABYTES = 64  # for the task's data, and for the matrices that its optima take
_MOST_STEPS = 10**9  # aggregations of all runs together
_STEP_SECONDS = 3e-4  # of one, about: for estimates only
_MNIST_PIXELS = 784


class Options(BaseModel):
    """One strongly convex task in one simulated system, and how to look at it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Literal["least_squares", "softmax"] = Field("least_squares", description="the strongly convex objective")
    data: Literal["synthetic", "mnist"] = Field("synthetic", description="what softmax regression learns")
    num_devices: Count = Field(12, description="N")
    num_samples: Annotated[Count, Field(ge=2)] = Field(100, description="|S_k|, samples per device")
    num_features: Count = Field(10, description="p; d = p (least squares) or labels x p (softmax)")
    num_labels: Annotated[Count, Field(ge=2)] = Field(4, description="c of the synthetic softmax task; MNIST has 10")
    batch_size: Count = Field(25, description="b, samples of the one local step, drawn without replacement")
    l2: NotNegative = Field(0.3, description="coefficient of (l2/2) ||theta||^2")
    condition: Annotated[Positive, Field(ge=1)] = Field(
        1.25, description="lambda_max/lambda_min of X'X/n (least squares)"
    )
    noise: NotNegative = Field(0.3, description="standard deviation of the targets' noise (least squares)")
    heterogeneity: NotNegative = Field(
        0.1, description="least squares: spread of the devices' true models; softmax: share of label-sorted samples"
    )
    start_distance: Positive = Field(10.0, description="||theta(1) - theta*||")
    min_duration: Annotated[NotNegative, Field(le=1)] = Field(0.0, description="T_min; T_max = 1")
    period: Positive = Field(0.25, description="T~, in units of T_max")
    limit: Count = Field(4, description="R, uploads per aggregation at most")
    scheduler: Literal["random", "best_channel", "proposed", "age_based", "best_of_random_subsets"] = Field(
        "random", description="who uploads; a scheduler that looks at the updates breaks the theorem's assumptions"
    )
    age_base: Positive = Field(1.0, description="gamma")
    num_symbols: Positive | None = Field(None, description="n per T_max/4, which the period scales; default: 15 d")
    snr_db: Decibels = Field(13.0, description="average SNR in dB")
    num_levels: Annotated[Count, Field(le=32_767)] = Field(4, description="nu")
    step_share: Positive = Field(0.5, description="alpha as a share of the paper's limit; 1 and above break it")
    learning_rate: Positive | None = Field(None, description="alpha itself, in place of step_share")
    num_ticks: Annotated[Count, Field(ge=2, le=MOST_TICKS)] = Field(1500, description="aggregations per run")
    num_seeds: Annotated[Count, Field(ge=2)] = Field(10, description="independent runs behind every expectation")
    num_draws: Annotated[Count, Field(ge=10, le=10_000_000)] = Field(
        400, description="channel draws per set of ready devices, for r_min"
    )
    seed: Annotated[NonNegativeInt, Field(lt=2**31)] = Field(0, description="names the task, the fleet and the runs")
    sweep: Literal["none", "all", "num_levels", "num_symbols", "period", "heterogeneity", "step_share"] = Field(
        "none", description="which key to sweep besides, to see Remarks 2 and 3 (all takes minutes)"
    )
    sweep_ticks: Annotated[Count, Field(ge=2, le=MOST_TICKS)] = Field(
        800, description="aggregations per run of a sweep"
    )
    sweep_seeds: Annotated[Count, Field(ge=2)] = Field(4, description="runs per point of a sweep")

    @model_validator(mode="after")
    def _fits_together(self) -> Options:
        if self.limit > self.num_devices:
            raise ValueError(f"limit={self.limit} (R) exceeds num_devices={self.num_devices} (N); lower it")
        if self.task == "softmax" and self.l2 == 0:
            raise ValueError("l2=0: softmax regression is strongly convex through l2 alone; give for example l2=0.3")
        if self.task == "softmax" and self.heterogeneity > 1:
            raise ValueError(f"heterogeneity={self.heterogeneity}: of softmax it is a share, from 0 to 1")
        if self.task == "least_squares" and self.data == "mnist":
            raise ValueError("data=mnist goes with task=softmax; least squares makes its own data")
        if self.task == "least_squares" and self.num_samples <= self.num_features:
            raise ValueError(
                f"num_samples={self.num_samples} must exceed num_features={self.num_features} in least squares"
            )
        if self.data == "mnist" and self.num_features > _MNIST_PIXELS:
            raise ValueError(f"num_features={self.num_features}: an image of MNIST has {_MNIST_PIXELS}")
        return self._within_reach()

    def _within_reach(self) -> Options:
        """Raise if these numbers mean years of work or more than any memory."""
        d = self.num_features * (self.num_labels if self.task == "softmax" else 1)
        held = self.num_devices * (self.num_samples * self.num_features + d)
        gigabytes = 8e-9 * max(held, d * d, self.num_draws * self.num_devices)
        if gigabytes > _MOST_GIGABYTES:
            raise ValueError(
                f"num_devices={self.num_devices}, num_samples={self.num_samples}, num_features={self.num_features} "
                f"(d={d}) would take {gigabytes:,.3g} GB; lower one of them"
            )
        for ticks, seeds in (("num_ticks", "num_seeds"), ("sweep_ticks", "sweep_seeds")):
            steps = getattr(self, ticks) * getattr(self, seeds)
            if steps > _MOST_STEPS:
                raise ValueError(
                    f"{ticks}={getattr(self, ticks)}, {seeds}={getattr(self, seeds)}: {steps:.3g} aggregations, about "
                    f"{steps * _STEP_SECONDS / 86_400:,.3g} days; lower one of them"
                )
        return self


def parse_options(words: Iterable[str]) -> Options:
    """Make Options of `key=value` words (values in YAML); one clear line if it cannot be."""
    return make_options(**dict(map(parse_yaml_word, words)))


def make_options(**given: Any) -> Options:
    """Make Options, with our errors in place of pydantic's."""
    try:
        return Options.model_validate(plain_yaml_tree(given))
    except ValidationError as error:
        raise FedtideError(explain_validation(error, Options.model_fields, "key of theory")) from None
