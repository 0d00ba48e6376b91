"""What a part says of its own parameters: type, default, bounds, unit, meaning, and the experiment's key that fills it.

class Rician:
    k_factor: Annotated[float, arg("power of the direct path over that of all others", ge=0)] = 3.0
    snr_db: Annotated[float, arg("average received SNR", unit="dB", key="radio.snr_db")] = 13.0

A class's parameters are those of its constructor; a plain function's are those beyond what it is called with.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedtide.errors import FedtideError
from fedtide.parts.kinds import KINDS

MOST_MEMORY = 4e9  # bytes that a part may remember
NO_DEFAULT = inspect.Parameter.empty
_PLAIN = (bool, int, float, str, float | None, int | None, str | None)


@dataclass(frozen=True)
class Arg:
    """What is known of a parameter besides its type and default."""

    meaning: str = ""
    unit: str = ""
    key: str | None = None  # the experiment's key that fills it
    part: str | None = None  # it is itself a part, of this kind
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that were given."""
        found = {name: getattr(self, name) for name in ("gt", "ge", "lt", "le")}
        return {name: value for name, value in found.items() if value is not None}


def arg(
    meaning: str = "",
    *,
    unit: str = "",
    key: str | None = None,
    part: str | None = None,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
) -> Arg:
    """Describe a parameter of your own part, as the second argument of `Annotated`.

    meaning: what the parameter is, in a few words, shown in lists and errors.
    unit: its unit, such as `dB`.
    key: the key of the experiment that fills the parameter, which is then the only way to set it.
    part: the kind of part that the parameter is, such as `trainer`; the experiment gives a name or `{name: ..., parameters}`,
        and fedtide builds the part and passes it in.
    gt: lower bound, exclusive.
    ge: lower bound, inclusive.
    lt: upper bound, exclusive.
    le: upper bound, inclusive.

    Returns: The description.

    >>> from typing import Annotated
    >>> def threshold(candidates, limit, rng, least: Annotated[float, arg("lowest capacity", unit="bit/symbol", ge=0)] = 3.0): ...
    """
    return Arg(meaning, unit, key, part, gt, ge, lt, le)


class Parameter(NamedTuple):
    """One parameter of a part."""

    name: str
    type: Any  # as annotated, without the Annotated; Any if nothing is said
    default: Any  # NO_DEFAULT if it must be given
    about: Arg


def part_parameters(part: Any, given: int = 0) -> list[Parameter]:
    """Return the parameters of a class or function, without the first `given` ones, which it is called with."""
    try:
        signature = _signature(part) if isinstance(part, (type, types.FunctionType)) else inspect.signature(part)
    except (TypeError, ValueError):  # it is not written in Python
        return []
    hints = _hints(part)
    named = [each for each in signature.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    return [_parameter(each, hints.get(each.name, Any)) for each in named[given:]]


_signature = functools.lru_cache(maxsize=1024)(inspect.signature)


def _parameter(found: inspect.Parameter, hint: Any) -> Parameter:
    about = Arg()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *rest = typing.get_args(hint)
        about = next((each for each in rest if isinstance(each, Arg)), about)
    return Parameter(found.name, hint, found.default, about)


def _hints(part: Any) -> Mapping[str, Any]:
    """Return the annotations of a function or a constructor; none if they cannot be read here."""
    read_from = part.__init__ if inspect.isclass(part) else part
    found = _read_hints(read_from) if isinstance(read_from, types.FunctionType) else _read_hints.__wrapped__(read_from)
    if not found and inspect.isclass(part):  # fields of a dataclass may be of types that only their own file imports
        return _read_hints(typing.cast(Any, part))
    return found


@functools.lru_cache(
    maxsize=1024
)  # text that is compiled anew each time: most of the time that an experiment takes to make
def _read_hints(read_from: Any) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(read_from, include_extras=True)
    except Exception:  # names that exist for type checkers only
        return {}


def checked_arguments(parameter: Parameter, value: Any, part: str) -> Any:
    """Return a value as the parameter's type wants it; raise if it cannot be, or lies out of bounds.

    Numbers, words and truth values stay as they were given (a 1 for a float, say): they are part of a run's identity.
    """
    if parameter.type is Any or value is parameter.default:
        return value
    from pydantic import ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, ValidationError

    is_plain = isinstance(value, (bool, int, float, str))
    bounds: Any = parameter.about.bounds
    wanted: Any = typing.Annotated[parameter.type, Field(**bounds)] if bounds else parameter.type
    rules = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(wanted, config=rules)
        made = adapter.validate_python(value, strict=parameter.type in _PLAIN)
    except (PydanticSchemaGenerationError, TypeError):  # a type that only type checkers understand
        return value
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise FedtideError(
            f"{part}: {parameter.name}={value!r} cannot be: {reason[0].lower()}{reason[1:]}{_means(parameter)}"
        ) from None
    return value if is_plain and isinstance(made, (bool, int, float, str)) else made


def argument_given_elsewhere(parameter: Parameter) -> str:
    """Say where to give what an experiment's key or the run fills in; "" for what a part's entry gives."""
    key = parameter.about.key
    if key is None:
        return ""
    what, _, kind = key.partition(".")
    if what == "run" and kind in KINDS:
        return f"name it as {KINDS[kind].key}"
    is_filled = what == "run" or any(key in known.fills for known in KINDS.values())
    return "leave it out, the run fills it in" if is_filled else f"it has a key of its own, {key}"


def _means(parameter: Parameter) -> str:
    about = parameter.about
    unit = f", in {about.unit}" if about.unit else ""
    return f" ({parameter.name}: {about.meaning}{unit})" if about.meaning else ""
