"""The command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedtide.lazy import lazy_names

if TYPE_CHECKING:
    from fedtide.cli import command, options
    from fedtide.cli.console import out, print_json, print_table, say
    from fedtide.cli.parts import key_row, print_keys
    from fedtide.cli.progress import study_progress
    from fedtide.cli.study import do_study_runs, finish_study

__all__ = [
    "command",
    "do_study_runs",
    "finish_study",
    "key_row",
    "options",
    "out",
    "print_json",
    "print_keys",
    "print_table",
    "say",
    "study_progress",
]

__getattr__ = lazy_names(
    __name__,
    console="out print_json print_table say",
    parts="key_row print_keys",
    progress="study_progress",
    study="do_study_runs finish_study",
)
