"""Tables of outcomes: one row an operation, one column a peer, and our own."""

from __future__ import annotations

import collections

from scripts.peers import judge

ORDER = ("agrees", "wrong", "refuses", "none", "rounded", "outside", "crashed", "not run")


def _cell(counts):
    """Return the counts of one operation of one peer, most telling first."""
    parts = []
    for kind in ORDER:
        named = {v: n for v, n in counts.items() if v.startswith(kind)}
        if not named:
            continue
        if kind == "wrong":
            detail = ", ".join(f"{v.partition(': ')[2]} {n}" for v, n in sorted(named.items()))
            parts.append(f"**wrong {sum(named.values())}** ({detail})")
        elif kind == "not run":
            parts.append(f"not run {sum(named.values())}")
        elif kind == "crashed":
            parts.append(f"**crashed {sum(named.values())}**")
        else:
            parts.append(f"{kind} {sum(named.values())}")
    return ", ".join(parts) or "no such operation"


def outcomes(name, result):
    """Return a Markdown table of a suite."""
    counted = collections.defaultdict(collections.Counter)
    peers, operations = {}, {}
    for peer, op, _, verdict, _ in result["rows"]:
        counted[peer, op][verdict] += 1
        peers[peer] = operations[op] = None
    columns = [p for p in peers if p != "tvm_tilex"] + ["tvm_tilex"]
    heads = [f"{p} {_version(result, p)}".strip() for p in columns]
    lines = [
        f"Seed {result['seed']}, {result['cases']} cases; workers restarted: "
        + ", ".join(f"{p} {n}" for p, n in result["restarts"].items())
        + ".",
        "",
        "| operation | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    rank = {op: k for k, op in enumerate(judge.ALL)}
    for op in sorted(operations, key=lambda op: rank.get(op, -1)):
        cells = " | ".join(_cell(counted[p, op]) for p in columns)
        lines.append(f"| {op} | {cells} |")
    return "\n".join(lines)


def _version(result, peer):
    versions = result["versions"].get(peer, {})
    return next(iter(versions.values()), "")


def replace(path, name, text):
    """Put ``text`` between the markers of table ``name`` in a document."""
    document = path.read_text(encoding="utf-8")
    first, last = f"<!-- table {name} -->\n", f"\n<!-- end {name} -->"
    head, found, rest = document.partition(first)
    if not found:
        raise SystemExit(f"{path} has no table '{name}'")
    tail = rest.partition(last)[2]
    path.write_text(head + first + text + last + tail, encoding="utf-8")
