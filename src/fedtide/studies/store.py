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
import os
import reprlib
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedtide.core.files import file_fault, read_bytes, remove_temporary, write_atomically
from fedtide.core.yaml12 import shown
from fedtide.errors import FedtideError, RunFolderError
from fedtide.studies.results import (
    NamedResult,
    RunResult,
    Uploads,
    read_result_uploads,
    read_results,
    result_fault,
    write_result_tables,
)

_FORMAT: Final = 1
_INDEX: Final = "study.json"
_NEW: Final = "new"
_NEXT: Final = ".next"  # the ending of a table that study.json names already, and that is not in its place yet
_MOST_BYTES: Final = 2**36  # of a table
_RESTORE: Final = "restore it, or name another --store"


class _Index(BaseModel):
    """study.json."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Annotated[int, Field(ge=_FORMAT, le=_FORMAT)]
    studies: list[str]  # whose runs these are, by name
    files: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]]  # the SHA-256 of each table, by its file


class _Finished(BaseModel):
    """A file in new/: a run as tables of its own."""

    format: Annotated[int, Field(ge=_FORMAT, le=_FORMAT)] = _FORMAT
    runs: str
    curves: str
    rounds: str
    uploads: str


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
        self._tables: list[NamedResult] = []
        self._uploads: dict[tuple[str, str], Uploads | None] | None = None  # of the tables, once they are asked for
        self._new: dict[str, NamedResult] = {}  # by file
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
        texts = {table: text.decode() for table, text in write_result_tables([(name, result)]).items()}
        content = _Finished(**texts).model_dump_json().encode()
        write_atomically(self.folder / _NEW / _new_file(name, content), content)
        self._seen = self._seen and (None, self._seen[1])  # new/ is looked at again, the tables are as they were

    def prepare(self) -> None:
        """Make the folder; clear away what writers that were killed left in it."""
        try:
            (self.folder / _NEW).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise file_fault(self.folder, "made", error) from error
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

    def write(self, results: Sequence[NamedResult], studies: Sequence[str]) -> None:
        """Put these results in the place of the tables.

        It happens when study.json is replaced: before, the old tables count; from then on the new ones, which may have
        another name until they are in their place.
        """
        self._settle()
        packed = {
            f"{table}.csv.gz": gzip.compress(text, 9, mtime=0) for table, text in write_result_tables(results).items()
        }
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
            raise file_fault(self.folder, "read", error) from error
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _all(self) -> list[NamedResult]:
        return [(name, result) for name, first in self._look().items() for result in (first, *first.elsewhere)]

    def _look(self) -> dict[str, RunResult]:
        """Return all finished runs by name; what has changed in the folder is read again."""
        seen = (_stamp(self.folder / _NEW), _stamp(self.folder / _INDEX))
        if seen == self._seen:
            return self._found
        files = _listed(self.folder / _NEW, self._new)  # before study.json: what is gone from here is in its tables
        if self._seen is None or seen[1] != self._seen[1]:
            self._read_tables()
        self._new = {file: found for file in files if (found := self._new.get(file) or self._read_new(file))}
        by_name: dict[str, dict[str, RunResult]] = {}
        for name, result in [*self._tables, *self._new.values()]:
            by_name.setdefault(name, {})[result.path] = result
        self._found = {}
        for name, by_path in by_name.items():
            first, *others = by_path.values()
            self._found[name] = dataclasses.replace(first, elsewhere=tuple(others)) if others else first
        self._seen = seen
        return self._found

    def _read_new(self, file: str) -> NamedResult | None:
        """Read a finished run that is not in the tables; None if it is there by now."""
        path, name = self.folder / _NEW / file, file.partition(".")[0]
        content = _content(path)
        if content is None:
            self._read_tables()
            return None
        with _damage(path, "remove it and run the study again"):
            if file != _new_file(name, content):
                raise ValueError("it is not what was stored: edited, or renamed")
            tables = _Finished.model_validate_json(content)
            results = read_results(tables.runs.encode(), tables.curves.encode())
            (sent,) = read_result_uploads(results, tables.rounds.encode(), tables.uploads.encode())
            ((own, result),) = results
            if own != name:
                raise ValueError(f"it holds the run {own}, not the one that its name says")
        return name, dataclasses.replace(result, sent=sent)

    def _read_tables(self) -> None:
        """Read study.json and the tables of runs and curves."""
        self._index, self._tables, self._uploads = self._read_index(), [], None
        if self._index is None:
            return
        with _damage(self.folder):
            for name, result in read_results(self._table("runs"), self._table("curves")):
                later = functools.partial(self._uploads_of, name, result.path)
                self._tables.append((name, dataclasses.replace(result, sent=later)))

    def _uploads_of(self, name: str, path: str) -> Uploads | None:
        self._look()
        if self._uploads is None:
            with _damage(self.folder):
                found = read_result_uploads(self._tables, self._table("rounds"), self._table("uploads"))
            self._uploads = {(own, result.path): sent for (own, result), sent in zip(self._tables, found, strict=True)}
        return self._uploads[name, path]

    def _read_index(self) -> _Index | None:
        file = self.folder / _INDEX
        content = _content(file)
        if content is None:
            if any(self.folder.glob("*.csv.gz")):
                raise RunFolderError(f"{self.folder} is damaged (it has tables and no {_INDEX}); {_RESTORE}")
            return None
        with _damage(file):
            return _Index.model_validate_json(content)

    def _table(self, table: str) -> bytes:
        """Return the text of a table; raise if it is not the one that study.json names."""
        file = self.folder / f"{table}.csv.gz"
        digest = self._index.files.get(file.name) if self._index else None
        for path in (file, file.with_name(f"{file.name}{_NEXT}")) * 2:  # twice: it may be put in its place meanwhile
            content = _content(path)
            if content is not None and _sum(content) == digest:
                return gzip.decompress(content)
        raise ValueError(f"{file.name} is not what {_INDEX} says was stored: edited, or not copied whole")


@contextlib.contextmanager
def kept_results(store: Path | str | None) -> Iterator[Store]:
    """Give the store of this folder; None: one that is gone afterwards."""
    if store is not None and (not isinstance(store, (str, Path)) or not str(store) or "\0" in str(store)):
        raise FedtideError(f"store={shown(store)} names no folder: give a path, or None to keep nothing")
    with tempfile.TemporaryDirectory(prefix="fedtide-", ignore_cleanup_errors=True) as aside:
        yield Store(Path(aside if store is None else store))


@contextlib.contextmanager
def _damage(file: Path, remedy: str = _RESTORE) -> Iterator[None]:
    """Say of a file, or of a store, that what is read within cannot be."""
    try:
        yield
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        if fault["loc"] == ("format",):
            raise RunFolderError(
                f"{file} is of format {reprlib.repr(fault['input'])}, and this fedtide reads {_FORMAT}: use the fedtide that "
                "made it, or another --store"
            ) from error
        raise RunFolderError(f"{file} is damaged ({result_fault(error)}); {remedy}") from error
    except (ValueError, EOFError, OSError, zlib.error) as error:
        raise RunFolderError(f"{file} is damaged ({' '.join(str(error).split())[:300]}); {remedy}") from error


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
        raise file_fault(path, "read", error) from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def _listed(folder: Path, known: Iterable[str] = ()) -> list[str]:
    """Return the files of finished runs, the oldest first. known: those that were listed before, in their order."""
    there = {path.name for path in folder.glob("[0-9a-f]*.json")}
    old = [name for name in known if name in there]
    found: list[tuple[int, str]] = []
    for name in there.difference(old):
        with contextlib.suppress(FileNotFoundError):  # it went to the tables meanwhile
            found.append(((folder / name).lstat().st_mtime_ns, name))
    return old + [name for _, name in sorted(found)]


def _content(file: Path) -> bytes | None:
    """Return what a file holds; None if it is not there."""
    try:
        return read_bytes(file, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise file_fault(file, "read", error) from error
