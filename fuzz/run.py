"""The corpus through every target, then the fuzzer: `python -m fuzz.run --seconds 60`.

What the fuzzer finds on its way is kept where it is told to (--keep), else forgotten; an input that is a
finding is written to fuzz/findings. Fix the cause and put the input into the corpus: the tests run that too.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fuzz.targets import TARGETS

HERE = Path(__file__).parent
CORPUS, FINDINGS = HERE / "corpus", HERE / "findings"
# A single input may take so many seconds, and a target so many megabytes.
HANGS, MEGABYTES = 20, 2_048
# Messages reach most code: they get as many shares of the time.
SHARES = {"messages": 4, "decoder": 2}
_EXECUTIONS = re.compile(r"stat::number_of_executed_units: *(\d+)")
_COVERAGE = re.compile(r"cov: (\d+)")


def run_corpus() -> int:
    """Each input through its target; raises what is a finding."""
    count = 0
    for name, target in TARGETS.items():
        for path in sorted((CORPUS / name).iterdir()):
            target(path.read_bytes())
            count += 1
    return count


def fuzz(name: str, seconds: int, keep: Path | None) -> bool:
    """One target for some seconds; whether nothing was found."""
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        grown = Path(scratch) / name if keep is None else keep / name
        grown.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "fuzz.fuzzing", name, str(grown), str(CORPUS / name)]
        command += [f"-max_total_time={seconds}", f"-timeout={HANGS}", f"-rss_limit_mb={MEGABYTES}"]
        command += [f"-artifact_prefix={FINDINGS}/{name}-", "-print_final_stats=1", "-max_len=65536"]
        # It ends by itself; if not, it is ended, and that is a finding too.
        done = subprocess.run(
            command, cwd=HERE.parent, capture_output=True, text=True, timeout=seconds + 120, check=False
        )
    said = done.stdout + done.stderr
    executed, covered = _EXECUTIONS.findall(said), _COVERAGE.findall(said)
    print(
        f"{name}: {executed[-1] if executed else '?'} executions, coverage {covered[-1] if covered else '?'}"
    )
    if done.returncode:
        # What was raised, then what the fuzzer says of it: its lines of progress could hide either.
        print(done.stdout[-6_000:], done.stderr[-2_000:], sep="\n")
    return done.returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of fuzzing in all; 0 runs the corpus alone")
    parser.add_argument("--target", choices=TARGETS, action="append", help="these alone")
    parser.add_argument("--keep", type=Path, help="a directory for the inputs that reached something new")
    given = parser.parse_args(arguments)
    print(f"{run_corpus()} inputs of the corpus: nothing found")
    if not given.seconds:
        return 0
    if find_spec("atheris") is None:
        print("atheris is not installed, it is for Linux on x86-64: the corpus alone was run")
        return 0
    names = given.target or list(TARGETS)
    shares = sum(SHARES.get(name, 1) for name in names)
    found = [
        name
        for name in names
        if not fuzz(name, max(given.seconds * SHARES.get(name, 1) // shares, 1), given.keep)
    ]
    if FINDINGS.exists() and not any(FINDINGS.iterdir()):
        shutil.rmtree(FINDINGS)
    print(f"findings in {', '.join(found)}; the inputs are in {FINDINGS}" if found else "nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
