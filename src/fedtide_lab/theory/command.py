"""`fedtide theory [key=value ...]`: constants, conditions, bound against measurement, sweeps."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, RenderableType
from rich.markup import escape

from fedtide.core import require_writable, write_output
from fedtide.errors import FedtideError, RunFolderError
from fedtide.plot import FORMATS, SCREEN, figure_style, save_figure
from fedtide.report import TableColumn, terminal_list
from fedtide.types import Floats
from fedtide_lab.theory import bound, figures, measure
from fedtide_lab.theory.measure import Problem, SayLine, make_problem, silent
from fedtide_lab.theory.options import Options, parse_options
from fedtide_lab.theory.sweeps import SWEEPS, Point, run_sweep


class TheoryRow(NamedTuple):
    """One constant, for the table."""

    symbol: str
    value: float
    how: str


class Report(NamedTuple):
    """Everything that one call finds."""

    options: Options
    constants: bound.Constants
    rows: list[TheoryRow]
    alpha: float
    curves: list[bound.BoundCurve]
    measured: measure.Measured
    sweeps: Mapping[str, Sequence[Point]]

    @property
    def below(self) -> dict[str, bool]:
        """Does the measured mean stay below each bound that holds, at every t?"""
        return self._compare(self.measured.mean)

    @property
    def clearly_below(self) -> dict[str, bool]:
        """The same with half of the 95 % interval on top of the mean."""
        return self._compare(self.measured.mean + self.measured.half_width)

    def _compare(self, error: Floats) -> dict[str, bool]:
        return {each.variant: bool(np.all(error <= each.values)) for each in self.curves if each.values is not None}


def run_theory(
    words: Sequence[str],
    out: Path | None,
    console: Console,
    as_json: bool = False,
    say: SayLine = silent,
    style: str = SCREEN,
) -> Report:
    """Do what `fedtide theory` does: evaluate, measure, print to console and, if `out` is given, write there.

    words: `key=value`, the keys of `Options`. out: a folder for theory.json, theory-bound.png and theory-sweeps.png.
    as_json: print the JSON in place of the tables. say: called with one line as things get done. style: of the figures.
    """
    options = parse_options(words)
    if out is not None:
        try:
            require_writable(out)
        except RunFolderError as error:
            raise FedtideError(str(error)) from error  # no run's
    report = _evaluate_problem(options, say)
    if out is not None:
        _write_theory(report, out, style)
        say(f"written to {out}")
    if as_json:
        console.print_json(json.dumps(_to_json(report)))
    else:
        _show_theory(report, console)
    return report


def _evaluate_problem(options: Options, say: SayLine = silent) -> Report:
    """Compute the constants and the bounds, measure, sweep."""
    problem = make_problem(options)
    say("optima found")
    kept = bound.kept_by_ready_set(problem)
    found = bound.bound_of(problem, kept)
    alpha = options.learning_rate or options.step_share * bound.PAPER_BOUND.step_limit(found)
    if not alpha > 0:
        raise FedtideError("r_min = 0: nothing gets through, so there is no step size; raise num_symbols or snr_db")
    curves = [bound.bound_curve(variant, found, alpha, problem.system.ticks) for variant in bound.VARIANTS]
    measured = measure.squared_errors(problem, alpha, options.num_seeds, say)
    wanted = list(SWEEPS) if options.sweep == "all" else [options.sweep] if options.sweep != "none" else []
    sweeps = {key: run_sweep(options, SWEEPS[key], say) for key in wanted}
    return Report(options, found, _theory_rows(problem, found, kept, measured), alpha, curves, measured, sweeps)


def _theory_rows(
    problem: Problem, c: bound.Constants, kept: list[bound.KeptElements], measured: measure.Measured
) -> list[TheoryRow]:
    """Return every constant with how it was obtained."""
    squares = problem.options.task == "least_squares"
    sent = np.where(measured.num_kept < 0, np.nan, measured.num_kept.astype(np.float64))
    full = ~np.isnan(sent).any(axis=0)
    by_round = sent[:, full].mean(axis=0) if full.any() else np.array([math.nan])
    ticks = problem.system.ticks
    ages = max((int((tick.index - tick.start).max()) for tick in ticks if len(tick.ready)), default=0)
    curvature = "eigenvalues of the local Hessians, exact" if squares else "global bound, for every model"
    slope = float(np.linalg.norm(_global_gradient(problem)))
    return [
        TheoryRow("d", c.d, "parameters"),
        TheoryRow("nu", c.nu, "quantisation levels"),
        TheoryRow("mu", c.mu, f"least over devices; {curvature}" + ("" if squares else ": l2")),
        TheoryRow("L", c.L, f"largest over devices; {curvature}" + ("" if squares else ": lambda_max(X'X/n)/2 + l2")),
        TheoryRow("kappa", c.L / c.mu, "L/mu"),
        TheoryRow(
            "C_1",
            c.C_1,
            "least for this C_2, exact for every model" if squares else "2 s max_k mean ||x||^2, for every model",
        ),
        TheoryRow(
            "C_2", c.C_2, "1 + 1.5 x the least possible growth (eigenvalue)" if squares else "1, the least there is"
        ),
        TheoryRow("zeta", c.zeta, f"max_k ||theta* - theta_k*||^2; ||grad F(theta*)|| = {slope:.1e}"),
        TheoryRow("gap", c.local_gap, "max_k F_k(theta*) - F_k*; the paper bounds it by L zeta/2"),
        TheoryRow(
            "r_min", c.r_min, f"{len(kept)} ready sets, Monte Carlo over the channel; least mean - 3 standard errors"
        ),
        TheoryRow("r_min planned", float(by_round.min()), "least mean r_t over the runs' own rounds (noisy, low)"),
        TheoryRow(
            "r_t = 0", max(each.share_of_zero for each in kept) if kept else 1.0, "largest share of rounds with r_t = 0"
        ),
        TheoryRow("a_lim", c.a_lim, "ceil(T_max/T~), the paper's"),
        TheoryRow("a_lim tight", c.a_lim - 1, f"the largest age there can be; in this fleet {ages}"),
        TheoryRow("empty rounds", bound.empty_rounds(ticks), f"of {len(ticks)}; the theorem leaves them out"),
        TheoryRow("initial", c.initial, "||theta(1) - theta*||^2"),
        TheoryRow("C_3", bound.C_3(c, bound.paper_quantiser(c)), "8 L^2 [(1 + d/(4 nu^2)) C_2 + 1]"),
        TheoryRow("q paper", bound.paper_quantiser(c), "d/(4 nu^2)"),
        TheoryRow("q tight", bound.tight_quantiser(c), "min(d/(4 nu^2), sqrt(d)/nu)"),
    ]


def _global_gradient(problem: Problem) -> Any:
    objective = problem.objective
    shares = objective.num_samples / objective.num_samples.sum()
    return sum(share * objective.sample_gradients(k, problem.optimum).mean(axis=0) for k, share in enumerate(shares))


def _show_theory(report: Report, console: Console) -> None:
    """Print the tables."""
    options = report.options
    columns: tuple[TableColumn, ...] = (
        TableColumn("constant"), TableColumn("value", right=True), TableColumn("how it was obtained", wraps=True)
    )  # fmt: skip
    constants = [(escape(row.symbol), f"{row.value:.5g}", escape(row.how)) for row in report.rows]
    console.print(terminal_list(columns, constants, console.width, f"Theorem 1 on {options.task}"))
    rows = []
    for each in report.curves:
        verdict = each.problem or _verdict(report, each.variant)
        floor = "-" if each.values is None else f"{each.asymptote:.4g}"
        limit, contraction = f"{each.step_limit:.4g}", f"{each.contraction:.6f}"
        rows.append((each.variant, limit, f"{report.alpha:.4g}", contraction, floor, escape(verdict)))
    numbers = (TableColumn(name) for name in ("bound", "step limit", "alpha", "C-bar", "asymptote"))
    columns = (*numbers, TableColumn("measured below?", wraps=True))
    console.print(terminal_list(columns, rows, console.width, "What the bounds say"))
    columns = tuple(
        TableColumn(name, right=True) for name in ("t", *(each.variant for each in report.curves), "measured", "+-")
    )
    lines: list[tuple[str, ...]] = []
    for t in _some(len(report.measured.mean)):
        values = ["-" if each.values is None else f"{each.values[t - 2]:.4g}" for each in report.curves]
        mean, half = report.measured.mean[t - 2], report.measured.half_width[t - 2]
        lines.append((str(t), *values, f"{mean:.4g}", f"{half:.2g}"))
    console.print(terminal_list(columns, lines, console.width, "E||theta(t) - theta*||^2"))
    for key, points in report.sweeps.items():
        console.print(_sweep_table(key, points, console.width))


def _verdict(report: Report, variant: str) -> str:
    if report.clearly_below[variant]:
        return "at every t, 95 % interval included"
    return "at every t (the mean)" if report.below[variant] else "NO"


def _sweep_table(key: str, points: Sequence[Point], room: int) -> RenderableType:
    ends = [f"{name}: ends / halves" for name in [*(variant.name for variant in bound.VARIANTS), "measured"]]
    columns = [TableColumn(name) for name in (key, "r_min/d", "zeta", "a_lim", "limit", "alpha", *ends)]
    rows = []
    for point in points:
        c = point.constants
        limit = point.curves[bound.PAPER_BOUND.name].step_limit
        cells = [f"{each.asymptote:.3g} / {point.half_life[name]:.0f}" for name, each in point.curves.items()]
        numbers = (c.rho, c.zeta, c.a_lim, limit, point.alpha)
        measured = f"{'' if point.settled else '> '}{point.floor:.3g} / {point.measured_half_life:.0f}"
        rows.append((f"{point.value:g}", *(f"{number:.3g}" for number in numbers), *cells, measured))
    return terminal_list(columns, rows, room, f"sweep over {key}")


def _some(num_ticks: int) -> list[int]:
    """Return a handful of t between 2 and num_ticks + 1."""
    return sorted({round(float(t)) for t in np.geomspace(2, num_ticks + 1, 8)})


def _write_theory(report: Report, out: Path, style: str = SCREEN) -> None:
    """Write theory.json and the figures into a folder: PNG, and in styles for print PDF and SVG as well."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        content = (json.dumps(_to_json(report), indent=1) + "\n").encode()
        write_output(out / "theory.json", content, rb'\{\s*"options"', "an evaluation of the theory")
        _draw_theory(report, out / "theory-bound", out / "theory-sweeps", style)
    except OSError as error:
        raise FedtideError(f"cannot write to {out}: {error.strerror}; name another folder") from error


def _draw_theory(report: Report, bounds: Path, sweeps: Path, style: str = SCREEN) -> None:
    """Draw the figures of a report; names without ending."""
    name = _name(report.options)
    with figure_style(style) as how:
        title = f"{name}, $d={report.constants.d}$, $\\nu={report.constants.nu}$"
        made = {bounds: figures.bound_figure(title, report.constants, report.curves, report.measured, how)}
        if report.sweeps:
            made[sweeps] = figures.sweep_figure(name, report.sweeps, report.options.sweep_ticks // 2, how)
        for stem, figure in made.items():
            save_figure(figure, stem, ("png",) if style == SCREEN else FORMATS)


def _name(options: Options) -> str:
    if options.task == "least_squares":
        return "Least squares"
    return "Softmax regression on MNIST" if options.data == "mnist" else "Softmax regression"


def _to_json(report: Report) -> dict[str, Any]:
    """Return the report as plain data; NaN becomes None."""
    plain: dict[str, Any] = _plain(
        {
            "options": report.options.model_dump(mode="json"),
            "constants": report.constants._asdict(),
            "how": {row.symbol: {"value": row.value, "how": row.how} for row in report.rows},
            "alpha": report.alpha,
            "bounds": {each.variant: each._asdict() for each in report.curves},
            "measured_below": report.below,
            "measured_clearly_below": report.clearly_below,
            "measured": {"mean": report.measured.mean, "half_width": report.measured.half_width},
            "sweeps": {key: [_point(point) for point in points] for key, points in report.sweeps.items()},
        }
    )
    return plain


def _point(point: Point) -> dict[str, Any]:
    asymptote = {name: each.asymptote for name, each in point.curves.items()}
    problem = {name: each.problem for name, each in point.curves.items()}
    rest = {key: value for key, value in point._asdict().items() if key not in ("curves", "constants")}
    return {**rest, "constants": point.constants._asdict(), "asymptote": asymptote, "problem": problem}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
