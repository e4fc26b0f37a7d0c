"""The reduction mapper's maps: coverage, inverse, private bound, packed tail, unflattening."""

# ruff: noqa: B023 -- index_map runs its function at once, inside the iteration that defines it

from math import gcd

import pytest

from tvm_tilex.layout import (
    DISPROVEN,
    PROVEN,
    Identity,
    IndexSet,
    alignment,
    choose,
    compose,
    contiguity,
    equal_maps,
    flatten,
    index_map,
    lt,
    parameter,
    prove,
    require_proven,
    unflatten,
    verify_inverse,
)

LANES = (1, 2, 4, 8)
WIDTHS = (1, 31, 257, 4095, 50257)


def execution_map(s, v, n):
    w = 32 * s
    box = IndexSet.box(chunk=-(-n // (w * v)), w=w, v=v)
    domain = box.where(lambda chunk, w_, v_: lt((w * chunk + w_) * v + v_, n))
    return index_map(domain, IndexSet.box(e=n), lambda chunk, w_, v_: (w * chunk + w_) * v + v_)


@pytest.mark.parametrize("s", range(1, 33))
def test_execution_map_is_a_bijection_at_budget_zero(s):
    for v in LANES:
        for n in WIDTHS:
            proof = prove(execution_map(s, v, n), budget=0)
            assert proof.all_proven, (s, v, n, proof)
            require_proven(execution_map(s, v, n), budget=0)


@pytest.mark.parametrize("s", range(1, 33))
def test_inverse_of_the_execution_map(s):
    w = 32 * s
    for v in LANES:
        for n in WIDTHS:
            f = execution_map(s, v, n)
            g = index_map(f.codomain, f.domain, lambda e: (e // (w * v), e // v % w, e % v))
            assert verify_inverse(f, g, budget=0).proven, (s, v, n)
            if n > 1 and v > 1:
                wrong = index_map(f.codomain, f.domain, lambda e: (e // (w * v), e // v % w, 0))
                assert not verify_inverse(f, wrong, budget=0).proven


@pytest.mark.parametrize("s", range(1, 33))
def test_private_bound_is_proved_and_tight(s):
    w = 32 * s
    for v in LANES:
        for n in WIDTHS:
            domain = execution_map(s, v, n).domain
            bound = n // (w * v) * v + min(n % (w * v), v)
            slots = IndexSet.box(slot=bound)
            slot = index_map(domain, slots, lambda chunk, w_, v_: chunk * v + v_)
            proof = prove(slot, budget=0)
            assert proof.totality.proven and proof.bounds.proven, (s, v, n, proof)
            # Tight: every slot below the bound is used by worker 0.
            user = index_map(slots, domain, lambda i: (i // v, 0, i % v))
            used = prove(user, budget=0)
            assert used.totality.proven and used.bounds.proven, (s, v, n, used)
            assert equal_maps(compose(slot, user), Identity(slots), budget=0).proven
            if bound > 1:
                short = index_map(
                    domain, IndexSet.box(slot=bound - 1), lambda c, w_, v_: c * v + v_
                )
                assert prove(short, budget=0).bounds.kind is not PROVEN


@pytest.mark.parametrize("s", range(1, 33))
def test_alignment_and_contiguity_are_answered(s):
    for v in LANES:
        for n in WIDTHS:
            f = execution_map(s, v, n)
            run = contiguity(f, "v", budget=0)
            assert run.verdict.kind is PROVEN
            # A ragged tail cuts the last pack unless V divides N.
            assert run.value == gcd(v, n)
            aligned = alignment(f, budget=0)
            assert aligned.verdict.kind is PROVEN
            assert aligned.value == (0 if n == 1 else 1)


def test_full_packs_are_whole_vectors_although_the_tail_is_ragged():
    w, v, n = 96, 8, 50257
    box = IndexSet.box(chunk=-(-n // (w * v)), w=w, v=v)
    full = box.where(lambda chunk, w_, v_: lt((w * chunk + w_) * v + 7, n))
    f = index_map(full, IndexSet.box(e=n), lambda chunk, w_, v_: (w * chunk + w_) * v + v_)
    assert contiguity(f, "v", budget=0).value == 8
    starts = index_map(
        IndexSet.box(chunk=8, w=w),
        IndexSet.box(e=8 * w * v),
        lambda chunk, w_: (w * chunk + w_) * v,
    )
    assert alignment(starts, budget=0).value == 8


@pytest.mark.parametrize(("p", "q"), [(17, 8), (16, 8), (1, 4), (5, 3), (1, 1), (50257, 8)])
def test_packed_tail_clamps_loads_and_guards_stores(p, q):
    groups = -(-p // q)
    domain, rows = IndexSet.box(block=groups, q=q), IndexSet.box(p=p)
    load = index_map(domain, rows, lambda b, i: choose(lt(b * q + i, p), b * q + i, p - 1))
    proof = prove(load, budget=0)
    assert proof.totality.proven and proof.bounds.proven and proof.surjectivity.proven
    # The clamp is many-to-one exactly where the last group is partial.
    assert proof.injectivity.kind is (DISPROVEN if groups * q > p else PROVEN)
    store = index_map(domain.where(lambda b, i: lt(b * q + i, p)), rows, lambda b, i: b * q + i)
    assert prove(store, budget=0).all_proven
    for b in range(groups) if groups < 10 else ():
        for i in range(q):
            assert load(b, i) == min(b * q + i, p - 1)


def test_unflattening_to_named_axes_and_back():
    axes = IndexSet.box(batch=3, row=7, column=10)
    back, forth = flatten(axes), unflatten(axes)
    assert prove(forth, budget=0).all_proven and prove(back, budget=0).all_proven
    assert verify_inverse(back, forth, budget=0).proven
    assert forth(3 * 70 - 1) == (2, 6, 9) and forth(71) == (1, 0, 1)
    ragged = execution_map(3, 4, 210)
    placed = compose(forth, ragged)
    assert prove(placed, budget=0).all_proven
    # The same digits in the wrong order are not an inverse.
    assert verify_inverse(flatten(axes, first_fastest=True), forth, budget=0).disproven


def test_symbolic_width_within_the_chunks():
    n = parameter("n", 1, 50257)
    w, v, chunks = 320, 4, -(-50257 // 1280)
    box = IndexSet.box({"chunk": chunks, "w": w, "v": v}, parameters=[n])
    domain = box.where(lambda chunk, w_, v_: lt((w * chunk + w_) * v + v_, n))
    f = index_map(domain, IndexSet.box(e=n), lambda chunk, w_, v_: (w * chunk + w_) * v + v_)
    assert prove(f, budget=0).all_proven
    beyond = parameter("n", 1, chunks * w * v + 1)
    domain = IndexSet.box({"chunk": chunks, "w": w, "v": v}, parameters=[beyond]).where(
        lambda chunk, w_, v_: lt((w * chunk + w_) * v + v_, beyond)
    )
    g = index_map(domain, IndexSet.box(e=beyond), lambda c, w_, v_: (w * c + w_) * v + v_)
    assert prove(g, budget=0).surjectivity.kind is not PROVEN
