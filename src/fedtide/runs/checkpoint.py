"""checkpoint.npz: the server's state after an aggregation, and the manifest of the folder at that moment."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from fedtide import config
from fedtide.config import Experiment
from fedtide.core.files import file_fault
from fedtide.core.versioned import VersionedArray
from fedtide.core.yaml12 import shown
from fedtide.engine.step import ServerState, global_model
from fedtide.errors import FedtideError, RunFolderError
from fedtide.runs.manifest import Manifest
from fedtide.runs.record import record_problem
from fedtide.types import Ints, Memory, Vector


class Checkpoint(NamedTuple):
    """What checkpoint.npz holds."""

    state: ServerState
    manifest: Manifest

    @property
    def model(self) -> Vector:
        """The newest model [d]."""
        return global_model(self.state)


def checkpoint_bytes(state: ServerState, manifest: Manifest) -> memoryview:
    """Return a checkpoint as a file: named arrays, as `numpy.savez` writes them to the byte."""
    versions = sorted(state.models)
    return _archive(
        {
            "manifest": manifest.model_dump_json(),
            "version": state.version,
            "versions": np.array(versions, np.int64),
            "models": [state.models[version] for version in versions],
            "behind": narrow_for_checkpoint(state.version - np.array(state.held)),  # versions behind the newest [N]
            "uploads": narrow_for_checkpoint(np.array(state.uploads)),
            **_to_arrays(state.memory, state.devices),
        }
    )


def read_checkpoint(folder: Path, experiment: Experiment) -> Checkpoint | None:
    """Read a run's checkpoint, or None if it has none; raise if it is damaged or belongs to another experiment."""
    path = folder / "checkpoint.npz"
    try:
        with open(path, "rb") as file, np.load(file) as saved:
            manifest = Manifest.model_validate_json(str(saved["manifest"]))
            if manifest.experiment != config.digest(experiment):
                raise RunFolderError(
                    f"{path} is a checkpoint of another experiment than experiment.yaml next to it, whose digest is "
                    f"{config.digest(experiment)}; restore experiment.yaml or start in a new folder"
                )
            vectors = saved["models"]  # [v d]
            if vectors.dtype != np.float32 or vectors.ndim != 2:
                raise ValueError("its models are no vectors of float32")
            models = dict(zip(saved["versions"].tolist(), vectors, strict=True))
            memory, devices = _from_arrays({name: saved[name] for name in saved.files if "/" in name})
            version, count = int(saved["version"]), experiment.fleet.num_devices
            held = VersionedArray(version - _widened(saved["behind"], count))
            uploads = VersionedArray(_widened(saved["uploads"], count))
            if version not in models or not {*held.tally} <= {*models}:
                raise ValueError("it lacks a model that is needed")
            return Checkpoint(ServerState(version, models, held, uploads, memory, devices), manifest)
    except FileNotFoundError:
        return None
    except (RunFolderError, MemoryError):
        raise
    except Exception as error:  # a damaged archive raises a dozen kinds, from OSError to tokenize.TokenError
        raise unreadable_checkpoint(path, error, "restore it or start in a new folder") from error


def check_saved_model(folder: Path, saved: Checkpoint) -> None:
    """Raise if the final model is not the checkpoint's newest."""
    path = folder / "model.npy"
    try:
        with open(path, "rb") as file:
            model = np.load(file)
        if model.shape != saved.model.shape or model.tobytes() != saved.model.tobytes():
            raise ValueError("it is not the model of the checkpoint")
    except Exception as error:  # as above
        remedy = f"remove it and make it again from the checkpoint with `fedtide resume {folder}`"
        raise unreadable_checkpoint(path, error, remedy) from error


def unreadable_checkpoint(path: Path, error: Exception, remedy: str) -> RunFolderError:
    """Return the one line for a file that the machine does not let us read, or that is damaged."""
    if isinstance(error, OSError) and error.errno:
        return file_fault(path, "read", error)
    text = record_problem(error) if isinstance(error, ValidationError) else " ".join(str(error).split())
    if "pickle" in text:  # NumPy advises to load pickles, which would run whatever is in them
        text = "it is not a file of plain NumPy arrays"
    return RunFolderError(f"{path} is damaged ({text[:200] or type(error).__name__}); {remedy}")


# Named arrays in one file, without a second copy of what is long.


_NARROW: Final = (np.uint8, np.uint16, np.uint32, np.int64)


def _archive(arrays: Mapping[str, Any]) -> memoryview:
    """Return the file. A list of vectors [d] is written as an array of them [v d]."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=True) as made:
        for name, value in arrays.items():
            with made.open(f"{name}.npy", "w", force_zip64=True) as file:
                if isinstance(value, list):
                    _write_rows(file, value)
                else:
                    np.lib.format.write_array(file, np.asanyarray(value), allow_pickle=False)
    return buffer.getbuffer()


def _write_rows(file: Any, rows: list[npt.NDArray[Any]]) -> None:
    header = {"descr": rows[0].dtype.str, "fortran_order": False, "shape": (len(rows), *rows[0].shape)}
    np.lib.format.write_array_header_1_0(file, header)
    for row in rows:
        file.write(np.ascontiguousarray(row).view(np.uint8).data)


def narrow_for_checkpoint(values: Ints) -> npt.NDArray[Any]:
    """Return whole numbers of at least 0 in as few bytes as the largest needs [N]."""
    most = int(values.max(initial=0))
    return values.astype(next(kind for kind in _NARROW if most <= np.iinfo(kind).max))


def _widened(values: npt.NDArray[Any], num_devices: int) -> Ints:
    """Return what `narrow_for_checkpoint` was given [N]; raise ValueError if these are no such numbers."""
    if values.dtype not in _NARROW or values.shape != (num_devices,):
        raise ValueError(f"a column of {values.dtype}{list(values.shape)} is not of {num_devices} devices")
    return values.astype(np.int64)


# What parts remember, as named arrays of a checkpoint and back.
#
# memory/KIND/NAME          an array of a part at the server
# devices/KIND              the devices of which a part keeps something, ascending [k]
# devices/KIND/NAME         an array of each of them [k ...]
# devices/KIND/NAME/DEVICE  one device's, where not all of them have one of the same shape and type


# As a name of a file in an archive: NumPy adds .npy, and takes a name that has it for another one.
_NAME: Final = re.compile(r"(?!.*\.npy$)[A-Za-z0-9_][A-Za-z0-9_.-]*")
_LONGEST: Final = 100


def _to_arrays(
    memory: Mapping[str, Memory], devices: Mapping[str, Mapping[int, Memory]]
) -> dict[str, npt.NDArray[Any]]:
    """Return what the parts of each kind remember, of the server and of each device, as flat named arrays.

    The same arrays for the same memory, in whatever order it was filled; none for none, so that a kind whose memory is empty
    is not there when it is read.
    """
    found: dict[str, npt.NDArray[Any]] = {}
    for kind, arrays in sorted(memory.items()):
        for name, array in sorted(arrays.items()):
            found[f"memory/{kind}/{name}"] = _plain(kind, name, array)
    for kind, rows in sorted(devices.items()):
        if rows:
            found |= _table(kind, rows)
    return found


def _from_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Memory], dict[str, dict[int, Memory]]]:
    """Return the memory and the devices' that `_to_arrays` was given; other arrays are passed over.

    Raise ValueError or KeyError if they do not belong together.
    """
    memory: dict[str, Memory] = {}
    devices: dict[str, dict[int, Memory]] = {}
    for place in sorted(arrays):  # the devices of a kind before their arrays
        match place.split("/"):
            case ["memory", kind, name]:
                memory.setdefault(kind, {})[name] = arrays[place]
            case ["devices", kind]:
                devices[kind] = {int(device): {} for device in arrays[place]}
            case ["devices", kind, name]:
                for own, row in zip(devices[kind].values(), arrays[place], strict=True):
                    own[name] = np.array(row)  # its own, so that the table goes with the last of them
            case ["devices", kind, name, device]:
                devices[kind][int(device)][name] = arrays[place]
    return memory, devices


def _table(kind: str, rows: Mapping[int, Memory]) -> dict[str, npt.NDArray[Any]]:
    numbers = sorted(rows)
    found = {f"devices/{kind}": np.array(numbers, np.int64)}
    for name in sorted({name for own in rows.values() for name in own}):
        column = {device: _plain(kind, name, rows[device][name]) for device in numbers if name in rows[device]}
        forms = {(each.shape, each.dtype) for each in column.values()}
        if len(forms) == 1 and len(column) == len(numbers):
            found[f"devices/{kind}/{name}"] = np.stack(list(column.values()))
        else:
            found |= {f"devices/{kind}/{name}/{device}": each for device, each in column.items()}
    return found


def _plain(kind: str, name: Any, array: Any) -> npt.NDArray[Any]:
    """Return an array that a file can hold; raise if it cannot."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise FedtideError(
            f"the {kind}'s memory has the name {shown(name)}: use letters, digits, _, - and . ({_LONGEST} at most, not "
            "beginning with a dot or ending with .npy)"
        )
    if not isinstance(array, np.ndarray) or array.dtype.hasobject:
        what = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise FedtideError(
            f"the {kind}'s memory {name!r} is {what}: keep NumPy arrays of numbers, which a checkpoint can hold"
        )
    return array
