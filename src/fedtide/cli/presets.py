"""Frameworks, profiles and scenarios: names for several keys at once, as the lists of the command line show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedtide import config
from fedtide.config import scenarios


def presets() -> dict[str, dict[str, str]]:
    """Return what each framework and profile fills in, by name, and what world a scenario is."""
    known = {"framework": config.FRAMEWORKS, "profile": config.PROFILES}
    filled = {key: {name: _flat(tree) or "the defaults" for name, tree in each.items()} for key, each in known.items()}
    return filled | {"scenario": {name: scenarios.scenario(name).about for name in scenarios.names()}}


def _flat(tree: Mapping[str, Any]) -> str:
    return ", ".join(f"{group}.{key}={value}" for group, keys in tree.items() for key, value in keys.items())
