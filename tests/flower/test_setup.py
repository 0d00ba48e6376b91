"""The app's folder, certificates and keys, and processes that are stopped."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from memory_grid import terms

from fedtide.deploy.credentials import make_credentials
from fedtide.deploy.demo import Federation
from fedtide.deploy.settings import from_run_config, write_app
from fedtide.deploy.watchdog import _federation_processes
from fedtide.errors import FedtideError


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # of pathspec, in Flower
def test_the_app_is_one_that_flower_accepts(tmp_path: Path) -> None:
    wanted = terms({"policy": {"scheduler": {"quoted": 'a "b" \\ c\n'}}})
    app = write_app(tmp_path / "app", wanted, tmp_path / "run")
    settings, _ = load_and_validate(app / "pyproject.toml")
    flat = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert from_run_config(flat) == wanted
    assert settings["tool"]["flwr"]["app"]["components"]["serverapp"] == "fedtide_app.server:app"
    assert build_fab_from_disk(app)
    write_app(app, wanted, tmp_path / "other")  # its own folder may be written again
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("!")
    with pytest.raises(FedtideError, match="holds something else"):
        write_app(tmp_path / "mine", wanted, tmp_path / "run")


def test_certificates_and_keys(tmp_path: Path) -> None:
    made = make_credentials(tmp_path / "keys", ["example.org", "10.0.0.1"], 2)
    authority, server = (
        x509.load_pem_x509_certificate(path.read_bytes()) for path in (made.authority, made.certificate)
    )
    server.verify_directly_issued_by(authority)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["example.org"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    for path in (made.key, *(private for private, _ in made.nodes)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for private, public in made.nodes:
        key = serialization.load_ssh_private_key(private.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert key.public_key() == serialization.load_ssh_public_key(public.read_bytes())
    with pytest.raises(FedtideError, match="never overwritten"):
        make_credentials(tmp_path / "keys", ["localhost"], 1)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")
def test_grandchildren_are_stopped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that detaches itself, as Flower's do, still carries our FLWR_HOME."""
    federation = Federation(tmp_path / "home")
    code = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], start_new_session=True); "
        "print('up', flush=True); time.sleep(100)"
    )
    monkeypatch.setattr("fedtide.deploy.demo._program", lambda name: sys.executable)
    process = federation.start("sleeper", ["python", "-c", code])
    log = federation.home / "sleeper.log"
    while "up" not in log.read_text():
        assert process.poll() is None
    assert len(_federation_processes(federation.home)) == 2
    federation.__exit__()
    assert _federation_processes(federation.home) == []
    assert process.poll() is not None


SLEEPERS = """
import subprocess, sys, time
from pathlib import Path
from fedtide.deploy import demo as federation
from fedtide.deploy.watchdog import _federation_processes
federation._program = lambda name: sys.executable
here = Path(sys.argv[1])
made = federation.Federation(here / "home", temporary=here)
(here / "secret.key").write_text("!")
child = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'], "
made.start("sleeper", ["python", "-c", child + "start_new_session=True); time.sleep(100)"])
while len(_federation_processes(made.home)) < 2:
    time.sleep(0.02)
print("up", flush=True)
exec(sys.argv[2])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")
@pytest.mark.parametrize(
    "then",
    [
        "time.sleep(100)",  # killed
        "import os; os._exit(1)",
        "raise ValueError",
        "made._watchdog.stdin.close(); time.sleep(0.2)",
    ],
)
def test_a_parent_that_is_gone_leaves_nothing_behind(tmp_path: Path, then: str) -> None:
    here = tmp_path / "temporary"
    here.mkdir()
    code = [sys.executable, "-c", SLEEPERS, str(here), then]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        if then.startswith("time"):
            assert len(_federation_processes(here / "home")) == 2
            parent.kill()
    until = time.monotonic() + 10
    while _federation_processes(here / "home") or here.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_flwr_that_hangs_or_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(tmp_path / "home")
    (tmp_path / "sleep").write_text("#!/bin/sh\nsleep 5\n")
    (tmp_path / "fail").write_text("#!/bin/sh\nprintf 'a\\nb\\377'\nexit 3\n")
    for name, says in (("sleep", "did not answer within 0 s"), ("fail", "flwr run failed: a b")):
        (tmp_path / name).chmod(0o700)
        monkeypatch.setattr("fedtide.deploy.demo._program", lambda _, name=name: str(tmp_path / name))
        monkeypatch.setattr("fedtide.deploy.demo.ANSWER_SECONDS", 0.3 if name == "sleep" else 30.0)
        with pytest.raises(FedtideError, match=says) as failure:
            federation.flwr("run", "x")
        assert "\n" not in str(failure.value)
    federation.__exit__()


def test_a_superlink_that_does_not_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedtide.deploy.demo._program", lambda name: "/bin/false")
    with pytest.raises(FedtideError, match="did not start: its log is empty"), Federation(tmp_path / "home") as made:
        made.start_superlink()


def test_the_core_needs_no_flower() -> None:
    modules = "settings, trace, privacy, node, replay"
    code = f"import sys; sys.modules['flwr'] = None; from fedtide.deploy import {modules}; import fedtide.cli.deploy"
    subprocess.run([sys.executable, "-c", code], check=True)
