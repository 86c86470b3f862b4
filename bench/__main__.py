"""`python -m bench [--quick] [NAME…]`: the measurements of `docs/performance.md`, a figure a line.

Each figure is a ratio to something measured in the same run on the same machine. Names are those of the list
that `--list` prints; without any, all are measured.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import uvloop

from bench import cancelling, deltas, growing, lasting, listeners, side_by_side
from bench.figures import Bench, Figure
from bench.upstream import upstream_process

FIGURES: dict[str, Figure] = {
    "burst": deltas.burst,
    "paced": deltas.paced,
    "latency": side_by_side.latency,
    "fairness": side_by_side.fairness,
    "cancel": cancelling.cancel,
    "listener": listeners.listener,
    "memory": listeners.memory,
    "replay": listeners.replay,
    "wire": listeners.wire,
    "handles": lasting.handles,
    "start": lasting.start,
    "history": growing.history,
    "database": growing.database,
}


async def run(names: list[str], bench: Bench) -> bool:
    """Print the figures. False if one of them misses its target."""
    met = True
    for name in names:
        async for line in FIGURES[name](bench):
            print(line, flush=True)
            met = met and (line.target is None or (line.ratio or 0) <= line.target)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--quick", action="store_true", help="less of each: minutes become seconds")
    parser.add_argument("--list", action="store_true", help="the names, and what each measures")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(FIGURES)):
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    if given.list:
        for name, figure in FIGURES.items():
            print(f"{name}: {(figure.__doc__ or '').splitlines()[0]}")
        return
    with tempfile.TemporaryDirectory() as folder, upstream_process() as origin:
        met = uvloop.run(run(given.names or list(FIGURES), Bench(origin, Path(folder), given.quick)))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
