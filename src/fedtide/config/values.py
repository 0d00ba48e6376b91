"""The types of keys: bounded numbers and parts; and one line for whatever a key is given that it does not take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from fedtide.core.yaml12 import shown
from fedtide.errors import did_you_mean

_EXACT = 2**53  # beyond it a float leaves integers out
_FIRST = 3  # problems that one line tells of
_LONGEST_NAME = 500  # characters of a part's name, which may be a path


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


@dataclass(frozen=True)
class Part:
    """One entry of an experiment: which part, and with which parameters.

    >>> Part.of({"name": "rician", "k_factor": 8}).args
    {'k_factor': 8}
    """

    name: str
    parameters: str = "{}"  # as JSON, keys sorted: so that an experiment can be hashed

    @classmethod
    def of(cls, entry: Any) -> Part:
        """Return the part that a name or {name: ..., parameters} stands for."""
        if isinstance(entry, Part):
            return entry
        args = {name: value for name, value in entry.items() if name != "name"} if isinstance(entry, Mapping) else {}
        name = entry.get("name") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str):
            raise PydanticCustomError("no_part", "write the name of a part, or {name: ..., parameters}")
        if len(name) > _LONGEST_NAME:
            raise PydanticCustomError("no_part", "a name has {most} characters at most", {"most": _LONGEST_NAME})
        for parameter in args:
            if not str(parameter).isidentifier():
                raise PydanticCustomError("no_name", "{name} is no name of a parameter", {"name": shown(parameter)})
        try:
            return cls(name, json.dumps(args, sort_keys=True))
        except (TypeError, ValueError) as error:
            raise PydanticCustomError("no_part", "{why}; give plain numbers and texts", {"why": str(error)}) from None

    @property
    def args(self) -> dict[str, Any]:
        """The parameters that were given, by name."""
        found: dict[str, Any] = json.loads(self.parameters) if self.parameters != "{}" else {}
        return found

    @property
    def entry(self) -> str | dict[str, Any]:
        """The part as an experiment file has it: its name alone if no parameter was given."""
        args = self.args
        return {"name": self.name, **args} if args else self.name

    def __str__(self) -> str:
        return self.name

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> core_schema.CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(lambda part: part.entry)
        return core_schema.no_info_plain_validator_function(cls.of, serialization=written)


Decibels = Annotated[float, Field(ge=-300, le=300, allow_inf_nan=False), BeforeValidator(_number)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(_number)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False), BeforeValidator(_number)]
Scale = Annotated[
    float, Field(gt=0, le=1e30, allow_inf_nan=False), BeforeValidator(_number)
]  # its products stay finite
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False), BeforeValidator(_number)]
NonNegativeInt = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]
Count = Annotated[int, Field(ge=1, lt=2**63), BeforeValidator(_whole)]
Name = Annotated[str, Field(max_length=_LONGEST_NAME)]


def explain_validation(
    error: ValidationError,
    fields: Mapping[str, FieldInfo],
    kind: str = "key",
    unknown: Callable[[str], str] | None = None,
) -> str:
    """Say in one line what pydantic found: key, value, meaning, reason.

    fields: those that there are, by key; kind: what a key is called; unknown: what to say of a key that there is none of.
    """

    def nearest(key: str) -> str:
        return ": " + did_you_mean(key.rpartition(".")[2], fields, f"use one of {', '.join(fields)}")

    found = error.errors(include_url=False)
    lines = [_line(each, fields, kind, unknown or nearest) for each in found[:_FIRST]]
    return "; ".join(lines) + (f"; and {len(found) - _FIRST:,} more like this" if len(found) > _FIRST else "")


def _line(error: Any, fields: Mapping[str, FieldInfo], kind: str, unknown: Callable[[str], str]) -> str:
    path = [str(part) for part in error["loc"] if not str(part).startswith("<")]  # <...>: which kind of value it is
    key = ".".join(path)
    key = key[:200] if key.isprintable() else shown(key)
    if error["type"] == "value_error":  # of several keys together; it names them
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden":
        return f"{key} is not a {kind}{unknown(key)}"
    if error["type"] == "missing":
        return f"{key} is missing"
    if error["type"] in ("model_type", "model_attributes_type"):
        return f"{key}={shown(error['input'])}{unknown(key)}"
    field = fields.get(".".join(path[:2])) or fields.get(path[0] if path else "")
    meaning = f" ({field.description})" if field is not None and field.description else ""
    return f"{key}={shown(error['input'])}{meaning}: {error['msg'][0].lower()}{error['msg'][1:]}"
