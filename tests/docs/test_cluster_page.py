"""The files on docs/howto/cluster.md: the job runs as processes on this machine, the manifests fit together."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from helpers import ROOT
from stored import TINY

PAGE = (ROOT / "docs" / "howto" / "cluster.md").read_text()


def block(start: str) -> str:
    """Return the code block of the page that begins with this line."""
    found = re.search(rf"```\w+\n({re.escape(start)}.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


@pytest.mark.slow
def test_the_slurm_job_runs_a_study_on_one_machine(tmp_path: Path) -> None:
    """Without `srun`, and on whatever path is here; nothing outlives the job."""
    pytest.importorskip("distributed")
    tree = {"version": 1, "name": "tiny", "base": TINY, "axes": {"policy.limit": [1, 2]}, "seeds": 1}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(tree))
    job = block("#!/bin/bash").replace("srun ", "").replace(" FEDTIDE_ISA=avx2", "")
    for name, module in (("dask", "dask"), ("fedtide", "fedtide"), ("python", "")):  # of this environment
        words = f'-m {module} "$@"' if module else '"$@"'
        (tmp_path / name).write_text(f"#!/bin/sh\nexec {sys.executable} {words}\n")
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", job], cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path).rglob("runs.csv.gz"))


def test_the_manifests_fit_together() -> None:
    scheduler, service, worker = yaml.safe_load_all(block("apiVersion: apps/v1"))
    for each in (scheduler, worker):
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == scheduler["spec"]["template"]["metadata"]["labels"]
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    port = service["spec"]["ports"][0]["port"]
    assert container["command"][:3] == ["dask", "worker", f"tcp://{service['metadata']['name']}:{port}"]
