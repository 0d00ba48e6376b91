import io
import json

import numpy as np
import pytest
from rich.console import Console

from fedtide.errors import FedtideError
from fedtide_lab.theory import command, figures
from fedtide_lab.theory.options import Options, make_options, parse_options

QUICK = ["num_devices=5", "num_samples=20", "num_features=3", "num_ticks=30", "num_seeds=3", "num_draws=20", "limit=2"]


def run(words, out=None, **given):
    text = io.StringIO()
    report = command.run_theory([*QUICK, *words], out, Console(file=text, width=200), **given)
    return report, text.getvalue()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["num_level=4"], "num_level is not a key of theory: did you mean num_levels?"),
        (["policy.limit=3"], "did you mean limit?"),
        (["num_levels"], "not key=value"),
        (["num_levels=0"], "quantis|nu"),
        (["task=logistic"], "task='logistic'"),
        (["limit=50"], "exceeds num_devices"),
        (["task=softmax", "l2=0"], "strongly convex"),
        (["data=mnist"], "task=softmax"),
        (["scheduler=best_channel_best_norm"], "looks at the updates"),
        (["num_samples=5"], "must exceed num_features"),
        (["step_share=[1"], "cannot be read"),
    ],
)
def test_wrong_words_are_explained_in_one_line(words, says):
    with pytest.raises(FedtideError, match=says) as caught:
        parse_options(words)
    assert "\n" not in str(caught.value)


def test_options_are_frozen_and_described():
    assert parse_options([]) == Options()
    assert all(field.description for field in Options.model_fields.values())
    with pytest.raises(Exception, match="frozen"):
        Options().limit = 3


def test_the_tables_give_every_constant_and_the_figures_are_written(tmp_path):
    said = []
    report, text = run(["sweep=period", "sweep_ticks=24", "sweep_seeds=2"], tmp_path, say=said.append)
    for row in report.rows:
        assert row.symbol in text
        assert row.how
    assert all(report.below.values())
    assert set(report.below) == {"paper", "tight", "sharp"}
    assert {path.name for path in tmp_path.iterdir()} == {"theory.json", "theory-bound.png", "theory-sweeps.png"}
    plain = json.loads((tmp_path / "theory.json").read_text())
    assert plain["constants"]["a_lim"] == 4
    assert [point["value"] for point in plain["sweeps"]["period"]] == [1.0, 0.5, 0.25, 0.125]
    assert said


def test_json_in_place_of_tables():
    report, text = run([], as_json=True)
    plain = json.loads(text)
    assert plain["alpha"] == report.alpha
    assert plain["bounds"]["paper"]["problem"] is None
    assert len(plain["measured"]["mean"]) == 30


def test_a_step_above_the_limit_is_reported_not_plotted():
    report, text = run(["step_share=1.5"])
    assert "condition is broken" in " ".join(text.replace("│", " ").split())
    paper, tight, sharp = report.curves
    assert paper.values is None
    assert tight.values is None
    assert sharp.holds
    assert set(report.below) == {"sharp"}
    axes = figures.bound_figure("", report.constants, report.curves, report.measured).axes[0]
    drawn = {line.get_label(): len(line.get_xdata()) for line in axes.get_lines()}
    assert [count for label, count in drawn.items() if "says nothing" in str(label)] == [0, 0]
    assert command._to_json(report)["bounds"]["paper"]["values"] is None


def test_a_learning_rate_can_be_given_itself():
    report, _ = run(["learning_rate=0.004"])
    assert report.alpha == 0.004


def test_a_radio_that_carries_nothing_is_refused():
    with pytest.raises(FedtideError, match="r_min = 0"):
        run(["num_symbols=0.5"])


def test_a_sweep_moves_one_key_and_keeps_the_step():
    report, _ = run(["num_symbols=90", "sweep=num_symbols", "sweep_ticks=24", "sweep_seeds=2"])
    points = report.sweeps["num_symbols"]
    assert len({point.alpha for point in points}) == 1
    rho = [point.constants.rho for point in points]
    assert rho == sorted(rho)
    floors = [point.curves["paper"].asymptote for point in points]
    assert floors == sorted(floors, reverse=True)
    lives = [point.half_life["paper"] for point in points]
    assert lives == sorted(lives, reverse=True)
    assert np.isfinite([point.floor for point in points]).all()


def test_softmax_runs_too():
    report, _ = run(["task=softmax"])
    assert all(report.below.values())
    assert make_options(task="softmax").task == "softmax"
