"""Differential run of the layout bridges and operators against the real peers.

Create one environment a peer (none may share one: TileLang brings its own TVM), for example::

    python -m venv pycute   && pycute/bin/pip install --no-deps nvidia-cutlass==4.2.0.0
    python -m venv cute_dsl && cute_dsl/bin/pip install nvidia-cutlass-dsl==4.8.1
    python -m venv triton   && triton/bin/pip install triton==3.9.0
    python -m venv tilelang && tilelang/bin/pip install --no-deps tilelang==0.1.15 \
        apache-tvm-ffi==0.1.12 cloudpickle ml-dtypes numpy psutil tqdm typing-extensions \
        z3-solver==4.15.4.0
    tilelang/bin/pip install torch==2.13.0+cpu        # any torch; the CPU build is small
    for e in pycute cute_dsl triton tilelang; do $e/bin/pip install lark numpy; done

``lark`` and ``numpy`` let a worker import the bridges of this checkout; ``nvidia-cutlass-dsl``
brings its libs-base, libs-core and libs-cu12. PyPI's ``pycute`` is an unrelated project. TVM runs
in the environment of the package. No GPU is needed. Then::

    python scripts/peers/run.py --environments DIR --tables docs/layout-peers.md --record

Verdicts: agrees, refuses (an answer exists), none (a refusal where none exists), wrong (with the
kind; the case is listed), rounded, outside, crashed. Brute force (``brute.py``) is the judge; it
shares no code with the package or a peer. ``--record`` writes ``tests/layout_peers/*.json.gz``,
which the test suite checks without any peer.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.peers import record, suites, tables
from scripts.peers.protocol import Peer

PEERS = {
    "cute": [("pycute", "pycute"), ("cute_dsl", "cute_dsl"), ("tilelang.cute", "tilelang")],
    "units": [("cute_dsl", "cute_dsl")],
    "triton": [("triton", "triton")],
    "tilelang": [("tilelang", "tilelang")],
    "tvm": [("tvm", "tvm")],
}


def start(name, environments):
    """Return the peers of a suite, each with its versions."""
    found = []
    for peer, script in PEERS[name]:
        python = sys.executable if script == "tvm" else environments / script / "bin" / "python"
        if not Path(python).exists():
            raise SystemExit(
                f"{peer}: no environment at {environments / script}; see the docstring"
            )
        worker = Peer(peer, python, script)
        kind, versions = worker.ask("version")
        if kind != "value":
            raise SystemExit(f"{peer}: the worker does not start ({versions})")
        worker.versions = versions
        found.append(worker)
    return found


def run_suite(name, environments, seed, count):
    """Run one suite; return its rows, versions and restarts."""
    peers = start(name, environments)
    began = time.perf_counter()
    try:
        rows = list(suites.SUITES[name](peers, seed, count))
    finally:
        for peer in peers:
            peer.close()
    versions = {p.name: p.versions for p in peers}
    restarts = {p.name: p.restarts for p in peers}
    print(f"{name}: {len(rows)} verdicts, {time.perf_counter() - began:.0f} s, {restarts}")
    return {"rows": rows, "versions": versions, "restarts": restarts}


def main(argv=None):
    """Run the chosen suites, print their tables, and record where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--environments", type=Path, required=True)
    parser.add_argument("--suite", action="append", choices=sorted(PEERS))
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--tables", type=Path, help="replace the marked tables of this document")
    options = parser.parse_args(argv)
    failed = 0
    for name in options.suite or PEERS:
        result = run_suite(name, options.environments, options.seed, options.cases)
        result.update(seed=options.seed, cases=options.cases)
        text = tables.outcomes(name, result)
        print(text)
        ours = collections.Counter(
            verdict for peer, _, _, verdict, _ in result["rows"] if peer == "tvm_tilex"
        )
        failed += sum(n for v, n in ours.items() if v.startswith(("wrong", "crashed")))
        if options.tables:
            tables.replace(options.tables, name, text)
        if options.record and name in record.GENERATORS:
            record.write(name, result)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
