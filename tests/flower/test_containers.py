"""Image, compose file and systemd units, as far as a machine without a container daemon goes: their commands are run as processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedtide.deploy.replay import replay
from fedtide.deploy.watchdog import _federation_processes
from fedtide.runs import is_complete

ROOT = Path(__file__).parents[2]
HERE = ROOT / "examples" / "federation"
SCRIPT = (HERE / "federation.sh").read_text()
COMPOSE = yaml.safe_load((HERE / "compose.yaml").read_text())
PARTS = {name: service for name, service in COMPOSE["services"].items() if service["image"] == "fedtide"}
UNITS = sorted((HERE / "systemd").glob("*.service"))
VARIABLES = {*re.findall(r'^: "\$\{(\w+):=', SCRIPT, re.MULTILINE), "FLWR_HOME", "PATH"}


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each with its words."""
    text = re.sub(r"\\\n", " ", (HERE / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def commands() -> set[str]:
    return set(re.search(r"federation\.sh ([\w|]+)", SCRIPT)[1].split("|"))  # type: ignore[index]


def test_the_image_is_made_of_what_there_is() -> None:
    steps, copied = dockerfile(), set()
    for instruction, words in steps:
        if instruction == "COPY" and not words.startswith("--from"):
            *sources, target = words.split()
            assert all((ROOT / source).exists() for source in sources), words
            copied.add(f"{target}{Path(sources[0]).name}" if target.endswith("/") else target)
    entry = next(json.loads(words) for instruction, words in steps if instruction == "ENTRYPOINT")
    assert f"/usr/local/bin/{entry[0]}" in copied
    assert os.access(HERE / entry[0], os.X_OK)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {extra for _, words in steps for group in re.findall(r"\[([a-z,]+)\]", words) for extra in group.split(",")}
    assert asked
    assert asked <= extras.keys()
    # What scikit-build-core needs besides a compiler are the files of the build.
    assert {"/source/native", "/source/src"} <= copied
    for path in (ROOT / "CMakeLists.txt", ROOT / "pyproject.toml"):
        assert any(path.name in words for instruction, words in steps if instruction == "COPY")


def test_compose_and_units_set_what_the_script_reads() -> None:
    assert commands() == set(re.findall(r"^(\w+)\)", SCRIPT, re.MULTILINE))
    assert {part["command"][0] for part in PARTS.values()} == commands()
    for part in PARTS.values():
        assert part["environment"].keys() <= VARIABLES
        assert set(part.get("depends_on", ())) <= COMPOSE["services"].keys()
    nodes = [part["environment"]["NODE"] for part in PARTS.values() if part["command"] == ["node"]]
    assert nodes == [str(number) for number in range(int(PARTS["run"]["environment"]["NODES"]))]
    for unit in UNITS:
        lines = unit.read_text().splitlines()
        start = next(line.partition("=")[2].split() for line in lines if line.startswith("ExecStart="))
        assert Path(start[0]).name == "federation.sh"
        assert start[1] in commands()
        given = [line.partition("=")[2].split() for line in lines if line.startswith("Environment=")]
        assert {word.partition("=")[0] for words in given for word in words} <= VARIABLES
    own = (HERE / "systemd" / "federation.env").read_text().splitlines()
    assert {line.partition("=")[0] for line in own if line and line[0] != "#"} <= VARIABLES


def test_prometheus_asks_where_metrics_are() -> None:
    (job,) = yaml.safe_load((HERE / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    assert target == f"metrics:{re.search(r'METRICS_PORT:=([0-9]+)', SCRIPT)[1]}"  # type: ignore[index]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@1")
    copy.write_text(unit.read_text().replace("/opt/fedtide/federation.sh", str(HERE / "federation.sh")))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert str(copy) not in done.stderr, done.stderr


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def interpolated(text: str) -> str:
    """Return a value of the compose file as it is without variables of the user's own."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


class Services:
    """The services of the compose file as processes of this machine, on other ports and in a folder of their own."""

    def __init__(self, place: Path, experiment: str) -> None:
        self.place, self.processes = place, dict[str, subprocess.Popen[bytes]]()
        self.metrics_port = free_port()
        self.common = {
            "KEYS": str(place / "keys"),
            "RUNS": str(place / "runs"),
            "HOST": "127.0.0.1",
            "LISTEN": "127.0.0.1",
            "PORT": str(free_port()),
            "METRICS_PORT": str(self.metrics_port),
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "OMP_NUM_THREADS": "1",
        }
        self.experiment = experiment
        (place / "runs").mkdir()

    def start(self, name: str) -> subprocess.Popen[bytes]:
        part = PARTS[name]
        own = {key: interpolated(value) for key, value in part["environment"].items()}
        own["EXPERIMENT"] += f" {self.experiment}"
        own |= {"FLWR_HOME": str(self.place / f"home-{name}"), "NODE_PORT": str(free_port())}
        with open(self.place / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                ["sh", str(HERE / "federation.sh"), *part["command"]],
                env={**os.environ, **own, **self.common},
                cwd=self.place,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.processes[name] = process
        return process

    def finish(self, name: str, seconds: float) -> None:
        code = self.start(name).wait(seconds)
        assert code == 0, (self.place / f"{name}.log").read_text()[-1500:]

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        for name in self.processes:
            for pid in _federation_processes(self.place / f"home-{name}"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    made = Services(
        tmp_path, "timeline.period=15 timeline.horizon=75 learning.model=softmax data.num_train=600 data.num_test=100"
    )
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are found through /proc")
def test_the_compose_file_runs(services: Services, tmp_path: Path) -> None:
    run, metrics = tmp_path / "runs" / "first", f"http://127.0.0.1:{services.metrics_port}"

    def ask(path: str) -> str:
        try:
            with urllib.request.urlopen(f"{metrics}/{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except OSError as error:
            return str(error)

    def wait_for(path: str, says: str, seconds: float) -> None:
        until = time.monotonic() + seconds
        while says not in (found := ask(path)):
            if time.monotonic() > until:
                logs = [*tmp_path.glob("*.log"), *tmp_path.glob("runs/*.log")]
                pytest.fail("\n".join([found, *(f"== {log.name}\n{log.read_text()[-1500:]}" for log in logs)]))
            time.sleep(0.5)

    services.finish("keys", 60)
    assert {"authority.pem", "node-2.key", "node-2.pub"} <= {path.name for path in (tmp_path / "keys").iterdir()}
    services.finish("keys", 60)  # again: they are kept
    services.start("superlink")
    services.start("metrics")
    wait_for("ready", "503", 60)  # it answers, and nothing has begun
    services.finish("run", 180)
    for name in ("node-0", "node-1", "node-2"):
        services.start(name)
    wait_for("ready", "ok", 180)
    services.processes["node-1"].terminate()  # `docker compose restart node-1`
    assert services.processes["node-1"].wait(30) in (0, -15, 130, 143)
    services.start("node-1")
    wait_for("metrics", "fedtide_complete 1.0", 240)
    text = ask("metrics")
    assert "fedtide_periods_total 5.0" in text
    assert float(re.search(r"^fedtide_nodes (\S+)", text, re.MULTILINE)[1]) == 3  # type: ignore[index]
    assert is_complete(run)
    assert replay(run).first_difference is None


@pytest.mark.slow
@pytest.mark.integration
def test_the_build_steps_work_in_an_empty_environment(tmp_path: Path) -> None:
    """All RUN lines but those of Debian's tools, with the image's folders in a temporary one."""
    if subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", tmp_path / "probe", "wheel"],
                      capture_output=True, check=False).returncode:  # fmt: skip
        pytest.skip("there is no package index")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    variables = {**os.environ, "PATH": os.pathsep.join([str(environment / "bin"), os.environ["PATH"]])}
    (tmp_path / "source").mkdir()
    for instruction, words in dockerfile():
        if instruction == "COPY" and "/source" in words:
            *sources, target = words.split()
            for source in sources:
                place = tmp_path / target.strip("/")
                place = place / source if target.endswith("/") else place
                copy: Any = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, place)
        if instruction == "RUN" and shlex.split(words)[0] == "pip":
            own = re.sub(r"(?<=[\s\"])/(source|wheels)", rf"{tmp_path}/\1", words)
            subprocess.run(own, shell=True, env=variables, check=True)
    done = subprocess.run(
        [str(environment / "bin" / "fedtide"), "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith("fedtide ")
    for program in ("flower-superlink", "flower-supernode", "flwr"):
        assert (environment / "bin" / program).exists()
