"""What the machine and a user's own code do to us: one line, a documented exit code, nothing lost. Tables of faults."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from judge import CODES, SMALL, Wrong, contents, one_line, refused, wrong

import fedtide
from fedtide import config
from fedtide.cli import console
from fedtide.cli.main import app
from fedtide.core import faults, files
from fedtide.core import signals as core_signals
from fedtide.data import PARTITIONS
from fedtide.errors import DataError, FedtideError, RunFolderError, TrainingError
from fedtide.plot.figure import is_whole_figure, new_figure, save_figure, write_figure
from fedtide.report.terminal import terminal_curve
from fedtide.studies import run as studies_run
from fedtide.studies.metrics import METRICS
from fedtide.studies.run import _run_one

FEDTIDE = [sys.executable, "-m", "fedtide"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "r"
    assert CliRunner().invoke(app, ["run", *SMALL, "-o", str(folder)]).exit_code == 0
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "r"))


# --- any exception as one line -------------------------------------------------------------------------------------------


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")

    __repr__ = __str__


class Quiet(BaseException):
    pass


class MuteOurs(FedtideError):
    def __str__(self):
        raise ValueError("no words")


def os_error(number: int, *names: str) -> OSError:
    return OSError(number, os.strerror(number), *names)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


TOO_BIG = "array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."


@pytest.mark.parametrize(
    ("error", "says", "code"),
    [
        (os_error(errno.EACCES, "a/b"), r"^a/b: Permission denied; name another place", 6),
        (os_error(errno.EPERM, "a"), r"^a: Operation not permitted; name another place", 6),
        (os_error(errno.EROFS, "a"), r"^a: Read-only file system; name a place that can be written", 6),
        (os_error(errno.ENOSPC, "a"), r"^a: No space left on device; free space", 6),
        (os_error(errno.EDQUOT, "a"), r"^a: Disk quota exceeded; free space", 6),
        (os_error(errno.EMFILE, "a"), r"^a: Too many open files; .*ulimit -n.*nothing is wrong with the file", 6),
        (os_error(errno.ENFILE, "a"), r"^a: Too many open files in system; .*nothing is wrong", 6),
        (os_error(errno.ENAMETOOLONG, "a" * 3000), r"^a+\.\.\.a+: File name too long; choose a shorter name", 6),
        (os_error(errno.ELOOP, "a"), r"^a: Too many levels of symbolic links; the link leads back", 6),
        (os_error(errno.EISDIR, "a"), r"^a: Is a directory; name a file", 6),
        (os_error(errno.ENOTDIR, "a/b"), r"^a/b: Not a directory; a part of this path is a file", 6),
        (os_error(errno.ENOENT, "a"), r"^a: No such file or directory; check the name", 6),
        (os_error(errno.EIO, "a"), r"^a: Input/output error; the disk", 6),
        (os_error(errno.ENOMEM), r"^Cannot allocate memory \(.*\); free memory", 6),
        (os_error(errno.EAGAIN), r"Resource temporarily unavailable.*too many processes or threads", 6),
        (os_error(errno.ESTALE, "a"), r"^a: Stale file handle; check it", 6),
        (OSError(errno.EXDEV, os.strerror(errno.EXDEV), "a", None, "b"), r"^a and b: Invalid cross-device link", 6),
        (OSError(errno.EACCES, "Permission denied", b"a\xff"), r"^a.*: Permission denied", 6),
        (MemoryError(), r"not enough memory: free memory", 6),
        (MemoryError("std::bad_alloc"), r"not enough memory \(std::bad_alloc\)", 6),
        (np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype(np.float64)), r"allocate 8\.00 TiB", 6),  # type: ignore[attr-defined]
        (ValueError(TOO_BIG), r"too large for this machine", 6),
        (ValueError("Maximum allowed dimension exceeded"), r"too large for this machine", 6),
        (OverflowError("Python int too large to convert to C ssize_t"), r"too large for this machine", 6),
        (RecursionError("maximum recursion depth exceeded"), r"nested too deeply", 2),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), r"is not UTF-8", 2),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), r"is not UTF-8", 2),
        (ModuleNotFoundError("No module named 'yaml'", name="yaml"), r"lacks the package 'yaml'", 6),
        (TypeError("x\ny"), r"defect of fedtide.*TypeError: x y .*FEDTIDE_TRACEBACK=1", 1),
        (Mute(), r"defect of fedtide.*: Mute \(", 1),
        (Quiet("x"), r"defect of fedtide.*: Quiet: x", 1),
        (OSError("no number"), r"defect of fedtide.*OSError: no number", 1),
        (MuteOurs(), r"^MuteOurs$", 2),
        (FedtideError("x=1: no"), r"^x=1: no$", 2),
        (DataError("no"), r"^no$", 3),
        (RunFolderError("f is damaged (no zip file); restore it"), r"^f is damaged", 4),
        (caused(RunFolderError("f is damaged (x)"), os_error(errno.EMFILE, "f")), r"^f: Too many open files", 6),
        (caused(RunFolderError("f is damaged (x)"), os_error(errno.EACCES, "f")), r"^f: Permission denied", 6),
        (caused(RunFolderError("f is damaged (x)"), MemoryError()), r"not enough memory", 6),
        (caused(RunFolderError("f cannot be written"), os_error(errno.ENOSPC, "f")), r"^f cannot be written$", 4),
        (TrainingError("a\x1b[31mb\x00\x07c" + "d" * 5000), r"^a\\x1b\[31mb\\x00\\x07cd+\.\.\.d+$", 5),
        (TrainingError("many words " * 500), r"^many words .* \.\.\. .*words$", 5),
    ],
    ids=lambda value: f"{type(value).__name__}" if isinstance(value, BaseException) else None,
)
def test_any_exception_is_one_line_and_a_code(error, says, code, monkeypatch):
    line, found = faults.explain_fault(error)
    assert re.search(says, line), line
    assert found == code
    assert "\n" not in line
    assert len(line) < 950

    def fails():
        raise error

    monkeypatch.setitem(app.commands, "fails", click.Command("fails", callback=fails))
    found = CliRunner().invoke(app, ["fails"])
    assert found.exit_code == code  # type: ignore[attr-defined]
    assert one_line(found.stderr)  # type: ignore[attr-defined]


def test_the_traceback_of_a_defect_is_there_for_who_asks(monkeypatch):
    monkeypatch.setenv("FEDTIDE_TRACEBACK", "1")
    monkeypatch.setitem(app.commands, "fails", click.Command("fails", callback=lambda: {}["x"]))
    said = CliRunner().invoke(app, ["fails"]).stderr
    assert "Traceback (most recent call last)" in said
    assert "defect of fedtide" in said


# --- the machine refuses a file ------------------------------------------------------------------------------------------


def refuse(monkeypatch, number: int, part: str, *, writing: bool = False) -> None:
    """Make the machine refuse to open, make or rename whatever has `part` in its path."""

    def guarded(real):
        def call(path, *args, **kwargs):
            mode = next((each for each in (*args, *kwargs.values()) if isinstance(each, str)), "r")
            flags = next((each for each in args if isinstance(each, int)), 0)
            writes = not mode.startswith("r") or flags & (os.O_WRONLY | os.O_RDWR) or real in (mkdir, replace)
            if not isinstance(path, int) and part in os.fsdecode(path) and (writes or not writing):
                raise os_error(number, os.fsdecode(path))
            return real(path, *args, **kwargs)

        return call

    mkdir, replace = os.mkdir, os.replace
    opened = guarded(builtins.open)
    monkeypatch.setattr(os, "open", guarded(os.open))
    monkeypatch.setattr(os, "mkdir", guarded(mkdir))
    monkeypatch.setattr(os, "replace", guarded(replace))
    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(builtins, "open", opened)


READING = (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ENOMEM)
WRITING = (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE)


@pytest.mark.parametrize("number", READING, ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["experiment.yaml", "rounds.jsonl", "checkpoint.npz", "model.npy"])
def test_a_good_file_that_the_machine_does_not_give_is_not_called_damaged(run, monkeypatch, number, name):
    before = contents(run)
    with monkeypatch.context() as patch:
        refuse(patch, number, f"r/{name}")
        found = CliRunner().invoke(app, ["show", "r"])
    line = one_line(found.stderr)
    assert found.exit_code in CODES - {5}, line
    assert os.strerror(number) in line
    assert name in line
    assert not re.search("damaged|new folder|rerun", line), line
    assert contents(run) == before


@pytest.mark.parametrize("number", WRITING, ids=errno.errorcode.get)
@pytest.mark.parametrize(
    "words",
    [
        ("run", *SMALL, "-o", "out/run"),
        ("theory", "num_ticks=3", "num_seeds=2", "num_draws=10", "-o", "out"),
    ],
    ids=lambda words: words[0],
)
def test_a_place_that_cannot_be_written_to(monkeypatch, number, words):
    with monkeypatch.context() as patch:
        refuse(patch, number, "out", writing=True)
        found = CliRunner().invoke(app, list(words))
    line = one_line(found.stderr)
    assert found.exit_code in CODES, line
    assert os.strerror(number) in line


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES], ids=errno.errorcode.get)
def test_a_run_is_shown_even_if_its_figure_cannot_be_drawn(run, monkeypatch, number):
    (run / "curve.png").write_bytes(b"\x89PNG half")
    with monkeypatch.context() as patch:
        refuse(patch, number, "curve.png", writing=True)
        found = CliRunner().invoke(app, ["show", "r", "--json"])
    assert found.exit_code == 0, found.stderr
    assert json.loads(found.stdout)["complete"]
    assert f"no figure: r/curve.png cannot be written ({os.strerror(number)})" in found.stderr
    assert (run / "curve.png").read_bytes() == b"\x89PNG half"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("name", ["experiment.yaml", "rounds.jsonl", "checkpoint.npz"])
def test_a_study_does_not_throw_away_a_part_that_the_machine_does_not_give(run, monkeypatch, number, name):
    (run / "model.npy").unlink()
    before, tree = contents(run), config.parse_overrides(SMALL)
    with monkeypatch.context() as patch:
        refuse(patch, number, f"r/{name}")
        with pytest.raises(FedtideError, match=os.strerror(number)):
            _run_one(tree, "r")
    assert contents(run) == before


@pytest.mark.parametrize("error", [Mute(), os_error(errno.ENOSPC, "a")])
def test_a_run_of_a_study_that_fails_in_its_own_words(monkeypatch, error):
    def fails(*task):
        raise error

    monkeypatch.setattr(studies_run, "_run_one", fails)
    assert studies_run._attempt() == faults.explain_fault(error)


# --- figures are whole or not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_full_disk_leaves_the_old_figure(tmp_path, monkeypatch, kind):
    figure, path = new_figure(2, 2), tmp_path / f"f.{kind}"
    path.write_bytes(b"old")

    def full(handle):
        raise os_error(errno.ENOSPC)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left"):
        write_figure(figure, path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [(path.name, b"old")]


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 1000, -12, -1])
def test_a_figure_that_was_cut_is_drawn_anew(run, cut):
    whole = (run / "curve.png").read_bytes()
    assert is_whole_figure(run / "curve.png")
    (run / "curve.png").write_bytes(whole[:cut])
    assert not is_whole_figure(run / "curve.png")
    assert CliRunner().invoke(app, ["show", "r"]).exit_code == 0
    assert (run / "curve.png").read_bytes() == whole


@pytest.mark.parametrize(
    ("backend", "home"),
    [("module://matplotlib_inline.backend_inline", None), ("nonsense", "/nonexistent"), ("TkAgg", None)],
)
def test_figures_need_no_backend(tmp_path, backend, home):
    code = "from pathlib import Path; from fedtide.plot.figure import *; save_figure(new_figure(2, 2), Path('f'))"
    env = {**os.environ, "MPLBACKEND": backend, **({"MPLCONFIGDIR": "/proc/none", "HOME": home} if home else {})}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.pdf", "f.png", "f.svg"]


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    first = [path.read_bytes() for path in save_figure(new_figure(2, 2), tmp_path / "a")]
    assert first == [path.read_bytes() for path in save_figure(new_figure(2, 2), tmp_path / "b")]


# --- a user's own code ---------------------------------------------------------------------------------------------------

POLICIES = """
import os, sys

class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")
    __repr__ = __str__

class Base(BaseException):
    pass

class Odd:
    def _fail(self, *args, **kwargs):
        raise Mute()
    __len__ = __iter__ = __array__ = __repr__ = __str__ = __getitem__ = _fail

def leaves(*args): sys.exit(0)
def leaves_silently(*args): raise SystemExit
def leaves_loudly(*args): sys.exit("I had enough")
def mute(*args): raise Mute()
def base(*args): raise Base("x")
def keyboard(*args): raise KeyboardInterrupt
def ends(*args): raise GeneratorExit
def deep(*args): return deep(*args)
def memory(*args): raise MemoryError
def odd(*args): return Odd()
def closes(candidates, limit, rng): sys.stdout.close(); return list(range(limit))
def pipe(*args): raise BrokenPipeError(32, "Broken pipe")
def denied(*args): open("/proc/1/mem/none")

def swallows(candidates, limit, rng):
    from fedtide.core import signals as stop
    try:
        stop._starting, stop._asked_at = False, float("-inf")
        stop._handle(15, None)
    except BaseException:
        return list(range(limit))

def prints(candidates, limit, rng):
    print("hello")
    sys.stdout.write("there")
    return list(range(limit))
"""


@pytest.fixture
def policies(tmp_path, monkeypatch):
    monkeypatch.setattr(core_signals, "_installed", True)  # as in a process of the command line
    (tmp_path / "p.py").write_text(POLICIES)


@pytest.mark.parametrize("command_name", ["run", "plan"])
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("leaves", r"raised SystemExit: 0 \(p.py:\d+\)"),
        ("leaves_silently", r"raised SystemExit \(p.py:\d+\)"),
        ("leaves_loudly", r"raised SystemExit: I had enough \(p.py:\d+\)"),
        ("mute", r"raised Mute \(p.py:\d+\)"),
        ("base", r"raised Base: x \(p.py:\d+\)"),
        ("keyboard", r"raised KeyboardInterrupt \(p.py:\d+\)"),
        ("ends", r"raised GeneratorExit \(p.py:\d+\)"),
        ("deep", r"raised RecursionError"),
        ("memory", r"raised MemoryError"),
        ("odd", r"returned positions a Odd"),
        ("pipe", r"raised BrokenPipeError"),
        ("denied", r"raised (NotADirectory|FileNotFound|Permission)Error"),
    ],
)
def test_a_policy_does_not_end_a_run_unheard(policies, command_name, name, says):
    words = (*SMALL, f"policy.scheduler=p.py:{name}", *(("-o", "r") if command_name == "run" else ()))
    refused(wrong(command_name, *words, says=says, code=5))


@pytest.mark.parametrize(
    ("key", "code"), [("policy.weighting", 5), ("policy.aggregator", 5), ("timeline.name", 2), ("codec.name", 2)]
)
def test_every_kind_of_policy_is_guarded(policies, key, code):
    refused(wrong("run", *SMALL, f"{key}=p.py:leaves", "-o", "r", says=r"leaves'", code=code))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys\nsys.exit(0)\n", r"reading q.py raised SystemExit: 0 \(q.py:2\)"),
        ("raise KeyboardInterrupt\n", r"reading q.py raised KeyboardInterrupt \(q.py:1\)"),
        ("class E(BaseException): pass\n\nraise E('x')\n", r"raised E: x \(q.py:3\)"),
        ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E\n", r"reading q.py raised E \(q.py:3\)"),
        ("def f(): f()\nf()\n", r"raised RecursionError"),
        ("x = (", r"raised SyntaxError"),
        ("x = '\0'", r"raised (SyntaxError|ValueError)"),
        ("import nosuchpackage\n", r"raised ModuleNotFoundError: No module named 'nosuchpackage' \(q.py:1\)"),
        ("def __getattr__(name): raise SystemExit(0)\n", r"looking into q.py raised SystemExit: 0 \(q.py:1\)"),
        (
            "class X:\n    @property\n    def __signature__(self): raise SystemExit(0)\n"
            "    def __call__(self): pass\nx = X()\n",
            r"raised SystemExit: 0 \(q.py:3\)",
        ),
    ],
)
def test_a_policy_file_does_not_end_a_command_unheard(tmp_path, policies, text, says):
    (tmp_path / "q.py").write_text(text)
    refused(wrong("run", *SMALL, "policy.scheduler=q.py:x", "-o", "r", says=says))


@pytest.mark.parametrize("words", [("run", "-o", "r"), ("plan",)], ids=lambda words: words[0])
def test_what_a_policy_prints_stays_out_of_the_json(policies, words):
    found = CliRunner().invoke(app, [words[0], *SMALL, "policy.scheduler=p.py:prints", *words[1:], "--json"])
    assert found.exit_code == 0
    json.loads(found.stdout)
    assert "hello\nthere" in found.stderr
    assert console.out.file is sys.stdout  # and all is as before


def test_a_policy_that_closes_the_output(policies):
    found = shell(f"fedtide plan {' '.join(SMALL)} policy.scheduler=p.py:closes")
    assert found.returncode == 6
    assert "standard output" in one_line(found.stderr)


def test_a_library_user_keeps_ctrl_c(tmp_path):
    (tmp_path / "p.py").write_text("def f(candidates, limit, rng):\n    raise KeyboardInterrupt\n")
    experiment = config.experiment(config.parse_overrides([*SMALL, f"policy.scheduler={tmp_path}/p.py:f"]))
    with pytest.raises(KeyboardInterrupt):
        fedtide.simulate(experiment)


# --- words and paths -----------------------------------------------------------------------------------------------------

LONG = "x" * 5000
ROWS = [
    wrong("run", "", says="argument 2 is empty"),
    wrong("run", *SMALL, "-o", "", says="is empty"),
    wrong("show", "", says="is empty"),
    wrong("", says="argument 1 is empty"),
    wrong("run", "a\0b", says="NUL"),
    wrong("run", "policy.scheduler=\0", says="NUL"),
    wrong("show", "a\0b", says="NUL"),
    wrong("data", "--folder", "a\0b", says="NUL"),
    wrong("theory", "task=\0", says="NUL"),
    wrong("show", LONG, says="name too long.*shorter", code=4),
    wrong("show", "a/" * 3000, says="name too long.*shorter", code=4),
    wrong("resume", LONG, says="name too long", code=4),
    wrong("run", LONG, says="name too long"),
    wrong("run", *SMALL, "-o", "y" * 300, says="name too long.*shorter", code=4),
    wrong("plan", f"{LONG}=1", says="is not a key"),
    wrong("plan", f"data.name={LONG}", says="data.name"),
    wrong("plan", *SMALL, f"policy.scheduler={LONG}", says="a name has 500 characters at most"),
    wrong("plan", *SMALL, f"policy.scheduler={LONG}.py:f", says="a name has 500 characters at most"),
    wrong("theory", f"{LONG}=1", says="is not a key"),
    wrong("data", "--folder", LONG, says="name too long|cannot look", code=6),
    wrong("show", "file", says="not a run folder", code=4),
    wrong("show", "file/below", says="not a run folder|Not a directory", code=4),
    wrong("show", "loop", says="not a run folder|symbolic links", code=4),
    wrong("show", "dangling", says="not a run folder", code=4),
    wrong("show", "pipe", says="not a run folder", code=4),
    wrong("show", "/dev/null", says="not a run folder", code=4),
    wrong("show", "\udcff", says="not a run folder", code=4),
    wrong("resume", "file", says="not a run folder", code=4),
    wrong("run", "folder", says="cannot be read.*directory"),
    wrong("run", "loop", says="cannot be read.*symbolic links"),
    wrong("run", "dangling", says="experiment file not found"),
    wrong("run", "pipe", says="nobody wrote to this pipe"),
    wrong("plan", "/dev/zero", says="device, not a file"),
    wrong("plan", "/dev/null", says="device, not a file"),
    wrong("plan", "binary", says="cannot be read"),
    wrong("plan", "huge", says="more than 16 MB"),
    wrong("plan", "file/below", says="Not a directory"),
    wrong("plan", "\udcff.yaml", says="experiment file not found"),
    wrong("plan", "a\nb\x1b[31m", says=r"experiment file not found"),
    wrong("study", "show", "pipe", says="nobody wrote"),
    wrong("study", "show", "/dev/zero", says="device"),
    wrong("study", "run", "folder", says="directory"),
    wrong("run", *SMALL, "-o", "file", says="cannot be used|is a file|not a", code=4),
    wrong("run", *SMALL, "-o", "file/below", says="cannot be used|Not a directory", code=4),
    wrong("run", *SMALL, "-o", "loop", says="cannot be used|symbolic", code=4),
    wrong("run", *SMALL, "-o", "dangling", says="cannot be used", code=4),
    wrong("run", *SMALL, "-o", "pipe", says="cannot be used", code=4),
    wrong("run", *SMALL, "-o", "/dev/null", says="cannot be used", code=4),
    wrong("run", *SMALL, "-o", "/proc/none", says="cannot be used", code=4),
    wrong("data", "--folder", "file", says="is a file", code=3),
    wrong("data", "--folder", "pipe", says="is a file", code=3),
    wrong("data", "--folder", "loop", says="does not exist", code=3),
    wrong("data", "--folder", "folder", says="is not in folder", code=3),
    wrong("data", "--folder", "pipes", says="is not in pipes", code=3),
    wrong("data", "--folder", "holes", says="bytes, expected", code=3),
    wrong("plan", "data.folder=file", says="is a file", code=3),
    wrong("plan", *SMALL, "policy.scheduler=folder:f", says="folder"),
    wrong("plan", *SMALL, "policy.scheduler=pipe.py:f", says="not found in the working folder"),
    wrong("plan", *SMALL, "policy.scheduler=loop.py:f", says="not found in the working folder|symbolic"),
    wrong("plan", *SMALL, "policy.scheduler=binary.py:f", says="reading binary.py raised"),
    wrong("theory", "-o", "file", "num_ticks=3", "num_seeds=2", "num_draws=10", says="file"),
    wrong("theory", "-o", "pipe", "num_ticks=3", "num_seeds=2", "num_draws=10", says="pipe"),
    wrong("theory", "-o", "/proc/none", "num_ticks=3", "num_seeds=2", "num_draws=10", says="/proc/none"),
    wrong("nosuch", says="No such command 'nosuch'; see `.* --help`"),
    wrong("stud", says="No such command 'stud'"),
    wrong("rnu", says=r"No such command 'rnu' \(did you mean run\?\); see `[^`]* --help`$"),
    wrong("run", "--threads", "0", says="'--threads' / '-j': 0 is not in the range"),
    wrong("run", "--threads", "many", says="'many' is not a valid int"),
    wrong("plan", "--ticks", "-1", says="--ticks"),
    wrong("run", "--nosuch", says="No such option.*--nosuch.*; see `.* run --help`"),
    wrong("run", "--out", says="requires an argument"),
    wrong("show", says="Missing argument 'RUN'"),
    wrong("show", "a", "b", says="unexpected extra argument"),
    wrong("study", "nosuch", says="No such command"),
    wrong("policies", says="No such command 'policies'"),
    wrong("parts", "x", "y", says="unexpected extra argument"),
    wrong("--version=3", says="--version"),
]


@pytest.fixture
def odd_files(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "PIPE_SECONDS", 0.05)
    (tmp_path / "file").write_text("seed: 1\n")
    (tmp_path / "folder").mkdir()
    for name in ("loop", "loop.py"):
        (tmp_path / name).symlink_to(name)
    (tmp_path / "dangling").symlink_to("gone")
    for name in ("pipe", "pipe.py"):
        os.mkfifo(tmp_path / name)
    for name in ("binary", "binary.py"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00" * 100)
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 33)
    for name in ("pipes", "holes"):
        (tmp_path / name).mkdir()
    os.mkfifo(tmp_path / "pipes" / "train-images-idx3-ubyte")
    with open(tmp_path / "holes" / "train-images-idx3-ubyte", "wb") as file:
        file.truncate(1 << 40)
    return tmp_path


@pytest.mark.parametrize("case", ROWS, ids=str)
def test_words_and_paths(odd_files, case: Wrong):
    before = contents(odd_files / "folder")
    refused(case)
    assert contents(odd_files / "folder") == before
    assert not (odd_files / "gone").exists()


@pytest.mark.parametrize("name", ["experiment.yaml", "versions.json", "rounds.jsonl", "checkpoint.npz", "model.npy"])
@pytest.mark.parametrize("words", [("show", "r"), ("resume", "r")], ids=lambda words: words[0])
def test_a_run_folder_with_a_pipe_in_it(run, name, words):
    (run / name).unlink()
    os.mkfifo(run / name)
    refused(wrong(*words, says=f"r/{name} is not a file", code=4))


def test_a_pipe_that_somebody_writes_to():
    read, write_to = os.pipe()
    os.write(write_to, b"seed: 3\n")
    os.close(write_to)
    assert config.read_yaml_file(Path(f"/dev/fd/{read}")) == {"seed": 3}
    os.close(read)


# --- outputs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("charset", ["ascii", "latin-1", "cp1252", "koi8-r", "utf-8"])
@pytest.mark.parametrize(
    "words", [("show", "r"), ("plan", *SMALL), ("parts",), ("--help",)], ids=lambda words: words[0]
)
def test_an_output_that_does_not_know_all_characters(run, charset, words):
    found = CliRunner(charset=charset).invoke(app, list(words))
    assert found.exit_code == 0, found.exception
    assert len(found.stdout) > 300


@pytest.mark.parametrize("room", [-5, 0, 1, 8, 20, 64, 500])
def test_the_curve_fits(room):
    lines = str(terminal_curve([1.0, 2.0], [0.1, 0.9], room)).splitlines()[:-1]
    assert max(map(len, lines)) == max(room, 15)


def shell(line: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = " ".join(FEDTIDE)
    return subprocess.run(
        ["bash", "-c", line.replace("fedtide", words)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("fedtide show r > /dev/full", 6, "standard output: No space left on device"),
        ("fedtide show r --json > /dev/full", 6, "standard output: No space left on device"),
        ("fedtide --help > /dev/full", 6, "standard output: No space left on device"),
        ("fedtide show r --json >&-", 0, ""),
        ("fedtide show r <&- >&-", 0, ""),
        ("fedtide scenario show paper > /dev/full", 6, "standard output: No space left on device"),
        ("fedtide show nowhere 2>/dev/full", 4, ""),
        ("fedtide show nowhere 2>&-", 4, ""),
        ("set -o pipefail; fedtide league --help | true", 0, ""),
        ("set -o pipefail; fedtide parts | true", 0, ""),
        ("set -o pipefail; fedtide run --keys --json | true", 0, ""),
    ],
)
def test_a_full_or_closed_output(run, line, code, says):
    found = shell(line)
    assert found.returncode == code, found.stderr
    assert says in found.stderr
    assert len(found.stderr.splitlines()) == bool(says), found.stderr


@pytest.mark.parametrize(
    "env",
    [
        {"COLUMNS": "0"},
        {"COLUMNS": "1"},
        {"COLUMNS": "20", "TERM": "dumb", "NO_COLOR": "1"},
        {"COLUMNS": "-3", "LINES": "x"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:strict"},
        {"TERM": "", "HOME": ""},
    ],
    ids=str,
)
def test_odd_terminals(run, env):
    found = shell("fedtide show r", **env)
    assert (found.returncode, found.stderr) == (0, "")
    assert "final" in found.stdout
    assert max(map(len, found.stdout.splitlines())) <= 80


# --- Ctrl-C and SIGTERM --------------------------------------------------------------------------------------------------


def begin(*words: str) -> subprocess.Popen[str]:
    # shells ignore SIGINT for what runs in the background
    return subprocess.Popen(
        [*FEDTIDE, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


@pytest.mark.parametrize(
    ("signals", "code"),
    [([signal.SIGINT], 130), ([signal.SIGTERM], 143), ([signal.SIGINT, signal.SIGINT, signal.SIGTERM], 130)],
)
def test_a_long_local_training_ends_within_a_second_or_two(tmp_path, signals, code):
    words = [
        *SMALL,
        "learning.model=paper_cnn",
        "learning.local_epochs=100000",
        "fleet.min_duration=0.9",
        "timeline.period=0.5",
    ]
    process = begin("run", *words, "-o", "r", "-j", "2")
    rounds, end = tmp_path / "r" / "rounds.jsonl", time.monotonic() + 60
    while not rounds.exists():  # nobody is ready in the first period; then training begins
        assert time.monotonic() < end
        time.sleep(0.02)
    time.sleep(1)
    asked = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(0.05)
    _, said = process.communicate(timeout=60)
    assert time.monotonic() - asked < 5  # a second or two, on a machine that is not busy
    assert process.returncode == code
    assert said == "stopped. Everything so far is saved; continue with: fedtide resume r\n"
    assert json.loads(CliRunner().invoke(app, ["show", "r", "--json"]).stdout)["aggregations"] == 1


def test_the_kernel_looks_for_signals_in_every_call():
    from fedtide.engine.system import build, make_trainer
    from fedtide.types import Job

    system = build(config.experiment(config.parse_overrides([*SMALL, "learning.local_epochs=50000"])))
    trainer = make_trainer(system, threads=2)
    start = trainer.initial_model(0)

    def raises(number, frame):
        raise TimeoutError("rang")

    before = signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(TimeoutError, match="rang"):
            trainer.train([Job(0, 1, start, 0.01, system.dataset.train, system.fleet.partition[0])])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert np.isfinite(trainer.evaluate(start, system.dataset.test).loss)


@pytest.mark.parametrize(
    ("happens", "code", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGINT)", 130, r"interrupted\n"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, r"interrupted\n"),
        (
            "raise OSError(24, 'Too many open files', 'x.py')",
            6,
            r"error: fedtide cannot start \(OSError: .*Too many.*\n",
        ),
        ("raise MemoryError", 6, r"error: fedtide cannot start \(MemoryError.*\n"),
        ("raise ImportError('half installed')", 6, r"error: .*half installed.*install it again\n"),
    ],
)
def test_what_happens_while_it_starts(happens, code, says):
    script = (
        "import os, signal, sys\n"
        "from fedtide import __main__\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'fedtide.cli.main': {happens}\n"
        "sys.meta_path.insert(0, Finder())\n"
        "__main__.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "")
    assert re.fullmatch(says, done.stderr)


def test_a_policy_that_swallows_ctrl_c(policies, monkeypatch):
    monkeypatch.setattr(core_signals, "_asked", None)  # restored when this is over
    found = CliRunner().invoke(app, ["run", *SMALL, "policy.scheduler=p.py:swallows", "-o", "r"])
    assert found.exit_code == 143
    assert "fedtide resume r" in found.stderr


# --- what is imported, listed and told -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["run", "--help"], {"scipy", "matplotlib", "torch", "numpy", "pydantic", "yaml"}),
        (["--version"], {"scipy", "matplotlib", "torch", "numpy", "pydantic"}),
        (["study", "--help"], {"scipy", "matplotlib", "torch", "numpy", "pydantic"}),
        (["theory", "--keys"], {"scipy", "matplotlib", "torch"}),
    ],
    ids=lambda value: " ".join(value)[:14] if isinstance(value, list) else "",
)
def test_commands_import_what_they_use(words, without):
    code = (
        "import sys\nfrom fedtide.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert without & set(done.stderr.split()) == set()


def test_the_commands_of_the_laboratory_are_listed():
    listed = CliRunner().invoke(app, ["--help"]).stdout
    assert all(
        f"\n  {name} " in listed for name in ("run", "study", "paper", "worlds", "skies", "league", "oracle", "theory")
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nosuchpackage", "ModuleNotFoundError: No module named 'nosuchpackage'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("", "has no attribute 'own'"),
        ("own = 3", "brought:own is not a click command"),
    ],
)
def test_a_command_that_cannot_be_loaded_is_one_line_and_leaves_the_others(tmp_path, monkeypatch, text, says):
    (tmp_path / "brought.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "brought", raising=False)
    monkeypatch.setitem(app.__dict__, "installed", {"own": EntryPoint("own", "brought:own", "fedtide.commands")})
    refused(wrong("own", "--any", "x=1", says=re.escape(says), code=6))
    assert CliRunner().invoke(app, ["parts", "scheduler"]).exit_code == 0
    assert re.search(r"own +the command 'own' cannot be loaded", CliRunner().invoke(app, ["--help"]).stdout)


def test_the_package_offers_what_it_did():
    code = (
        "import fedtide\nimport fedtide.engine.simulate\nfrom fedtide import simulate, experiment, Tick\n"
        "from fedtide.engine.ticks import planned\n"
        "assert callable(fedtide.simulate) and fedtide.simulate is simulate\nassert fedtide.config.experiment is experiment\n"
        "assert {'simulate', 'experiment', 'Tick'} <= set(dir(fedtide))\n"
        "try: fedtide.nonsense\nexcept AttributeError as error: assert 'nonsense' in str(error)\nelse: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_keys_name_their_choices():
    keys = json.loads(CliRunner().invoke(app, ["run", "--keys", "--json"]).stdout)
    assert keys["data.partition"]["choices"] == [*PARTITIONS, "your own"]
    assert keys["framework"]["choices"] == ["periodic", "fedavg", "fedasync", "fedbuff", None]
    assert keys["learning.dropout"]["choices"] == [True, False]
    assert "choices" not in keys["policy.limit"]
    assert "choices" not in keys["learning.local_steps"]
    for key in (
        "timeline.name",
        "policy.scheduler",
        "policy.weighting",
        "policy.aggregator",
        "codec.name",
        "learning.model",
    ):
        assert keys[key]["default"] in keys[key]["choices"]
        assert keys[key]["choices"][-1] == "your own"
    text = " ".join(CliRunner().invoke(app, ["run", "--keys"]).stdout.split())
    assert "iid, shards, dirichlet" in text
    theory = json.loads(CliRunner().invoke(app, ["theory", "--keys", "--json"]).stdout)
    assert theory["task"]["choices"] == ["least_squares", "softmax"]


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr("fedtide.cli.progress.LINE_SECONDS", 0.0)
    found = CliRunner().invoke(app, ["run", *SMALL, "-o", "r"])
    lines = [line for line in found.stderr.splitlines() if line.startswith("training: aggregation ")]
    assert len(lines) == 7  # and none after the last of eight
    assert re.fullmatch(r"training: aggregation 3 of 8, time 0.75, accuracy 0\.\d{4}, about \d+ s left", lines[2])


def test_more_threads_than_can_be_counted():
    assert CliRunner().invoke(app, ["run", *SMALL, "-o", "r", "--json", "-j", "9" * 400]).exit_code == 0


def test_the_wall_time_adds_up():
    found = CliRunner().invoke(app, ["run", *SMALL, "-o", "r"]).stdout
    total, parts = re.search(r"wall time ([\d.]+) s: (.*)", " ".join(found.split())).groups()
    seconds = [float(each) for each in re.findall(r"([\d.]+) s", parts)]
    assert sum(seconds) == pytest.approx(float(total), abs=0.06 * (len(seconds) + 1))


def test_the_help_of_the_metric_is_true():
    assert all(name in CliRunner().invoke(app, ["study", "show", "--help"]).stdout for name in METRICS)
