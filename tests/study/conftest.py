from __future__ import annotations

from pathlib import Path

import pytest

SLOW_SCHEDULER = '''
import time
import numpy as np

def slow(candidates, limit, rng):
    """Take the freshest, and take a moment."""
    time.sleep(0.03)
    return np.argsort(candidates.age, kind="stable")[:limit]
'''


@pytest.fixture(scope="module")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of six short runs whose scheduler dawdles, so that there is time to interrupt it."""
    tmp_path = tmp_path_factory.mktemp("study")
    (tmp_path / "slow.py").write_text(SLOW_SCHEDULER)
    path = tmp_path / "study.yaml"
    path.write_text(f"""
version: 1
name: small
base:
  data: {{name: synthetic, num_train: 200, num_test: 50, num_shards: 20}}
  fleet: {{num_devices: 6}}
  timeline: {{horizon: 8}}
  policy: {{scheduler: "{tmp_path / "slow.py"}:slow"}}
  learning: {{model: softmax, local_epochs: 1}}
axes:
  policy.limit: [1, 2, 3]
seeds: 2
""")
    return path
