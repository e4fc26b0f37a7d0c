"""The distributed-local audit and the five conditions, with forwarding switched off."""

from __future__ import annotations

import numpy as np
import pytest
import raw_tirx as raw
from admission_mutations import DOMAIN, EXP, I12, I16, SOFT_STORE, SUM_ALLOC, SUM_UPDATE

import tvm_tilex as tx
from tvm_tilex.errors import MappingError
from tvm_tilex.transform.options import CompileOptions

ROW = "distributed private storage"
TILE3 = "tile3 = T.alloc_local((70,))"

STORAGE = {
    "defining store twice": (
        "2 defining stores",
        [(SUM_ALLOC, DOMAIN + I16 + EXP + I12 + SUM_ALLOC)],
    ),
    "reads its own definition": (
        "read by its own definition",
        [(EXP, EXP + " + tile3[columns]")],
    ),
    "never read": (
        "never read",
        [
            (
                SUM_ALLOC,
                "dead = T.alloc_local((70,))"
                + I12
                + DOMAIN
                + I16
                + "dead[columns] = T.float32(1)"
                + I12
                + SUM_ALLOC,
            ),
        ],
    ),
    "stored in part": ("not stored whole", [(TILE3, "tile3 = T.alloc_local((80,))")]),
    "also stored by every worker": (
        "2 defining stores",
        [(SUM_ALLOC, "tile3[3] = T.float32(1)" + I12 + SUM_ALLOC)],
    ),
    "half precision": (
        "not a 32-bit scalar",
        [
            (TILE3, 'tile3 = T.alloc_local((70,), "float16")'),
            (EXP, EXP.replace("T.exp(", 'T.Cast("float16", T.exp(') + ")"),
            (SUM_UPDATE, SUM_UPDATE.replace("tile3[columns]", 'T.Cast("float32", tile3[columns])')),
            (SOFT_STORE, SOFT_STORE.replace("tile3[columns]", 'T.Cast("float32", tile3[columns])')),
        ],
    ),
}

ACCESSES = {
    "reversed": "tile3[69 - columns]",
    "shifted": "tile3[(columns + 1) % 70]",
    "permuted": "tile3[columns % 7 * 10 + columns // 7]",
    "fixed": "tile3[0]",
    "program dependent": "tile3[program]",
    "data dependent": 'tile3[T.Cast("int32", tile0[columns])]',
}


@pytest.mark.parametrize("name", STORAGE)
def test_storage_conditions(name):
    reason, edits = STORAGE[name]
    found = raw.admission(raw.edited(raw.exported("softmax"), *edits))
    raw.assert_only_declines(found, ROW, reason)


@pytest.mark.parametrize("name", ACCESSES)
@pytest.mark.parametrize("place", [SOFT_STORE, SUM_UPDATE])
def test_every_access_must_be_the_owners(name, place):
    text = raw.edited(
        raw.exported("softmax"), (place, place.replace("tile3[columns]", ACCESSES[name]))
    )
    raw.assert_only_declines(raw.admission(text), ROW, "not proved to be the worker's own")


def test_a_padded_buffer_declines_for_its_stride():
    text = raw.edited(
        raw.exported("softmax"),
        (TILE3, 'tile3 = T.alloc_buffer((70,), strides=(2,), scope="local")'),
    )
    found = {row.name: row.verdict for row in raw.admission(text).rows}
    # Padding is also a manual placement: both rows say so, and nothing else.
    assert "not compact" in found[ROW].reason and "not compact" in found["manual resources"].reason
    assert {n for n, v in found.items() if not v.proven} == {ROW, "manual resources"}


def test_a_second_allocation_declines():
    """Built as TIRx: TVMScript gives every allocation a buffer of its own."""
    from tvm_tilex.analysis.admission import admit
    from tvm_tilex.analysis.structure import statements_of
    from tvm_tilex.tirx.compat import tirx
    from tvm_tilex.transform.common import sequence, with_body

    function = raw.function_of(raw.parse(raw.exported("softmax")))
    body = statements_of(function.body.body)
    again = [s for s in body if isinstance(s, tirx.AllocBuffer) and s.buffer.name == "tile3"]
    changed = function.with_body(with_body(function.body, sequence(*again, *body)))
    raw.assert_only_declines(admit(changed, lanes=32, kind="metal"), ROW, "2 allocations")


ESCAPES = {
    "address": 'T.call_pure_extern("float32", "f", T.address_of(tile3[columns]))',
    "pointer": 'T.call_pure_extern("float32", "f", tile3.data)',
}


@pytest.mark.parametrize("name", ESCAPES)
def test_an_escaping_pointer_declines(name):
    text = raw.edited(
        raw.exported("softmax"), (SOFT_STORE, SOFT_STORE.replace("tile3[columns]", ESCAPES[name]))
    )
    found = {row.name: row.verdict for row in raw.admission(text).rows}
    assert {n for n, v in found.items() if not v.proven} == {"contribution", ROW}
    assert "escapes" in found[ROW].reason


def test_a_row_major_tile_may_be_read_linearly():
    """Equality of coordinates is proved, not compared as text."""
    text = raw.edited(
        raw.exported("softmax"),
        (
            DOMAIN + I16 + SOFT_STORE,
            "for a, b in T.grid(7, 10):"
            + I16
            + "output[program, a * 10 + b] = tile3[a * 10 + b] / carry4[0]",
        ),
    )
    found = {row.name: row.verdict for row in raw.admission(text).rows}
    assert found[ROW].proven
    # Only the address of the output leaves the fragment of the injectivity check.
    assert {n for n, v in found.items() if not v.proven} == {"global effects"}


@tx.tile_kernel
def derived_gather(
    logits: tx.TensorView[tx.float32, 2],
    labels: tx.TensorView[tx.int64, 1],
    out: tx.TensorView[tx.float32, 1, tx.Out],
):
    """Gathers from computed logits: a private value of another worker."""
    rows, one = tx.axis("rows", logits.extent(0)), tx.axis("one", 1)
    columns = tx.axis("columns", logits.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        row = logits[tx.coord(nest.index(), 0), tx.shape(one, columns)]
        scaled = tx.exp(row)
        label = labels[tx.coord(nest.index()), tx.shape(one)]
        total = tx.reduce(scaled, columns, tx.add)
        out(tx.coord(nest.index()), tx.shape(one)).store(tx.gather(scaled, label, columns) / total)


def test_gathering_derived_logits_declines_and_stays_right():
    shapes = (5, 70), tx.spec((5,), "int64"), (5,)
    artifact = tx.compile(derived_gather, *shapes, target="metal")
    assert artifact.plan is None and artifact.fallback.startswith(ROW)
    with pytest.raises(MappingError, match=ROW):
        tx.compile(
            derived_gather, *shapes, target="metal", options=CompileOptions(threads_per_group=64)
        )
    x = np.random.default_rng(0).normal(size=(5, 70)).astype(np.float32)
    labels = np.array([0, 69, 31, -1, 70])
    out = np.full(5, np.nan, np.float32)
    artifact(x, labels, out)
    e = np.exp(x.astype(np.float64))
    wanted = [e[r, c] / e[r].sum() if 0 <= c < 70 else 0 for r, c in enumerate(labels)]
    np.testing.assert_allclose(out, wanted, rtol=2e-6)
