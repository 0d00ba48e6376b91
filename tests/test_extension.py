"""Without the compiled extension there is one clear line."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = """
import sys
sys.modules["fedtide._native"] = None
sys.argv = ["fedtide", "plan", "data.name=synthetic"]
from fedtide.__main__ import main
main()
"""


def test_the_command_line_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "install a wheel of fedtide, or install a C++ compiler" in done.stderr
