"""Sets of torchvision and of Hugging Face, by stand-ins with the same interface."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import fedtide
from fedtide.data import from_huggingface, from_torchvision
from fedtide.data.dataset import check_dataset
from fedtide.errors import DataError

PIXELS = np.random.default_rng(7).integers(0, 256, (10, 6, 5, 3), np.uint8)
CHANNELS_FIRST = PIXELS.transpose(0, 3, 1, 2)
LABELS = [0, 2, 1, 1, 0, 2, 2, 0, 1, 2]


class Tensor:
    """As PyTorch's: cannot be made an array before it is detached and on the CPU."""

    def __init__(self, array):
        self.array = array

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.array


class Vision:
    """As torchvision's sets are."""

    def __init__(self, data, targets, transform=None, attribute="targets"):
        self.data, self.transform = data, transform
        setattr(self, attribute, targets)
        self.answers = targets

    def __len__(self):
        return len(self.answers)

    def __getitem__(self, number):
        image = Image.fromarray(self.data[number])
        return (self.transform(image) if self.transform else image), self.answers[number]


class Plain(list):
    """Items and nothing else, as ImageFolder or a Subset."""


class Split:
    """As a split of `datasets` is."""

    def __init__(self, rows, features=None):
        self.rows, self.features = rows, features or {}

    def __iter__(self):
        return iter(self.rows)

    def select_columns(self, columns):
        return Split([{name: row[name] for name in columns} for row in self.rows])


class Classes:
    num_classes = 7


def to_tensor(image):
    return Tensor((np.asarray(image) / 255).astype(np.float32).transpose(2, 0, 1))


def both(make):
    return make(slice(0, 7)), make(slice(7, 10))


VISION = {
    "cifar": lambda at: Vision(PIXELS[at], LABELS[at]),
    "svhn": lambda at: Vision(CHANNELS_FIRST[at], np.array(LABELS[at]), attribute="labels"),
    "tensors": lambda at: Vision(Tensor(PIXELS[at]), Tensor(np.array(LABELS[at]))),
    "pictures": lambda at: Plain((Image.fromarray(PIXELS[at][n]), LABELS[at][n]) for n in range(len(LABELS[at]))),
    "bytes first": lambda at: Plain((Tensor(CHANNELS_FIRST[at][n]), LABELS[at][n]) for n in range(len(LABELS[at]))),
}


@pytest.mark.parametrize("name", VISION)
def test_torchvision(name):
    found = from_torchvision(*both(VISION[name]), owners=list("aabbcca"))
    check_dataset(found)
    np.testing.assert_array_equal(found.train.images, CHANNELS_FIRST[:7])
    np.testing.assert_array_equal(found.test.images, CHANNELS_FIRST[7:])
    assert found.train.labels.tolist() + found.test.labels.tolist() == LABELS
    assert found.owners.tolist() == [0, 0, 1, 1, 2, 2, 0]
    assert found.train.values.shape == (3, 256)


def test_mnist_as_torchvision_has_it():
    grey = PIXELS[..., 0]
    found = from_torchvision(*both(lambda at: Vision(Tensor(grey[at]), Tensor(np.array(LABELS[at])))))
    np.testing.assert_array_equal(found.train.images, grey[:7, None])


def test_transforms_are_obeyed():
    found = from_torchvision(*both(lambda at: Vision(PIXELS[at], LABELS[at], to_tensor)))
    np.testing.assert_array_equal(found.train.images, (CHANNELS_FIRST[:7] / 255).astype(np.float32))
    assert found.train.values is None


def rows(at, words=False, image="image"):
    names = ["cat", "dog", "ewe"]
    return [
        {image: Image.fromarray(PIXELS[n]), "label": names[LABELS[n]] if words else LABELS[n], "writer": f"w{n % 3}"}
        for n in range(*at.indices(10))
    ]


@pytest.mark.parametrize("words", [False, True])
def test_huggingface(words):
    train, test = both(lambda at: Split(rows(at, words), {} if words else {"label": Classes()}))
    found = from_huggingface(train, test, owner="writer")
    check_dataset(found)
    np.testing.assert_array_equal(found.train.images, CHANNELS_FIRST[:7])
    np.testing.assert_array_equal(found.test.images, CHANNELS_FIRST[7:])
    assert found.train.labels.tolist() + found.test.labels.tolist() == LABELS
    assert found.owners.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert found.num_labels == (3 if words else 7)


def test_it_can_be_simulated():
    dataset = from_huggingface(*both(lambda at: rows(at, image="picture")), image="picture")
    small = fedtide.experiment(
        fleet={"num_devices": 3},
        data={"partition": "iid"},
        policy={"limit": 2},
        timeline={"horizon": 0.5},
        learning={"model": "softmax"},
    )
    assert fedtide.simulate(small, dataset=dataset).rounds


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: from_torchvision(3, 4), "train is a int that does not give"),
        (lambda: from_torchvision([1, 2], [3]), "does not give .image, label. by number"),
        (lambda: from_torchvision(Plain(), Plain()), "train has no samples"),
        (
            lambda: from_torchvision([(PIXELS[0], 1), (PIXELS[1][:4], 1)], [(PIXELS[0], 1)]),
            r"an image \[4, 5, 3\] \(number 1\) and one \[6, 5, 3\]: bring",
        ),
        (lambda: from_torchvision([(PIXELS[0], "cat")], [(PIXELS[0], 1)]), "labels are of type int, str: give whole"),
        (lambda: from_torchvision([(PIXELS[0], 1)], [(PIXELS[0], 1.7)]), "labels are of type float, int: give whole"),
        (lambda: from_huggingface(3, 4), "train gives a int, not rows: pass one split"),
        (lambda: from_huggingface({"train": 1}, 4), "train gives a str, not rows: pass one split"),
        (
            lambda: from_huggingface(rows(slice(5)), rows(slice(5)), image="img"),
            "columns image, label, writer, and no 'img'",
        ),
        (lambda: from_huggingface([{"image": PIXELS[0], "label": 1.5}], []), "test has no samples"),
        (lambda: from_huggingface([{"image": PIXELS[0], "label": 1.5}] * 2, rows(slice(2))), "of type float, int"),
    ],
)
def test_what_cannot_be(make, reason):
    with pytest.raises(DataError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)
