"""A folder of stored results: a few CSV files, which pandas and polars read as they are.

study.json        the format, whose runs these are, and the SHA-256 of each table
runs.csv.gz       a row per run: its name, its totals, what made it and its experiment (both as JSON)
curves.csv.gz     a row per run and evaluation
rounds.csv.gz     a row per run and aggregation, evaluated or not
uploads.csv.gz    a row per run and upload
new/              finished runs that are not in the tables yet, a small file each

The number `run` joins the tables. Floats have the digits that give them back to the last bit. While a study runs, finished
runs go to new/: several processes may write, and any of them may be killed. `Store.compact` moves them into the tables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import gzip
import hashlib
import json
import os
import reprlib
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide import config
from fedtide.core.files import machine_fault, remove_temporary, write_atomically
from fedtide.core.reading import parse_json
from fedtide.errors import FedtideError, RunFolderError
from fedtide.studies.results import Named, RunResult, RunTables, Uploads, first_fault, read_runs, write_tables
from fedtide.studies.spec import name_of

_FORMAT: Final = 1
_INDEX: Final = "study.json"
_NEW: Final = "new"
_TABLES: Final = ("runs", "curves", "rounds", "uploads")
_NEXT: Final = ".next"  # the ending of a table that study.json names already, and that is not in its place yet


class _Index(BaseModel):
    """study.json."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    studies: list[str]  # whose runs these are, by name
    files: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]]  # the SHA-256 of each table, by its file


class Source(NamedTuple):
    """Results of one origin, and how many there are."""

    path: str
    found_by: str | None
    version: str | None
    commit: str | None
    results: int = 0


class Store:
    """A folder of results. A run is kept once per instruction path; the one that was there first comes first."""

    def __init__(self, folder: Path, study: str | None = None) -> None:
        """study: the name under which runs are kept; None: that of the study that is run."""
        self.folder, self.study = folder, study
        self._seen: tuple[Any, Any] | None = None  # what the folder looked like when it was read
        self._index: _Index | None = None
        self._tables: RunTables | None = None
        self._uploads: dict[tuple[str, str], Uploads | None] | None = None  # of the tables, once they are asked for
        self._new: dict[str, Named] = {}  # by file
        self._found: dict[str, RunResult] = {}  # by name: all of them

    @property
    def studies(self) -> list[str]:
        """The names of the studies whose runs are here, the first one first."""
        self._look()
        return self._index.studies if self._index else []

    def names(self) -> set[str]:
        """Return the names of the finished runs."""
        return set(self._look())

    def has(self, name: str, path: str | None = None) -> bool:
        """Say whether a run is finished, on a certain instruction path or on any."""
        found = self._look().get(name)
        return found is not None and (path is None or path in found.paths)

    def load(self, name: str) -> RunResult:
        """Return a finished run, with its results on other instruction paths."""
        found = self._look().get(name)
        if found is None:
            raise RunFolderError(f"the run {name} is not in {self.folder} (any more); run the study again")
        return found

    def sources(self) -> list[Source]:
        """Return of which origins the results are, the most frequent first."""
        counts: Counter[Source] = Counter()
        for _, result in self._all():
            known = result.provenance or {}
            counts[Source(result.path, known.get("isa_found_by"), known.get("fedtide"), known.get("commit"))] += 1
        return [source._replace(results=count) for source, count in counts.most_common()]

    def save(self, name: str, result: RunResult) -> None:
        """Keep a finished run, in a file of its own until `compact`."""
        self.prepare()
        texts = {table: text.decode() for table, text in write_tables([(name, result)]).items()}
        content = json.dumps({"format": _FORMAT, **texts}).encode()
        write_atomically(self.folder / _NEW / _new_file(name, content), content)
        self._seen = None

    def prepare(self) -> None:
        """Make the folder; clear away what writers that were killed left in it."""
        try:
            (self.folder / _NEW).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise machine_fault(self.folder, "made", error) from error
        for folder in (self.folder, self.folder / _NEW):
            remove_temporary(folder)

    def compact(self, study: str) -> None:
        """Move finished runs into the tables, and say that runs of this study are among them."""
        with self._alone():
            moved, studies = list(self._look() and self._new), self.studies
            if moved or (self._found and study not in studies):
                self.write(self._all(), [*studies, *([study] if study not in studies else [])])
            for file in moved:
                (self.folder / _NEW / file).unlink(missing_ok=True)

    def write(self, results: Sequence[Named], studies: Sequence[str]) -> None:
        """Put these results in the place of the tables.

        It happens when study.json is replaced: before, the old tables count; from then on the new ones, which may have
        another name until they are in their place.
        """
        self._settle()
        packed = {_file(table): gzip.compress(text, 9, mtime=0) for table, text in write_tables(results).items()}
        for file, content in packed.items():
            write_atomically(self.folder / f"{file}{_NEXT}", content)
        index = _Index(format=_FORMAT, studies=list(studies), files={file: _sum(each) for file, each in packed.items()})
        write_atomically(self.folder / _INDEX, f"{index.model_dump_json()}\n".encode())
        self._settle()
        self._seen = None

    def _settle(self) -> None:
        """Put tables in their place that study.json names and that have their other name yet."""
        index = self._read_index()
        for file, digest in index.files.items() if index else ():
            aside = self.folder / f"{file}{_NEXT}"
            content = _content(aside)
            if content is not None and _sum(content) == digest:
                os.replace(aside, self.folder / file)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes from writing the tables meanwhile."""
        try:
            lock = os.open(self.folder, os.O_RDONLY)
        except OSError as error:
            raise machine_fault(self.folder, "read", error) from error
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _all(self) -> list[Named]:
        return [(name, result) for name, first in self._look().items() for result in (first, *first.elsewhere)]

    def _look(self) -> dict[str, RunResult]:
        """Return all finished runs by name; what has changed in the folder is read again."""
        seen = (_stamp(self.folder / _NEW), _stamp(self.folder / _INDEX))
        if seen == self._seen:
            return self._found
        files = _listed(self.folder / _NEW)  # before study.json: what is gone from here is in its tables
        if self._seen is None or seen[1] != self._seen[1]:
            self._read_tables()
        self._new = {file: found for file in files if (found := self._new.get(file) or self._read_new(file))}
        by_name: dict[str, dict[str, RunResult]] = {}
        for name, result in [*(self._tables.results if self._tables else ()), *self._new.values()]:
            by_name.setdefault(name, {})[result.path] = result
        self._found = {}
        for name, by_path in by_name.items():
            first, *others = by_path.values()
            self._found[name] = dataclasses.replace(first, elsewhere=tuple(others)) if others else first
        self._seen = seen
        return self._found

    def _read_new(self, file: str) -> Named | None:
        """Read a finished run that is not in the tables; None if it is there by now."""
        path, name = self.folder / _NEW / file, file.partition(".")[0]
        content = _content(path)
        if content is None:
            self._read_tables()
            return None
        remedy = "remove it and run the study again"
        try:
            tree = parse_json(content)
            if not isinstance(tree, dict) or tree.get("format") != _FORMAT:
                raise ValueError(f"it is no finished run of format {_FORMAT}")
            runs, curves, rounds, uploads = (str(tree.get(table, "")).encode() for table in _TABLES)
            tables = RunTables(read_runs(runs), curves)
            ((own_name, result),), (sent,) = tables.results, tables.uploads(rounds, uploads)
            stands_for = name_of(config.experiment(result.experiment), (result.provenance or {}).get("files") or {})
        except (ValueError, FedtideError) as error:
            raise _damaged(path, error, remedy) from error
        if not name == own_name == stands_for:
            raise _damaged(path, f"it holds the run {stands_for}, not the one that its name says", remedy)
        if file != _new_file(name, content):
            raise _damaged(path, "it is not what was stored: edited, or renamed", remedy)
        return name, dataclasses.replace(result, sent=sent)

    def _read_tables(self) -> None:
        """Read study.json and the tables of runs and curves."""
        self._index, self._tables, self._uploads = self._read_index(), None, None
        if self._index is None:
            return
        rows = self._table("runs", read_runs)
        self._tables = self._table("curves", lambda text: RunTables(rows, text))
        for place, (name, result) in enumerate(self._tables.results):
            later = functools.partial(self._uploads_of, name, result.path)
            self._tables.results[place] = name, dataclasses.replace(result, sent=later)

    def _uploads_of(self, name: str, path: str) -> Uploads | None:
        self._look()
        tables = self._tables
        if tables is None:
            raise _damaged(self.folder, f"its {_INDEX} is gone")
        if self._uploads is None:
            rounds = self._table("rounds", lambda text: text)
            found = self._table("uploads", lambda text: tables.uploads(rounds, text))
            keys = ((own, result.path) for own, result in tables.results)
            self._uploads = dict(zip(keys, found, strict=True))
        return self._uploads[name, path]

    def _read_index(self) -> _Index | None:
        file = self.folder / _INDEX
        content = _content(file)
        if content is None:
            if any((self.folder / _file(table)).exists() for table in _TABLES):
                raise _damaged(self.folder, f"it has tables and no {_INDEX}")
            return None
        try:
            tree = parse_json(content)
            if isinstance(tree, dict) and repr(tree.get("format")) != repr(_FORMAT):
                raise RunFolderError(
                    f"{file} is of format {reprlib.repr(tree.get('format'))}, and this fedtide reads {_FORMAT}: use the "
                    "fedtide that made it, or another --store"
                )
            return _Index.model_validate(tree)
        except ValidationError as error:
            raise _damaged(file, first_fault(error)) from error
        except ValueError as error:
            raise _damaged(file, error) from error

    def _table(self, table: str, read: Callable[[bytes], Any]) -> Any:
        """Return what a table holds; raise if it is not the one that study.json names, or holds what cannot be."""
        file = self.folder / _file(table)
        for path in (file, file.with_name(f"{file.name}{_NEXT}")) * 2:  # twice: it may be put in its place meanwhile
            content = _content(path)
            if content is not None and self._index and _sum(content) == self._index.files.get(file.name):
                break
        else:
            raise _damaged(file, f"it is not what {_INDEX} says was stored: edited, or not copied whole")
        try:
            return read(gzip.decompress(content))
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise _damaged(file, error) from error


def _file(table: str) -> str:
    return f"{table}.csv.gz"


def _new_file(name: str, content: bytes) -> str:
    """Name the file of a finished run by its content, too: an edited one is noticed, and no two are in each other's way."""
    return f"{name}.{_sum(content)[:16]}.json"


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes when a file or a folder does; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise machine_fault(path, "read", error) from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def _listed(folder: Path) -> list[str]:
    """Return the files of finished runs, the oldest first."""
    found: list[tuple[int, str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # it went to the tables meanwhile
                    found.append((entry.stat(follow_symlinks=False).st_mtime_ns, entry.name))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise machine_fault(folder, "read", error) from error
    return [name for _, name in sorted(found) if name.endswith(".json") and not name.startswith(".")]


def _content(file: Path) -> bytes | None:
    """Return what a file holds; None if it is not there."""
    try:
        with open(file, "rb", opener=_without_waiting) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise _damaged(file, "it is no regular file")
            return opened.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise _damaged(file, "it is a folder") from error
    except OSError as error:
        raise machine_fault(file, "read", error) from error


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe in its place is not waited for."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _damaged(file: Path, why: object, remedy: str = "restore it, or name another --store") -> RunFolderError:
    words = " ".join(str(why).split())
    return RunFolderError(f"{file} is damaged ({words[:300]}); {remedy}")
