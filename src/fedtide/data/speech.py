"""Speech Commands: one word in each recording, by its spectrogram, in the official folders of wav files."""

from __future__ import annotations

import math
import wave
from pathlib import Path
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from fedtide.core.faults import fault_text
from fedtide.core.memory_budget import require_memory
from fedtide.data.dataset import Folder, WithImages, dataset_in_turn, first_items
from fedtide.data.fetch import fetch_folder, regular_fetched_file
from fedtide.errors import DataError
from fedtide.parts.arguments import arg
from fedtide.types import Dataset, Floats, Samples

_RATE: Final = 16_000  # samples per second; a recording lasts one second, and is cut or filled with silence to that
_WINDOW, _HOP, _FFT = 400, 160, 512  # samples: 25 ms every 10 ms
_NUM_MELS: Final = 40
_NUM_FRAMES: Final = 1 + (_RATE - _WINDOW) // _HOP  # 98
_LOWEST, _HIGHEST = 20.0, 8000.0  # Hz
_FLOOR: Final = 1e-6  # added to a power before its logarithm is taken
_NOISE: Final = "_background_noise_"
_HOLDS: Final = "the folders of words (yes, no, ...) with validation_list.txt and testing_list.txt"
_GET: Final = (
    "speech_commands_v0.02.tar.gz (MD5 6b74f3901214cb2c2934e98196829835) from "
    "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz, and unpack it"
)


def speech_commands(
    folder: Folder = None,
    num_train: Annotated[
        int | None, arg("use only this many samples, taken from the words in turn", key="data.num_train")
    ] = None,
    num_test: Annotated[
        int | None, arg("use only this many samples, taken from the words in turn", key="data.num_test")
    ] = None,
    images: WithImages = True,
) -> Dataset:
    """One-second spoken words, 35 in version 0.02, as log-mel spectrograms; owners are the speakers; data.partition=natural.

    From the unpacked archive, checked by its structure. Those of testing_list.txt are the test, those of neither list
    the training set. Images float32 [n 1 40 98]: 40 mel bands from 20 Hz to 8 kHz, 98 frames of 25 ms every 10 ms, the
    logarithm of their power, normalised by mean and deviation of the training set.
    """
    place = fetch_folder("Speech Commands", folder, _HOLDS, _GET)
    words = sorted(path.name for path in place.iterdir() if path.is_dir() and path.name != _NOISE)
    files = [sorted(f"{word}/{path.name}" for path in (place / word).glob("*.wav")) for word in words]
    validation, testing = (_listed(place / f"{name}_list.txt") for name in ("validation", "testing"))
    if not any(files) or len(words) > 256:
        raise DataError(
            f"Speech Commands: {place} holds {len(words)} folders with {sum(map(len, files))} wav files; expected {_HOLDS}"
        )
    if missing := sorted((validation | testing) - {name for column in files for name in column}):
        raise DataError(f"Speech Commands: {place / missing[0]} is listed and not there: unpack the archive again")
    training, tested = (
        dataset_in_turn([[name for name in column if name in chosen] for column in files])
        for chosen in (set().union(*files) - validation - testing, testing)
    )
    if not training or not tested:
        raise DataError(
            f"Speech Commands: no recording of {place} is left for training, or for the test: unpack it again"
        )
    parts = first_items(training, num_train, "num_train"), first_items(tested, num_test, "num_test")  # no other is read
    labels = [np.array([words.index(name.partition("/")[0]) for name in part], np.uint8) for part in parts]
    speakers = [name.partition("/")[2].partition("_")[0] for name in parts[0]]
    owners = np.unique(speakers, return_inverse=True)[1].astype(np.int64)
    shapes = [(len(part), 1, _NUM_MELS, _NUM_FRAMES) for part in parts]
    if not images:
        spectra = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    else:
        require_memory(
            4.0 * sum(map(math.prod, shapes)), "reading the recordings", "lower data.num_train or data.num_test"
        )
        spectra = [np.empty(shape, np.float32) for shape in shapes]
        for made, part in zip(spectra, parts, strict=True):
            for at, name in enumerate(part):
                made[at, 0] = _log_mel(_recording(place / name))
        mean, std = spectra[0].mean(dtype=np.float64), spectra[0].std(dtype=np.float64) or 1.0
        for made in spectra:
            made -= np.float32(mean)
            made /= np.float32(std)
    train, test = (Samples(pixels, answers) for pixels, answers in zip(spectra, labels, strict=True))
    return Dataset("speech_commands", train, test, len(words), str(place), owners)


def _listed(path: Path) -> set[str]:
    try:
        return {
            line.strip() for line in regular_fetched_file(path).read_text(encoding="utf-8").splitlines() if line.strip()
        }
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"Speech Commands: {path} cannot be read ({fault_text(error)}); expected {_HOLDS}") from error


def _recording(path: Path) -> Floats:
    """Return a second of sound, -1 to 1 [RATE]."""
    try:
        with wave.open(str(regular_fetched_file(path)), "rb") as file:
            form = (file.getframerate(), file.getnchannels(), file.getsampwidth())
            data = file.readframes(_RATE)
    except (OSError, EOFError, wave.Error) as error:
        raise DataError(
            f"{path} cannot be read as a recording ({str(error) or 'it ends too soon'}): unpack the archive again"
        ) from error
    if form != (_RATE, 1, 2):
        raise DataError(
            f"{path} has {form[0]} Hz, {form[1]} channels, {8 * form[2]} bits; expected {_RATE} Hz, 1 channel, 16 bits"
        )
    sound = np.frombuffer(data[: len(data) // 2 * 2], "<i2") / 32768
    return np.pad(sound, (0, _RATE - len(sound)))


def _log_mel(sound: Floats) -> npt.NDArray[np.float32]:
    """Return the logarithm of the power in each mel band and frame [NUM_MELS NUM_FRAMES] of a second of sound [RATE]."""
    frames = np.lib.stride_tricks.sliding_window_view(sound, _WINDOW)[::_HOP] * np.hanning(_WINDOW + 1)[:-1]
    power = np.abs(np.fft.rfft(frames, _FFT)) ** 2  # [frames FFT/2 + 1]
    made: npt.NDArray[np.float32] = np.log(power @ BANDS.T + _FLOOR).T.astype(np.float32)
    return made


def _bands() -> Floats:
    """Return triangles over the frequencies, evenly spaced in mel = 2595 log10(1 + f/700) [NUM_MELS FFT/2 + 1]."""
    low, high = (2595 * np.log10(1 + hertz / 700) for hertz in (_LOWEST, _HIGHEST))
    edges = 700 * (10 ** (np.linspace(low, high, _NUM_MELS + 2) / 2595) - 1)
    frequency = np.arange(_FFT // 2 + 1) * _RATE / _FFT
    left, middle, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising, falling = (frequency - left) / (middle - left), (right - frequency) / (right - middle)
    return np.maximum(0, np.minimum(rising, falling))


BANDS: Final = _bands()
