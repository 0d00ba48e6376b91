"""The PyTorch modules of the layers for text: an embedding of codes, and recurrent units."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn

from fedtide.errors import TrainingError


class CodeEmbedding(nn.Embedding):
    """Takes codes that are written as numbers [b 1 1 steps] to rows of its table [b steps width]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Look the codes up; raise if there are others than 0 to num_embeddings - 1."""
        codes = x.flatten(1).long()
        low, high = (int(each) for each in codes.aminmax()) if len(codes) else (0, 0)
        if low < 0 or high >= self.num_embeddings:
            raise TrainingError(
                f"the samples hold codes from {low} to {high}, and the model's embedding has {self.num_embeddings} symbols: "
                "give codes from 0 to num_labels - 1, as the data set shakespeare does"
            )
        return super().forward(codes)


class LastState(nn.GRU):
    """Gated recurrent units [b steps width] of which only the last state is wanted [b out]."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(width, out, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Step through the rows, from zeros on."""
        return cast(torch.Tensor, super().forward(x)[1][0])
