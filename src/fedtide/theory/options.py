"""The keys of `fedtide theory`, as a frozen value."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedtide.errors import FedtideError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Options(BaseModel):
    """One strongly convex task in one simulated system, and how to look at it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: Literal["least_squares", "softmax"] = Field("least_squares", description="the strongly convex objective")
    data: Literal["synthetic", "mnist"] = Field("synthetic", description="what softmax regression learns")
    num_devices: Count = Field(12, description="N")
    num_samples: Annotated[int, Field(ge=2)] = Field(100, description="|S_k|, samples per device")
    num_features: Count = Field(10, description="p; d = p (least squares) or labels x p (softmax)")
    num_labels: Annotated[int, Field(ge=2)] = Field(4, description="c of the synthetic softmax task; MNIST has 10")
    batch_size: Count = Field(25, description="b, samples of the one local step, drawn without replacement")
    l2: NotNegative = Field(0.3, description="coefficient of (l2/2) ||theta||^2")
    condition: Annotated[float, Field(ge=1)] = Field(1.25, description="lambda_max/lambda_min of X'X/n (least squares)")
    noise: NotNegative = Field(0.3, description="standard deviation of the targets' noise (least squares)")
    heterogeneity: NotNegative = Field(
        0.1, description="least squares: spread of the devices' true models; softmax: share of label-sorted samples"
    )
    start_distance: Positive = Field(10.0, description="||theta(1) - theta*||")
    min_duration: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="T_min; T_max = 1")
    period: Positive = Field(0.25, description="T~, in units of T_max")
    limit: Count = Field(4, description="R, uploads per aggregation at most")
    scheduler: Literal["random", "best_channel", "data_importance", "age_based", "best_of_random_subsets"] = Field(
        "random", description="who uploads; a scheduler that looks at the updates breaks the theorem's assumptions"
    )
    age_base: Positive = Field(1.0, description="gamma")
    num_symbols: Positive | None = Field(None, description="n per T_max/4, which the period scales; default: 15 d")
    snr_db: Annotated[float, Field(allow_inf_nan=False)] = Field(13.0, description="average SNR in dB")
    num_levels: Annotated[int, Field(ge=1, le=32_767)] = Field(4, description="nu")
    step_share: Positive = Field(0.5, description="alpha as a share of the paper's limit; 1 and above break it")
    learning_rate: Positive | None = Field(None, description="alpha itself, in place of step_share")
    num_ticks: Annotated[int, Field(ge=2)] = Field(1500, description="aggregations per run")
    num_seeds: Annotated[int, Field(ge=2)] = Field(10, description="independent runs behind every expectation")
    num_draws: Annotated[int, Field(ge=10)] = Field(
        400, description="channel draws per set of ready devices, for r_min"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="names the task, the fleet and the runs")
    sweep: Literal["none", "all", "num_levels", "num_symbols", "period", "heterogeneity", "step_share"] = Field(
        "none", description="which key to sweep besides, to see Remarks 1 and 2 (all takes minutes)"
    )
    sweep_ticks: Annotated[int, Field(ge=2)] = Field(800, description="aggregations per run of a sweep")
    sweep_seeds: Annotated[int, Field(ge=2)] = Field(4, description="runs per point of a sweep")

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
        return self


def parse(words: Iterable[str]) -> Options:
    """Make Options of `key=value` words (values in YAML); one clear line if it cannot be."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise FedtideError(f"{word!r} is not key=value; write for example num_levels=4")
        try:
            given[name.strip()] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise FedtideError(f"{word!r}: the value is not YAML ({' '.join(str(error).split())}); quote it") from error
    return make(**given)


def make(**given: Any) -> Options:
    """Make Options, with our errors in place of pydantic's."""
    try:
        return Options.model_validate(given)
    except ValidationError as error:
        raise FedtideError("; ".join(_explain(each) for each in error.errors())) from None


def _explain(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key.rpartition(".")[2], Options.model_fields, 1, 0.5)
        hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(Options.model_fields)}"
        return f"{key} is not a key of theory: {hint}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    field = Options.model_fields.get(key)
    about = f" ({field.description})" if field is not None and field.description else ""
    return f"{key}={error['input']!r}{about}: {error['msg'][0].lower() + error['msg'][1:]}"
