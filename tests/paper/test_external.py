"""Published numbers beside ours: the experiments, the parts that they need, the laws of queues, and the page."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fedtide import config
from fedtide.cli.main import app
from fedtide.data import load
from fedtide.data.synthetic import synthetic
from fedtide.engine.system import build
from fedtide.engine.ticks import planned
from fedtide.learning import model
from fedtide.types import Dataset, Job, LocalWork, Samples
from fedtide_lab.external import page, parts, queues
from fedtide_lab.external.studies import (
    DISPUTED,
    PUBLISHED_CELLS,
    PUBLISHED_TABLES,
    Published,
    PublishedCell,
    cell_study,
)

ROOT = Path(__file__).parents[2]
STORED = ROOT / "results" / "external"


@pytest.fixture(autouse=True)
def lenet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the model `lenet` where there is none yet."""
    if "lenet" not in model.MODELS:
        monkeypatch.setitem(model.MODELS, "lenet", model.MODELS["mlp"])


def dataset(labels: Any, channels: int = 1) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (len(labels), channels, 32, 32)).astype(np.uint8)
    values = np.tile(np.arange(256, dtype=np.float32), (channels, 1))
    return Dataset("made up", samples := Samples(images, np.asarray(labels, np.uint8), values), samples, 10, "here")


# ---- The experiments


def test_names_are_of_one_experiment() -> None:
    assert (
        len({cell.name for cell in PUBLISHED_CELLS})
        == len(PUBLISHED_CELLS)
        == sum(len(table.cells) for table in PUBLISHED_TABLES)
    )
    assert len({run.name for cell in PUBLISHED_CELLS for run in cell_study(cell, [0]).runs}) == len(PUBLISHED_CELLS)


@pytest.mark.parametrize("cell", PUBLISHED_CELLS, ids=lambda cell: cell.name)
def test_an_experiment_begins_with_everybody_fresh_and_all_that_is_sent_arrives(cell: PublishedCell) -> None:
    experiment = cell_study(cell, [0]).runs[0].experiment
    system = build(experiment, dataset=synthetic(0, 4000, 10))
    steps = list(itertools.islice(planned(system), 3))
    assert [step.tick.time for step in steps] == [1, 2, 3]
    for step in steps:
        assert step.candidates is not None
        assert step.grant is not None
        assert len(step.grant.picked) == 10
        assert not step.candidates.age.any()
    assert max(each.round for each in cell.published) == experiment.timeline.horizon
    assert all(each.round % experiment.learning.evaluate_every == 0 for each in cell.published)


# ---- Their parts


def test_a_share_of_two_shards_is_the_first_and_a_part_of_the_second() -> None:
    labels = np.repeat(np.arange(10), 60)
    held = parts.leading_part(dataset(labels), 10, 3, share=0.8)
    assert [len(mine) for mine in held] == [48] * 10
    counts = [np.sort(np.bincount(labels[mine], minlength=10))[::-1][:2].tolist() for mine in held]
    assert all(each in ([30, 18], [48, 0]) for each in counts)  # 48: two shards of one label
    mixed = parts.leading_part(dataset(labels), 10, 3, by_label=False)
    assert all(len(np.unique(labels[mine])) > 5 for mine in mixed)
    assert len(np.unique(np.concatenate(mixed))) == 480


def test_labels_are_shared_out_by_dirichlet_proportions() -> None:
    labels = np.tile(np.arange(10), 400)
    held = parts.dirichlet_by_label(dataset(labels), 10, 3)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(4000))
    assert min(map(len, held)) >= 10
    assert len({len(mine) for mine in held}) > 5
    again, other = (parts.dirichlet_by_label(dataset(labels), 10, seed) for seed in (3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(held, other, strict=True))


def test_devices_with_few_labels_share_them_equally() -> None:
    labels = np.tile(np.arange(10), 400)
    held = parts.few_labels(dataset(labels), 10, 3, labels_each=2)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(4000))
    assert all(len(np.unique(labels[mine])) == 2 for mine in held)
    assert all(device in np.unique(labels[mine]) for device, mine in enumerate(held))
    shares = [len(mine[labels[mine] == label]) for label in range(10) for mine in held if label in labels[mine]]
    assert all(400 / share == pytest.approx(round(400 / share), rel=0.02) for share in shares)


def test_the_split_of_seed_42_is_flowers() -> None:
    """The numbers of samples that their code deals out, counted once with it."""
    mnist = load("mnist", images=False)
    dirichlet = [6631, 9475, 6099, 6004, 5074, 5106, 7397, 3742, 6052, 4420]
    two_labels = [4064, 9701, 4927, 8078, 4873, 4685, 5938, 4062, 5635, 8037]
    for seed in (0, 1):
        assert [len(mine) for mine in parts.dirichlet_by_label(mnist, 10, seed, draw=42)] == dirichlet
        assert [len(mine) for mine in parts.few_labels(mnist, 10, seed, draw=42)] == two_labels


def test_the_extra_logit_makes_the_loss_minus_the_probability() -> None:
    torch = pytest.importorskip("torch")
    module = parts.mlp_of_probabilities()
    images, labels = torch.randn(5, 1, 28, 28), torch.arange(5)
    found = []
    for by_trick in (True, False):
        module.zero_grad()
        torch.manual_seed(0)  # of the dropout
        outputs = module.train()(images)
        loss = torch.nn.functional.cross_entropy(outputs, labels) if by_trick else -outputs[range(5), labels].mean()
        loss.backward()
        found.append([each.grad.clone() for each in module.parameters()])
    assert outputs.shape == (5, 11)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*found, strict=True))
    assert torch.allclose(module.eval()(images).sum(1), torch.ones(5))


def test_crops_are_windows_of_the_reflected_image_some_of_them_flipped() -> None:
    images = dataset(np.zeros(60), 3).train.images
    padded = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)), "reflect")
    seen = set()
    for number, cut in enumerate(parts._cropped(images, np.random.default_rng(1))):
        matches = [
            (down, right, flip)
            for down, right, flip in itertools.product(range(9), range(9), (False, True))
            if np.array_equal(cut[:, :, ::-1] if flip else cut, padded[number, :, down : down + 32, right : right + 32])
        ]
        assert len(matches) == 1
        seen |= {*matches}
    assert len({(down, right) for down, right, _ in seen}) > 30
    assert {flip for *_, flip in seen} == {False, True}


def test_a_job_visits_as_many_augmented_samples_as_it_would_visit_plain_ones() -> None:
    work = LocalWork(epochs=3, steps=None, batch_size=4, proximal=0.0)
    inner, table = SimpleNamespace(train=None), dataset(np.arange(10), 3).train
    jobs: list[Job] = []
    inner.train = lambda given: (jobs.extend(given), np.zeros((len(given), 2), np.float32))[1]
    trainer = parts.Augmented(SimpleNamespace(seed=5, work=work), inner)  # type: ignore[arg-type]
    asked = [Job(k, 2, np.zeros(2, np.float32), 0.1, table, np.arange(k, k + 5)) for k in (0, 3)]
    assert trainer.train(asked).shape == (2, 2)
    for job, plain in zip(jobs, asked, strict=True):
        assert job.work == work._replace(epochs=1)
        assert np.array_equal(job.samples.labels, np.tile(table.labels[plain.indices], 3))
        assert np.array_equal(job.indices, np.arange(15))
    first = jobs[0].samples.images.copy()
    trainer.train(asked)
    assert np.array_equal(jobs[2].samples.images, first)  # by its address
    assert not np.array_equal(first[:5], first[5:10])


# ---- The comparison


def beside(theirs: Published, *accuracies: float) -> page.Beside:
    return page.Beside(PUBLISHED_CELLS[0], theirs, accuracies)


def test_the_range_is_students_prediction_interval() -> None:
    from scipy import stats

    ours = (96.0, 96.2, 96.4, 96.1)
    one = beside(Published(10, 96.0), *ours)
    quantile = stats.t.ppf(0.975, 3)
    spread = np.std(ours, ddof=1)
    assert one.margin == pytest.approx(quantile * spread / 2)
    assert one.reach == pytest.approx(quantile * spread * math.sqrt(1 + 1 / 4))
    assert beside(Published(10, 96.0, runs=3), *ours).reach == pytest.approx(
        quantile * spread * math.sqrt(1 / 3 + 1 / 4)
    )
    assert one.verdict == "yes"
    assert beside(Published(10, 90.0), *ours).verdict == "below"
    assert beside(Published(10, 99.9), *ours).verdict == "above"
    assert beside(Published(10, 99.9), 97.0).verdict == beside(Published(10, 99.9)).verdict == ""


def test_the_range_of_one_run_holds_one_run_of_twenty() -> None:
    rng, inside = np.random.default_rng(2), 0
    for _ in range(2000):
        theirs, *ours = rng.normal(95, 1, 11)
        inside += beside(Published(10, theirs), *ours).verdict == "yes"
    assert 0.935 < inside / 2000 < 0.965


def test_best_is_of_all_rounds_and_the_others_of_theirs() -> None:
    run = SimpleNamespace(
        column={"test_accuracy": np.array([0.5, 0.9, 0.8]), "time": np.array([10.0, 20.0, 30.0])}.__getitem__
    )
    found = [page._accuracy(run, Published(n, 0, best=best)) for n, best in ((10, False), (30, False), (30, True))]  # type: ignore[arg-type]
    assert found == pytest.approx([50, 80, 90])


def test_the_page_says_which_of_two_teams_ours_agree_with() -> None:
    disputed = [cell for cell in PUBLISHED_CELLS if cell.name in DISPUTED]
    for inside, says in (((0, 0), "both"), ((0, 9), "with Flower"), ((9, 0), "with NIID-Bench"), ((9, 9), "neither")):
        numbers = [
            page.Beside(cell, cell.published[0], tuple(cell.published[0].accuracy + far + np.array([-0.1, 0, 0.1])))
            for cell, far in zip(disputed, inside, strict=True)
        ]
        assert says in page.external_values(numbers)["side"]
    assert page.external_values([])["side"] == "Our runs do not say yet."


# ---- Queues


def test_a_stored_count_is_that_of_its_plan() -> None:
    stored = queues.read_queues(STORED)
    assert len(stored) == 60
    one = next(each for each in stored if (each.law, each.concurrency, each.seed) == ("uniform", 10, 4))
    again = queues.measure_queue("uniform", 10, 4)
    assert [f"{value:.9g}" for value in again[3:]] == [f"{value:.9g}" for value in one[3:]]
    assert all(each.residual == 0 for each in stored)


def test_the_identity_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of devices whose models are older than those that they should have."""

    def older(system: Any) -> Any:
        for step in planned(system):
            tick = step.tick
            yield SimpleNamespace(tick=tick._replace(start=np.maximum(tick.start - (tick.index % 7 == 0), 1)))

    monkeypatch.setattr(queues, "planned", older)
    assert queues.measure_queue("uniform", 10, 4).residual != 0


# ---- The page


def drawn(store: Path, to: Path) -> str:
    done = CliRunner().invoke(app, ["external", "--draw-only", "--store", str(store), "--out", str(to)])
    assert done.exit_code == 0, done.output
    return (to / "external.md").read_text()


def test_the_page_is_that_of_the_runs(tmp_path: Path) -> None:
    assert drawn(STORED, tmp_path) == (ROOT / "docs" / "external.md").read_text()


def test_nothing_else_is_committed() -> None:
    known = {run.name for cell in PUBLISHED_CELLS for run in cell_study(cell, range(20)).runs}
    assert page.Store(STORED).names() <= known


def test_an_empty_store_has_a_page_without_numbers(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    text = drawn(tmp_path / "store", tmp_path)
    assert text.count("| no runs yet |") == sum(len(cell.published) for cell in PUBLISHED_CELLS)
    assert "(Not measured yet.)" in text
    assert "(Not compared yet.)" in text
    assert "seeds so far: MLP, i.i.d. (0 of 10)" in text


def test_a_clock_that_could_not_be_had_is_told(tmp_path: Path) -> None:
    clocks = {"one": {"title": "One", "version": "2", "failed": "no wheel"}}
    (tmp_path / "clocks.json").write_text(json.dumps({"durations": [3, 5], "clocks": clocks}))
    found = page.clocks_values(tmp_path)
    assert "| One 2 | not compared: no wheel |" in found["clocks"]
    assert found["clocks that agree"] == 0


def test_an_unknown_experiment_is_one_line() -> None:
    done = CliRunner().invoke(app, ["external", "moon"])
    assert done.exit_code == 2
    assert "experiment 'moon' is not known; choose from ancestor-mlp-iid" in " ".join(done.output.split())


def test_runs_are_found_by_seed_and_short_rows_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small: dict[str, Any] = {
        "data": {"name": "synthetic", "num_train": 200, "num_test": 50},
        "fleet": {"num_devices": 10},
        "learning": {"model": "softmax", "local_epochs": 1},
        "timeline": {"horizon": 2.0},
        "policy": {"limit": 5},
    }
    cell = PUBLISHED_CELLS[0]._replace(
        tree=config.merge_nested(
            PUBLISHED_CELLS[0].tree, small | {"learning": {**small["learning"], "evaluate_every": 1.0}}
        ),
        published=(Published(1, 20.0), Published(2, 99.0, best=True)),
        seeds=3,
    )
    for module in ("studies", "page"):
        monkeypatch.setattr(f"fedtide_lab.external.{module}.PUBLISHED_CELLS", (cell,))
        monkeypatch.setattr(
            f"fedtide_lab.external.{module}.PUBLISHED_TABLES",
            (
                PUBLISHED_TABLES[0]._replace(cells=(cell,)),
                *(table._replace(cells=()) for table in PUBLISHED_TABLES[1:]),
            ),
        )
    monkeypatch.setattr(queues, "store_queues", lambda folder: None)
    words = ["external", "-n", "2", "-j", "1", "--store", str(tmp_path / "store"), "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    text = (tmp_path / "external.md").read_text()
    assert text.count("2 of 3 seeds so far)") == 2
    assert "| MLP, i.i.d. | 1 | 20.00 |" in text
    runs = page.external_runs(page.Store(tmp_path / "store"))
    assert [run.seed for run in runs[cell.name]] == [0, 1]
