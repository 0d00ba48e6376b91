"""What the command line costs before it does anything: CPU seconds of `fedtide --help` and of the default plan.

    python benchmarks/startup.py [repetitions]

User and system time of whole processes, the least of several, with bytecode cached as in an installed package, beside what
Python and NumPy take to start on the same machine in the same run. The plan needs MNIST in the cache (`fedtide data`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

COMMANDS = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import fedtide": ["-c", "import fedtide"],
    "fedtide --help": ["-m", "fedtide", "--help"],
    "fedtide plan": ["-m", "fedtide", "plan"],
}
TARGETS = {"fedtide --help": 0.3, "fedtide plan": 0.5}  # CPU seconds


def cpu_seconds(words: list[str], env: dict[str, str]) -> float:
    """Return user and system time of one process."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, env=env)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as cache:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env |= {"PYTHONPYCACHEPREFIX": cache}
        for words in COMMANDS.values():  # writes the bytecode
            cpu_seconds(words, env)
        least = dict.fromkeys(COMMANDS, float("inf"))
        for _ in range(repetitions):  # in turn, so that all meet the same neighbours
            for name, words in COMMANDS.items():
                least[name] = min(least[name], cpu_seconds(words, env))
    print(f"{'':16}{'CPU s':>8}{'python':>9}{'numpy':>9}{'target':>9}")
    for name, seconds in least.items():
        ratios = f"{seconds / least['python']:>8.1f}x{seconds / least['import numpy']:>8.1f}x"
        print(f"{name:16}{seconds:>8.3f}{ratios}{TARGETS.get(name, ''):>9}")


if __name__ == "__main__":
    main()
