"""Measures this package's row operators beside their peers on a GPU, in one command.

    python scripts/benchmark/peers.py results.json                      # where tvm_tilex imports
    python scripts/benchmark/peers.py results.json --artifacts FILE...  # kernels exported elsewhere
    python scripts/benchmark/peers.py --draw results.json... --picture roofline.png

Implementations: this package, torch eager, torch.compile, Liger, QuACK, and TVM's dlight schedules,
each where it is importable; with --artifacts this package and dlight come from the files that
`export_cuda_artifacts.py` wrote, and the machine needs torch, cupy and nvcc, but no TVM.
`tilex` launches as planned, which may overlap the kernel before (`dependent_launch`);
`tilex-ordinary` never does, as the peers and the copy.

Every output is first compared with FP64 as a whole; what is wrong or fails is recorded, not timed.
Time is the median over CUDA graph replays that rotate arguments past the L2 cache. Rates are useful
bytes (every input read once, every output written once) over those of an elementwise copy kernel of
the same run: a large one, and one that moves as many bytes as the cell.
"""

import argparse
import json
import sys
from pathlib import Path

from record_argument import record_file
from row_operators import DTYPES, LIMITS, OPERATORS, SHAPES, relative_error

SCHEMA = 1
NAMES = ("tilex", "tilex-ordinary", "torch", "compile", "liger", "quack", "dlight")
OURS = ("tilex", "tilex-ordinary")  # the second is no peer


def options(arguments=None):
    """The parsed command line; a name that is not known ends with status 2."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    listed = {
        "operators": list(OPERATORS),
        "dtypes": ["float32", "bfloat16"],
        "implementations": list(NAMES),
        "shapes": [f"{rows}x{columns}" for rows, columns in SHAPES],
    }
    known = {"dtypes": list(DTYPES), "implementations": list(NAMES), "operators": list(OPERATORS)}
    parser.add_argument("results", nargs="?", help="JSON file to write")
    parser.add_argument(
        "--artifacts", nargs="+", type=record_file, help="files of export_cuda_artifacts.py"
    )
    parser.add_argument(
        "--draw", nargs="+", type=record_file, metavar="RESULTS", help="only draw recorded results"
    )
    parser.add_argument("--picture", help="picture to write (default: beside the results, .png)")
    parser.add_argument("--repeats", type=int, default=7, help="graph replays to take a median of")
    for name, default in listed.items():
        parser.add_argument(f"--{name}", nargs="+", default=default, choices=known.get(name))
    found = parser.parse_args(arguments)
    if bool(found.results) == bool(found.draw):
        parser.error("give either a file to write or --draw with recorded ones")
    if found.repeats < 1:
        parser.error("--repeats must be positive")
    try:
        found.shapes = [shape_of(text) for text in found.shapes]
    except ValueError as error:
        parser.error(str(error))
    return found


def shape_of(text):
    rows, _, columns = text.partition("x")
    if not (rows.isdigit() and columns.isdigit() and int(rows) and int(columns)):
        raise ValueError(f"--shapes {text}: write positive extents as 8192x4096")
    return int(rows), int(columns)


def factories(wanted, artifacts):
    """The factory of each implementation, and why the others are absent."""
    import peer_implementations

    found, absent = {}, {}
    for name in wanted:
        try:
            if artifacts is not None and name in (*OURS, "dlight"):
                found[name] = peer_implementations.artifact_factory(name, artifacts)
            else:
                found[name] = peer_implementations.load(name)
        except Exception as failure:  # a peer may fail to import in any way
            absent[name] = short(failure)
    return found, absent


def read_artifacts(paths):
    """Exported rows of all files, each with its storage type."""
    found = []
    for path in paths:
        record = json.loads(Path(path).read_text())
        found += [{"dtype": record["dtype"], **row} for row in record["rows"]]
    return found


def short(failure):
    text = " ".join(str(failure).split())
    return f"{type(failure).__name__}: {text[:240]}"


def measure_cell(make, operator, shape, dtype, sets, wanted, repeats):
    """Check one implementation on one cell, and time it if it is right: its row of the record."""
    import torch
    from cuda_measuring import timed

    try:
        run = make(operator, *shape, dtype)
        if run is None:
            return None
        calls = [run.arguments(arguments) for arguments in sets]
        sets[0][-1].fill_(float("nan"))
        returned = run.function(*calls[0])
        torch.cuda.synchronize()
        error = relative_error(run.result(sets[0], returned), wanted)
        row = {"error_norm": error if error == error else None, **run.facts}
        if not error < LIMITS[dtype]:
            return {**row, "status": "wrong"}
        return {**row, "status": "measured", **timed(run.function, calls, repeats)}
    except Exception as failure:  # recorded, so that no loss is silent
        return {"status": "failed", "detail": short(failure)}


def measure(given):
    import torch
    from cuda_measuring import cache_bytes, conditions, copy_rate, set_count

    artifacts = read_artifacts(given.artifacts) if given.artifacts else None
    makers, absent = factories(given.implementations, artifacts)
    for name, reason in absent.items():
        print(f"absent: {name}: {reason}", flush=True)
    torch.manual_seed(0)
    copy, same_size = copy_rate(), {}
    record = {
        "schema": SCHEMA,
        "conditions": conditions(),
        "copy_GBps": copy,
        "absent": absent,
        "rows": [],
    }
    print(f"{record['conditions']['device']}: elementwise copy {copy:.0f} GB/s", flush=True)
    for dtype in given.dtypes:
        for operator in given.operators:
            for shape in given.shapes:
                size = OPERATORS[operator].useful_bytes(*shape, dtype)
                if size not in same_size:
                    same_size[size] = copy_rate(size)
                count = set_count(size, cache_bytes())
                sets = [OPERATORS[operator].arguments(*shape, dtype, "cuda") for _ in range(count)]
                wanted = OPERATORS[operator].expected(sets[0])
                for name, make in makers.items():
                    row = measure_cell(make, operator, shape, dtype, sets, wanted, given.repeats)
                    if row is None:
                        continue
                    row = {
                        "operator": operator,
                        "shape": list(shape),
                        "dtype": dtype,
                        "implementation": name,
                        "useful_bytes": size,
                        "same_size_copy_GBps": same_size[size],
                        **row,
                    }
                    if row["status"] == "measured":
                        row["GBps"] = size / row["us"] / 1e3
                        row["fraction"] = row["GBps"] / copy
                    record["rows"].append(row)
                print(cell_line(record["rows"], operator, shape, dtype), flush=True)
                del sets, wanted
                torch.cuda.empty_cache()
                Path(given.results).write_text(json.dumps(record, indent=1))
    record["copy_GBps_at_end"] = copy_rate()
    record["conditions_at_end"] = conditions()
    Path(given.results).write_text(json.dumps(record, indent=1))
    return record


def cell_line(rows, operator, shape, dtype):
    """One line of text about a cell."""
    parts = [
        f"{r['implementation']} {r['fraction']:.3f}" + ("" if r["graph"] else " (no graph)")
        if r["status"] == "measured"
        else f"{r['implementation']} {r['status'].upper()}"
        for r in rows
        if (r["operator"], tuple(r["shape"]), r["dtype"]) == (operator, tuple(shape), dtype)
    ]
    return f"{operator:<18} {shape[0]:>5}x{shape[1]:<6} {dtype:<8} " + "  ".join(parts)


def behind(record):
    """Cells where this package is not measured, or slower than the best peer of the same run."""
    cells = {}
    for row in record["rows"]:
        cells.setdefault((row["operator"], tuple(row["shape"]), row["dtype"]), []).append(row)
    found = []
    for cell, rows in cells.items():
        rate = {r["implementation"]: r["fraction"] for r in rows if r["status"] == "measured"}
        ours, _ = (rate.pop(name, None) for name in OURS)
        best = max(rate, key=rate.get, default=None)
        if ours is None or (best is not None and ours < rate[best]):
            found.append((cell, ours, best, rate.get(best)))
    return found


def report(record):
    """Lines that sum a run up."""
    yield f"copy {record['copy_GBps']:.0f} GB/s, at the end {record['copy_GBps_at_end']:.0f} GB/s"
    bad = [row for row in record["rows"] if row["status"] != "measured"]
    for row in bad:
        where = f"{row['operator']} {row['shape'][0]}x{row['shape'][1]} {row['dtype']}"
        reason = row.get("detail") or f"error {row['error_norm']}"
        yield f"{row['status']}: {row['implementation']} {where}: {reason}"
    for (operator, shape, dtype), ours, best, rate in behind(record):
        mine = "not measured" if ours is None else f"{ours:.3f}"
        other = "no peer measured" if best is None else f"{best} {rate:.3f}"
        yield f"behind: {operator} {shape[0]}x{shape[1]} {dtype}: tilex {mine}, {other}"


def main():
    given = options()
    paths = given.draw or [given.results]
    if given.results:
        import torch

        if not torch.cuda.is_available():
            print("peers.py: no CUDA GPU here; --draw needs none", file=sys.stderr)
            return 1
        for line in report(measure(given)):
            print(line)
    picture = given.picture or str(Path(paths[0]).with_suffix(".png"))
    try:
        from roofline import draw

        draw([json.loads(Path(path).read_text()) for path in paths], picture)
    except ImportError as missing:
        print(f"no picture ({missing}): draw it elsewhere with --draw {' '.join(paths)}")
        return 0
    print(f"picture: {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
