"""VectorizeDomains: independent element loops become vectors, everything else stays a loop."""

import pytest
import tvm

from tvm_tilex.transform import VectorizeDomains

ROOT = 'for program in T.parallel(8, annotations={"tilex.parallel": 0}):\n'


def domain(statement, extent=70, before=""):
    return (
        ROOT
        + before
        + f'    for e in T.serial({extent}, annotations={{"tilex.domain": 1}}):\n'
        + f"        {statement}\n"
    )


def test_the_last_vector_repeats_some_elements(function, check):
    before = function(domain("out[program, e] = x[program, e] * T.float32(2)"))
    after = function(
        ROOT
        + """
    for chunk in range(4):
        for lane in T.vectorized(16):
            out[program, chunk * 16 + lane] = x[program, chunk * 16 + lane] * T.float32(2)
    for lane in T.vectorized(16):
        out[program, 54 + lane] = x[program, 54 + lane] * T.float32(2)
""",
        stage="scheduled",
    )
    check(VectorizeDomains(), before, after)


def test_elements_that_read_their_buffer_run_once(function, check):
    before = function(domain("out[program, e] = out[program, e] * T.float32(2)"))
    after = function(
        ROOT
        + """
    for chunk in range(4):
        for lane in T.vectorized(16):
            out[program, chunk * 16 + lane] = out[program, chunk * 16 + lane] * T.float32(2)
    for e in range(6):
        out[program, e + 64] = out[program, e + 64] * T.float32(2)
""",
        stage="scheduled",
    )
    check(VectorizeDomains(), before, after)


def test_arguments_that_may_overlap_are_stored_once(function):
    before = function(domain("out[program, e] = x[program, e] * T.float32(2)"))
    before = before.without_attr("tirx.noalias")
    after = VectorizeDomains()(tvm.IRModule({"kernel": before}))["kernel"].script()
    assert "for e in range(6)" in after and after.count("T.vectorized(16)") == 1


def test_a_short_domain_takes_fewer_lanes_and_no_tail(function, check):
    before = function(domain("out[program, e] = x[program, e]", extent=8))
    after = function(
        ROOT
        + """
    for chunk in range(1):
        for lane in T.vectorized(8):
            out[program, chunk * 8 + lane] = x[program, chunk * 8 + lane]
""",
        stage="scheduled",
    )
    check(VectorizeDomains(), before, after)


def test_the_innermost_of_nested_loops(function, check):
    before = function(
        ROOT
        + """
    for a in T.serial(3, annotations={"tilex.domain": 2}):
        for b in T.serial(32):
            out[a, b] = x[a, b]
"""
    )
    after = function(
        ROOT
        + """
    for a in range(3):
        for chunk in range(2):
            for lane in T.vectorized(16):
                out[a, chunk * 16 + lane] = x[a, chunk * 16 + lane]
""",
        stage="scheduled",
    )
    check(VectorizeDomains(), before, after)


def test_reading_the_stored_element_itself_is_fine(function, check):
    before = function(domain("out[program, e] = out[program, e] + x[program, e]", extent=16))
    after = function(
        ROOT
        + """
    for chunk in range(1):
        for lane in T.vectorized(16):
            out[program, chunk * 16 + lane] = (
                out[program, chunk * 16 + lane] + x[program, chunk * 16 + lane]
            )
""",
        stage="scheduled",
    )
    check(VectorizeDomains(), before, after)


UNCHANGED = {
    "reads the next element": domain("out[program, e] = out[program, e + 1]", extent=69),
    "reads one element": domain("out[program, e] = out[program, 0]"),
    "lazy selection": domain(
        "out[program, e] = T.if_then_else(e < 60, x[program, e], T.float32(0))"
    ),
    "an effect": domain('out[program, e] = T.call_extern("float32", "read_clock")'),
    "element on the rows": domain("out[e, 0] = x[e, 0]", extent=8),
    "shifted store": domain("out[program, e + 1] = x[program, e]", extent=69),
    "diagonal store": domain("out[e, e] = x[e, e]", extent=8),
    "a condition": domain("if e < 60:\n            out[program, e] = x[program, e]"),
    "two stores": domain(
        "out[program, e] = x[program, e]\n        out[program, e] = x[program, e + 1]", extent=69
    ),
    "three elements": domain("out[program, e] = x[program, e]", extent=3),
    "not marked": ROOT + "    for e in range(70):\n        out[program, e] = x[program, e]\n",
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_what_may_not_be_independent_stays(function, check, case):
    before = function(UNCHANGED[case])
    check(VectorizeDomains(), before, function(UNCHANGED[case], stage="scheduled"))
