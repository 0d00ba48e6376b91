"""Every key of an experiment as the text that help() shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def document(experiment: type[BaseModel]) -> None:
    """Let the docstring of an experiment, and that of each of its groups, list the keys with default and meaning."""
    own = {name: field for name, field in experiment.model_fields.items() if not _is_group(field)}
    groups = {name: field.annotation for name, field in experiment.model_fields.items() if _is_group(field)}
    text = [experiment.__doc__ or "", "", "Keys with their defaults; times are in the unit of fleet.max_duration:", ""]
    text += _lines(own, "")
    for name, group in groups.items():
        assert isinstance(group, type)  # _is_group says so
        assert issubclass(group, BaseModel)
        lines = _lines(group.model_fields, f"{name}.")
        text += ["", f"{name}: {group.__doc__ or ''}", *lines]
        group.__doc__ = "\n".join([group.__doc__ or "", "", *lines])
    experiment.__doc__ = "\n".join(text)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _lines(fields: Mapping[str, FieldInfo], before: str) -> list[str]:
    found = []
    for name, field in fields.items():
        value: Any = field.get_default(call_default_factory=True)
        found += [f"    {before}{name} = {value!r}", f"        {field.description or ''}".rstrip()]
    return found
