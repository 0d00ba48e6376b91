"""Updates of many kinds, for codecs to stumble over."""

from __future__ import annotations

import numpy as np

LARGEST = float(np.finfo(np.float32).max)


def update_of(kind: str, d: int, rng: np.random.Generator) -> np.ndarray:
    normal = rng.standard_normal(d)
    made = {
        "normal": normal,
        "heavy": rng.laplace(size=d) ** 3,
        "zero": np.zeros(d),
        "one-hot": np.eye(1, d, int(rng.integers(d)))[0] * -3.0,
        "signs": np.sign(normal),
        "huge": np.clip(normal * 1e38, -LARGEST, LARGEST),
        "tiny": normal * 1e-38,
        "denormal": rng.integers(-3, 4, d) * 1.5e-45,
        "layers": normal * 10.0 ** rng.integers(-6, 3, d // 50 + 1).repeat(50)[:d],
    }
    return made[kind].astype(np.float32)


KINDS = ["normal", "heavy", "zero", "one-hot", "signs", "huge", "tiny", "denormal", "layers"]
