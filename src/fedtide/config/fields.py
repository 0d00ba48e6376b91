"""The types of keys, and one line for whatever a key is given that it does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from fedtide.core.forms import shown

_EXACT = 2**53  # beyond it a float leaves integers out
_FIRST = 3  # problems that one line tells of


def _number(value: Any) -> Any:
    """Refuse true and false, which Python takes for 1 and 0."""
    if isinstance(value, bool):
        raise PydanticCustomError("no_number", "true and false are no numbers; write the number")
    return value


def _whole(value: Any) -> Any:
    """Refuse a float that may stand for another integer than was written."""
    if isinstance(value, float) and _EXACT <= abs(value) < float("inf"):
        raise PydanticCustomError("no_integer", "so large an integer is written without a point or an exponent")
    return _number(value)


def _named(args: dict[str, Any]) -> dict[str, Any]:
    """Refuse arguments that no function can have."""
    for name in args:
        if not name.isidentifier():
            raise PydanticCustomError("no_name", "{name} is no name of an argument", {"name": shown(name)})
    return args


Decibels = Annotated[float, Field(ge=-300, le=300, allow_inf_nan=False), BeforeValidator(_number)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_number)]
Scale = Annotated[
    float, Field(gt=0, le=1e30, allow_inf_nan=False), BeforeValidator(_number)
]  # its products stay finite
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(_number)]
Whole = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, lt=2**63), BeforeValidator(_whole)]
Name = Annotated[str, Field(max_length=500)]  # of a policy: ours, or a path
Args = Annotated[dict[str, Any], AfterValidator(_named)]


def explain(
    error: ValidationError, about: Callable[[str], str | None], unknown: Callable[[str], str], kind: str = "key"
) -> str:
    """Say in one line what pydantic found: key, value, meaning, reason.

    about: what a key means, or None; unknown: what to say of a key that there is none of; kind: what a key is called.
    """
    found = error.errors(include_url=False)
    lines = [_line(each, about, unknown, kind) for each in found[:_FIRST]]
    return "; ".join(lines) + (f"; and {len(found) - _FIRST:,} more like this" if len(found) > _FIRST else "")


def _line(error: Any, about: Callable[[str], str | None], unknown: Callable[[str], str], kind: str) -> str:
    path = [str(part) for part in error["loc"] if not str(part).startswith("<")]  # <...>: which kind of value it is
    key = ".".join(path)
    key = key[:200] if key.isprintable() else shown(key)
    if error["type"] == "value_error":  # of several keys together; it names them
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        return f"{key} is not a {kind}{unknown(key)}"
    if error["type"] in ("model_type", "model_attributes_type"):
        return f"{key}={shown(error['input'])}{unknown(key)}"
    meaning = about(".".join(path[:2])) or about(path[0] if path else "")
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{key}={shown(error['input'])}{f' ({meaning})' if meaning else ''}: {message}"
