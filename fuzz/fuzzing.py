"""One target under the fuzzer, for as long as its arguments say: `python -m fuzz.fuzzing TARGET ...`.

The arguments behind the target are libFuzzer's.
"""

from __future__ import annotations

import logging
import sys

import atheris

with atheris.instrument_imports(include=["headwater", "headwater_wire", "headwater_root"]):
    from fuzz.mutation import mutated, mutated_envelope
    from fuzz.targets import TARGETS


MUTATIONS = {"messages": mutated, "decoder": mutated_envelope}


def main() -> None:
    # A finding is an error, not a line.
    logging.disable(logging.CRITICAL)
    name = sys.argv[1]
    arguments = [sys.argv[0], *sys.argv[2:]]
    if name in MUTATIONS:

        def change(data: bytes, size: int, seed: int) -> bytes:
            return MUTATIONS[name](data, size, seed, atheris.Mutate)

        atheris.Setup(arguments, TARGETS[name], custom_mutator=change)
    else:
        atheris.Setup(arguments, TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
