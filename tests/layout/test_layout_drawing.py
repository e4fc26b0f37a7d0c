"""What a picture shows: cell text of known layouts, bank conflicts against a count by hand."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tilex.errors import LayoutError, OptionError
from tvm_tilex.layout import IndexSet, index_map, lt, parameter, parse_map
from tvm_tilex.layout.atoms import MMA_M16N8K16_F16_F32
from tvm_tilex.layout.cute_layout import parse_cute_layout
from tvm_tilex.layout.drawing import Banks, bank_conflicts, draw, grid_of, save
from tvm_tilex.tools.layout_command import layout

SVG = "{http://www.w3.org/2000/svg}"


def run(*arguments):
    return CliRunner().invoke(layout, [str(a) for a in arguments])


def cells_of(path):
    """(row, column) -> the lines of text of that cell, as they stand in the SVG."""
    found: dict[tuple[int, int], list[str]] = {}
    for group in ElementTree.parse(path).iter(f"{SVG}g"):
        name = group.get("id", "")
        if not name.startswith("cell-"):
            continue
        row, column, *_ = (int(part) for part in name.split("-")[1:])
        (text,) = group.iter(f"{SVG}text")
        found.setdefault((row, column), []).append(text.text)
    return found


def words_of(path):
    return [t.text for t in ElementTree.parse(path).iter(f"{SVG}text")]


@pytest.fixture
def drawn(tmp_path):
    """Run the command with --svg and return its cells and all its words."""
    pytest.importorskip("matplotlib")

    def draw_it(*arguments):
        path = tmp_path / "picture.svg"
        result = run(*arguments, "--svg", path, "--rows", 0)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == f"drawn: {path}"
        return cells_of(path), words_of(path)

    return draw_it


# -- cell text of known layouts ----------------------------------------------------------------


def test_a_memory_layout_shows_its_indices(drawn):
    cells, words = drawn("(4,(2,2)):(2,(1,8))")
    assert [[cells[r, c] for c in range(4)] for r in range(4)] == [
        [["0"], ["1"], ["8"], ["9"]],
        [["2"], ["3"], ["10"], ["11"]],
        [["4"], ["5"], ["12"], ["13"]],
        [["6"], ["7"], ["14"], ["15"]],
    ]
    assert "(4,(2,2)):(2,(1,8))" in words  # the title
    assert (
        "index" in words
        and "i0 \N{DOWNWARDS ARROW}" in words
        and "i1 \N{RIGHTWARDS ARROW}" in words
    )


def test_one_axis_is_wrapped(drawn):
    cells, words = drawn("40:3")
    assert len(cells) == 40 and cells[0, 31] == ["93"] and cells[1, 7] == ["117"]
    assert "+31" in words and "32" in words


# The corners and one inner element of A and C as the figures of the PTX ISA show them.
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("A", "0,0 T0 V0; 0,8 T0 V4; 8,0 T0 V2; 15,15 T31 V7; 3,5 T14 V1"),
        ("C", "0,0 T0 V0; 7,7 T31 V1; 8,0 T0 V2; 15,7 T31 V3; 3,5 T14 V1"),
    ],
)
def test_a_thread_value_layout_shows_who_holds_what(drawn, name, known):
    operand = MMA_M16N8K16_F16_F32.operands[name]
    cells, words = drawn(str(operand.map))
    assert len(cells) == operand.shape[0] * operand.shape[1]
    for entry in known.split("; "):
        place, *labels = entry.split()
        assert cells[tuple(map(int, place.split(",")))] == labels
    assert {"threads", "values", "T0", "T28", "V0"} <= set(words)


def test_an_atom_s_operand_by_name(drawn):
    cells, words = drawn("mma_m16n8k16_bf16_f32.C")
    assert cells == drawn(str(MMA_M16N8K16_F16_F32.operands["C"].map))[0]
    assert "mma_m16n8k16_bf16_f32.C" in words


def test_cute_s_thread_value_layout_folds_its_index(drawn):
    theirs, _ = drawn("((4,8),(2,2)):((32,1),(16,8))", "--threads", "i0", "--tile", "16x8")
    ours, _ = drawn(str(MMA_M16N8K16_F16_F32.operands["C"].map))
    assert theirs == ours


TRITON = '{"register": [[0,1],[8,0]], "lane": [[0,2],[0,4],[1,0],[2,0],[4,0]]}'


def test_triton(drawn):
    cells, words = drawn(TRITON)
    ours, _ = drawn(str(MMA_M16N8K16_F16_F32.operands["C"].map))
    assert cells == ours
    assert any(word.startswith('{"register"') for word in words)


def test_tilelang(drawn):
    cells, _ = drawn("[16, 8] -> (i % 8 * 4 + j // 2, i // 8 * 2 + j % 2)")
    ours, _ = drawn(str(MMA_M16N8K16_F16_F32.operands["C"].map))
    assert cells == ours


def test_tvm_with_replicas_counts_the_copies(drawn):
    cells, _ = drawn("S[(8, 4):(4@laneid, 1)] + R[4:1@warpid] + 2@warpid")
    assert len(cells) == 32
    assert cells[0, 0] == ["L0 W2", "V0", "+3"] and cells[7, 3] == ["L28 W2", "V3", "+3"]


def test_cute_swizzles(drawn):
    cells, _ = drawn("S<3,0,3> o (8,8):(8,1)")
    assert [cells[1, c] for c in range(8)] == [[str(8 + (c ^ 1))] for c in range(8)]
    assert cells == drawn("S<3,0,3> o 0 o (_8,_8):(_8,_1)")[0]


def test_several_warps_and_threads_on_request(drawn):
    cells, _ = drawn('{"register": [[0,1]], "lane": [[0,2],[0,4]], "warp": [[1,0]]}')
    assert cells[0, 5] == ["L2 W0", "V1"] and cells[1, 0] == ["L0 W1", "V0"]
    cells, _ = drawn("mixed_radix({lane: 4, s: 2} -> {index: 8}, (4,2):(2,1))", "--threads", "")
    assert cells[3, 1] == ["7"]


def test_guards_leave_cells_out_and_refusals_are_marked(drawn):
    cells, _ = drawn("index_expr({i: 3, j: 4 | i + j < 4} -> {x: 12}, [i * 4 + j])")
    assert (1, 2) in cells and (1, 3) not in cells and len(cells) == 9
    cells, _ = drawn("index_expr({i: 3} -> {x: 9}, [8 // i])")
    assert cells == {(0, 0): ["!"], (0, 1): ["8"], (0, 2): ["4"]}


def test_compose_and_inverse(drawn):
    cells, words = drawn("(4,8):(8,1)", "--compose", "(8,4):(4,1)")
    # (8,4):(4,1) gives 4*i + j; (4,8):(8,1) reads it first mode fastest.
    assert cells[5, 2] == [str((22 % 4) * 8 + 22 // 4)]
    assert "(4,8):(8,1) o (8,4):(4,1)" in words
    cells, words = drawn("(4,8):(8,1)", "--inverse")
    assert cells[0, 9] == ["1,1"] and "inverse of (4,8):(8,1)" in words


# -- bank conflicts ----------------------------------------------------------------------------

ROWS, PADDED = "(32,32):(32,1)", "(32,32):(33,1)"
HALVES, SWIZZLED = "(8,64):(64,1)", "S<3,3,3> o 0 o (8,64):(64,1)"


@pytest.mark.parametrize(
    ("text", "banks", "along", "worst", "cycles", "phases"),
    [
        (ROWS, Banks(4, 4), "i0", 32, 1024, 32),  # a column of a row-major matrix
        (ROWS, Banks(4, 4), "i1", 1, 32, 32),  # a row
        (PADDED, Banks(4, 4), "i0", 1, 32, 32),  # one word of padding
        (HALVES, Banks(16, 2), "i0", 8, 64, 8),  # eight rows of 128 bytes
        (SWIZZLED, Banks(16, 2), "i0", 1, 8, 8),
        ("(32,4):(4,1)", Banks(16, 4), "i0", 1, 4, 4),  # 16 bytes a thread, one after the other
        ("(32,2):(2,1)", Banks(8, 4), "i0", 1, 2, 2),
        ("(32,2):(4,1)", Banks(8, 4), "i0", 2, 4, 2),  # every second 8 bytes
        ("32:0", Banks(4, 4), "i0", 1, 1, 1),  # one word for all: a broadcast
        ("32:1", Banks(2, 2), "i0", 1, 1, 1),  # two neighbours share a word
        ("32:2", Banks(2, 2), "i0", 1, 1, 1),
        ("32:64", Banks(4, 4), "i0", 32, 32, 1),
        ("64:16", Banks(4, 4), "i0", 16, 32, 2),
        ("32:1", Banks(8, 8), "i0", 1, 2, 2),
        ("32:33", Banks(4, 4, count=16), "i0", 1, 2, 2),
    ],
)
def test_known_conflicts(text, banks, along, worst, cycles, phases):
    report = bank_conflicts(parse_cute_layout(text).to_map(), banks, along)
    assert (report.worst, report.cycles, len(report.phases)) == (worst, cycles, phases)
    assert report.conflicts == cycles - phases
    assert ("none" in str(report)) == (worst == 1)
    assert bool(report.worst_phase.crowded) == (worst > 1)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 40), st.sampled_from([1, 2, 4]), st.integers(0, 40),
    st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
def test_conflicts_against_a_count_of_bytes(threads, elements, stride, size):
    if elements * size > 16:
        return
    step = stride * elements  # keeps every access aligned
    shape, strides = f"({threads},{elements})", f"({step},1)"
    report = bank_conflicts(parse_map(f"{shape}:{strides}"), Banks(elements * size, size), "i0")
    together = 128 // max(elements * size, 4)
    cycles = 0
    for group in range(0, threads, 32):
        lanes = list(range(group, min(group + 32, threads)))
        for first in range(0, len(lanes), together):
            wanted: dict[int, set[int]] = {}
            for lane in lanes[first : first + together]:
                start = lane * step * size
                for byte in range(start, start + elements * size):
                    wanted.setdefault(byte // 4 % 32, set()).add(byte // 4)
            cycles += max(len(words) for words in wanted.values())
    assert report.cycles == cycles


def test_an_access_that_does_not_exist_is_refused():
    cases = (
        ("(8,8):(1,8)", Banks(16, 4), "are no aligned run"),
        ("(8,8):(9,1)", Banks(16, 4), "are no aligned run"),
        ("(8,6):(6,1)", Banks(16, 4), "is no whole number of accesses of 4 elements"),
        ("(4,4):(4@a,1@b)", Banks(4, 4), "from coordinates to one index"),
        ("(1024,1024):(1024,1)", Banks(4, 4), "at most 65536 points"),
    )
    for text, banks, message in cases:
        with pytest.raises(LayoutError, match=message):
            bank_conflicts(parse_map(text), banks)
    with pytest.raises(LayoutError, match="'z' is not an axis"):
        bank_conflicts(parse_map("8:1"), Banks(4, 4), "z")
    for sizes, message in (
        ((6, 4), "no whole number"),
        ((0, 4), "access_bytes=0 is not positive"),
        ((256, 4), "exceeds the row of 128 bytes"),
    ):
        with pytest.raises(LayoutError, match=message):
            Banks(*sizes)


def test_a_ragged_end_has_fewer_threads():
    ragged = index_map(
        IndexSet.box(i=64).where(lambda i: lt(i, 40)), IndexSet.box(x=2048), lambda i: i * 32
    )
    report = bank_conflicts(ragged, Banks(4, 4))
    assert [phase.cycles for phase in report.phases] == [32, 8]


def test_conflicts_in_text_and_picture(drawn):
    wide = ("--bank-conflicts", "--access-bytes", 16, "--element-bytes", 2)
    shown = run(HALVES, *wide, "--rows", 0).stdout.splitlines()[-1]
    assert shown == (
        "bank conflicts: 8-way at worst, 64 cycles for 8 phases"
        " (16-byte accesses along i0, 8 threads a phase)"
    )
    cells, words = drawn(HALVES, *wide)
    assert cells[1, 3] == ["67", "b1"] and cells[0, 63] == ["63", "b31"]
    assert "worst phase" in words and any(
        word.startswith("bank conflicts: 8-way") for word in words
    )
    cells, words = drawn(SWIZZLED, *wide)
    assert cells[1, 3] == ["75", "b5"]
    assert any(word.startswith("bank conflicts: none") for word in words)
    assert "one phase" in words and "worst phase" not in words


# -- command and library -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("(4,8):(8,1)", "--compose", "(4,8):(16,1)"), 1, "composition past the domain"),
        (("(4,8):(8,1)", "--compose", "(4"), 2, "unexpected input"),
        (("(4,2):(1,1)", "--inverse"), 1, None),
        (("S[(8, 4):(4@laneid, 1)", "--rows", "0"), 2, "tvm"),
        (("mma_m16n8k16_f16_f32.E",), 2, "no instruction atom's operand"),
        (("{'register': 3}", "--from", "triton"), 2, "triton"),
        (("8:1", "--bank-conflicts"), 2, "--bank-conflicts needs --access-bytes"),
        (("8:1", "--bank-conflicts", "--access-bytes", "4"), 2, "needs --element-bytes"),
        (("8:1", "--bank-conflicts", "--access-bytes", "6", "--element-bytes", "4"), 2, "no whole"),
        (("8:1", "--tile", "8"), 2, "is not ROWSxCOLUMNS"),
        (("8:1", "--svg", "x.svg", "--threads", "q"), 1, "'q' is no axis"),
        (("(128,64):(64,1)", "--rows", "0", "--png", "x.png"), 1, "restrict the domain"),
    ],
)  # fmt: skip
def test_refusals_have_exit_codes_and_one_line(arguments, code, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert result.exit_code == code
    if message is not None:
        assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_inverse_says_why_there_is_none():
    assert run("(4,2):(1,1)", "--inverse").stdout.startswith("inverse: DISPROVEN (injectivity")
    hard = run("index_expr({i: 5, j: 7} -> {x: 120}, [i * i * 7 + j])", "--inverse", "--budget", 0)
    assert hard.exit_code == 1 and hard.stdout.startswith("inverse: ")


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OptionError, match=r"pip install 'tvm-tilex\[viz\]'"):
        draw(parse_map("8:1"))
    result = run("8:1", "--svg", tmp_path / "x.svg")
    assert isinstance(result.exception, OptionError)


def test_drawing_imports_matplotlib_only_to_draw():
    script = (
        "import sys, tvm_tilex.layout.drawing, tvm_tilex.tools.layout_command\n"
        "raise SystemExit('matplotlib' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_pictures_are_reproducible_and_of_the_asked_kind(tmp_path):
    pytest.importorskip("matplotlib")
    map = parse_map("(4,4):(4,1)")
    for name in ("a.svg", "b.svg", "a.png"):
        save(draw(map, subtitle="rows"), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused():
    symbolic = index_map(IndexSet.box(i=parameter("n", 1, 8)), IndexSet.box(x=8), lambda i: i)
    with pytest.raises(LayoutError, match="needs a static domain"):
        grid_of(symbolic)
    with pytest.raises(LayoutError, match="at most 4096"):
        grid_of(parse_map("(65,64):(64,1)"))
    with pytest.raises(LayoutError, match="folds one linear index"):
        grid_of(parse_map("(4,2):(2@m,1@k)"), threads=("i0",), tile=(8, 1))
    with pytest.raises(LayoutError, match="index 4 is outside the 2x2 tile"):
        grid_of(parse_map("(4,2):(2,1)"), threads=("i0",), tile=(2, 2))
