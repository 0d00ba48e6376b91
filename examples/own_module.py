"""A model of your own: any torch.nn.Module that takes images [b c h w] to one logit per label.

State outside the parameters does not travel between devices, so use GroupNorm or LayerNorm in place of BatchNorm.

fedtide run learning.model=examples/own_module.py:make learning.trainer=torch data.name=synthetic
"""

from torch import nn


def make() -> nn.Module:
    """Return a fresh module; fedtide draws its first parameters under the experiment's seed."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(8 * 6 * 6, 10),
    )
