"""How long one `kvadvise plan ... --json` takes from start to exit, and how much memory; `make bench`.

Median and extremes of whole processes, beside `python -c pass` in the same minute: the ratio is what
can be compared between machines. Imports are listed when asked for, since they are most of it.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_FILES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("workload", nargs="?", default="chat-8k")
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--imports", action="store_true", help="list the slowest imports instead")
    options = parser.parse_args()
    command = [sys.executable, "-m", "kvadvise", "plan", options.workload, "--json"]
    if options.imports:
        show_imports(command)
        return
    nothing = measure([sys.executable, "-c", "pass"], options.runs)
    plan = measure(command, options.runs)
    print(f"{'':24}{'median':>10}{'fastest':>10}{'slowest':>10}{'memory':>12}")
    for name, (times, memory_kib) in (("python -c pass", nothing), ("kvadvise plan --json", plan)):
        figures = (statistics.median(times), min(times), max(times))
        print(f"{name:24}" + "".join(f"{t * 1000:>8.1f}ms" for t in figures) + f"{memory_kib / 1024:>8.1f} MiB")
    print(f"ratio of medians: {statistics.median(plan[0]) / statistics.median(nothing[0]):.1f}")
    print(f"{_FILES} files in one call: {seconds_for_many(options.workload):.2f} s")


def seconds_for_many(name: str) -> float:
    """One call with many workloads that differ in their target."""
    text = (ROOT / "profiles" / "workloads" / f"{name}.yaml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"workload-{n}.yaml" for n in range(_FILES)]
        for n, path in enumerate(files):
            path.write_text(re.sub(r"concurrency: \d+", f"concurrency: {n % 60 + 1}", text), encoding="utf-8")
        command = [sys.executable, "-m", "kvadvise", "plan", "--json", *map(str, files)]
        start = time.perf_counter()
        ended = subprocess.run(command, stdout=subprocess.DEVNULL, env=compiled(), check=False).returncode
        seconds = time.perf_counter() - start
    if ended not in (0, 3):  # 3: a target that does not fit
        sys.exit(f"planning {_FILES} files ended with {ended}")
    return seconds


def compiled() -> dict[str, str]:
    """The environment of an installed package, whose modules were compiled once."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(ROOT)}


def measure(command: list[str], runs: int) -> tuple[list[float], int]:
    """Seconds of each run, and the largest resident size in KiB; a first run that warms the caches is left out."""
    environment = compiled()
    times: list[float] = []
    largest = 0
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("wb") as nowhere:
        for n in range(runs + 1):
            start = time.perf_counter()
            process = subprocess.Popen(command, stdout=nowhere, cwd=folder, env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                sys.exit(f"{' '.join(command)} ended with {process.returncode}")
            if n:
                times.append(seconds)
                largest = max(largest, usage.ru_maxrss)
    return times, largest


def show_imports(command: list[str]) -> None:
    """The imports that take longest, with what they import themselves."""
    done = subprocess.run(
        [command[0], "-X", "importtime", *command[1:]],
        env=compiled(),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
    timed = [(int(row[1]), row[2].rstrip()) for row in rows if row[1].strip().isdigit()]
    for microseconds, name in sorted(timed, reverse=True)[:25]:
        print(f"{microseconds / 1000:8.1f} ms {name}")


if __name__ == "__main__":
    main()
