"""`python -m fedtide`, and what the script `fedtide` calls: Ctrl-C is in hand before anything else is imported."""

from __future__ import annotations

import gc
import os
import sys

from fedtide.core import signals


def main() -> None:
    """Run the command line."""
    signals.install_signals()
    gc.set_threshold(
        100_000, 20
    )  # what is imported stays: looking through it again and again takes a tenth of the time
    for number in range(3):  # a file opened later must not take the place of a closed stdout
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as the process
    try:
        from fedtide.cli import main as cli
    except Exception as error:  # too early for the border: its own modules cannot be had
        if os.environ.get("FEDTIDE_TRACEBACK"):
            raise
        line = f"error: fedtide cannot start ({type(error).__name__}: {error}): free what is lacking, or install it again\n"
        os.write(2, line.encode(errors="replace"))
        os._exit(6)
    signals.signals_raise()
    try:
        cli.app.main(prog_name="fedtide")
    finally:
        signals.leave_signals()


if __name__ == "__main__":
    main()
