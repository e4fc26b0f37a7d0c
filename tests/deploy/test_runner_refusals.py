"""Whatever the runner cannot read or was not told, it refuses in one line with exit code 2."""

import io

import numpy as np
import pytest


def npy(array, version=(1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


def raw(header: str, payload: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + payload


PLAIN = npy(np.zeros((2, 3), np.float32))
RECORD = np.zeros(2, [("a", "f4"), ("b", "i4")])
SHAPE = "{'descr': '<f4', 'fortran_order': False, 'shape': %s}"

FILES = {
    "big-endian": (npy(np.zeros((2, 3), ">f4")), "element type '>f4' is not supported"),
    "complex": (npy(np.zeros((2, 3), "c8")), "element type '<c8' is not supported"),
    "uint64": (npy(np.zeros((2, 3), "u8")), "element type '<u8' is not supported"),
    "text": (npy(np.zeros((2, 3), "U4")), "element type '<U4' is not supported"),
    "opaque": (npy(np.zeros((2, 3), "V2")), "element type '|V2' is not supported"),
    "record": (npy(RECORD), "structured element types are not supported"),
    "fortran": (npy(np.zeros((2, 3), np.float32, order="F")), "Fortran order is not supported"),
    "format 3": (npy(np.zeros((2, 3), "f4"), (3, 0)), ".npy format 3.0 is not supported"),
    "format 1.1": (PLAIN[:7] + b"\x01" + PLAIN[8:], ".npy format 1.1 is not supported"),
    "empty": (b"", "truncated"),
    "zip": (b"PK\x03\x04" + PLAIN, "not a .npy file"),
    "cut header": (PLAIN[:40], "truncated"),
    "cut data": (PLAIN[:-1], "holds 23 bytes of data, not the 24 of its header"),
    "more data": (PLAIN + b"\0", "holds 25 bytes of data, not the 24 of its header"),
    "no shape": (raw("{'descr': '<f4', 'fortran_order': False}"), "needs the keys"),
    "strange key": (raw("{'descr': '<f4', 'order': False}"), "unexpected key 'order'"),
    "key of two lines": (raw("{'shape\n': (4,)}"), "unexpected key 'shape?'"),
    "twice": (raw("{'descr': '<f4', 'descr': '<f4'}"), "unexpected key 'descr'"),
    "negative": (raw(SHAPE % "(-1,)"), "malformed header"),
    "no tuple": (raw(SHAPE % "4"), "malformed header"),
    "no dictionary": (raw("[]"), "malformed header"),
    "after it": (raw(SHAPE % "(0,)" + "x"), "malformed header"),
    "NUL after it": (raw(SHAPE % "(0,)" + "\0"), "malformed header"),
    "large extent": (raw(SHAPE % "(99999999999999999999,)"), "an extent passes 2^63 - 1"),
    "large array": (raw(SHAPE % "(4294967296, 4294967296)"), "more than 2^63 - 1 bytes"),
    "large claim": (raw(SHAPE % "(1099511627776,)"), "holds 0 bytes of data"),
}


def assert_refused(ran, message):
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("tilex_run: ") and ran.stderr.count("\n") == 1, ran.stderr
    assert message in ran.stderr


@pytest.mark.parametrize("name", FILES)
def test_file(runner, tmp_path, name):
    content, message = FILES[name]
    (tmp_path / "x.npy").write_bytes(content)
    ran = runner.run("lib.so", "f", "--input", "x.npy", cwd=tmp_path)
    assert_refused(ran, message)
    assert "x.npy: " in ran.stderr


def test_bfloat16_saved_without_its_name_says_how_to_save_it(runner, tmp_path):
    import ml_dtypes

    np.save(tmp_path / "x.npy", np.zeros(3, ml_dtypes.bfloat16))
    ran = runner.run("lib.so", "f", "--input", "x.npy", cwd=tmp_path)
    assert_refused(ran, "save bfloat16 as its bits, array.view(numpy.uint16)")


@pytest.mark.parametrize(
    ("header", "shape"),
    [("(2, 3)", (2, 3)), ("(2, 3,)", (2, 3)), ("(6,)", (6,)), ("( 6 , )", (6,))],
)
def test_headers_that_numpy_reads_are_read(runner, tmp_path, header, shape):
    content = raw(SHAPE % header, np.arange(6, dtype=np.float32).tobytes())
    (tmp_path / "x.npy").write_bytes(content)
    assert np.load(tmp_path / "x.npy").shape == shape
    ran = runner.run("lib.so", "f", "--input", "x.npy", cwd=tmp_path)
    assert_refused(ran, "lib.so: no such file")  # past the reader


def test_format_2_round_trips(runner, tmp_path):
    case = runner.case("softmax")
    x = np.load(case / "input.npy")
    (tmp_path / "x.npy").write_bytes(npy(x, (2, 0)))
    words = ("--input", tmp_path / "x.npy", "--write", tmp_path / "y.npy", "--output-like")
    ran = runner.run("softmax.so", "softmax", *words, "input.npy", cwd=case)
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), x)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "needs LIBRARY and FUNCTION"),
        ("lib.so", "needs LIBRARY and FUNCTION"),
        ("--list", "--list needs LIBRARY"),
        ("lib.so f --list", "--list takes a LIBRARY and nothing else"),
        ("lib.so --list", "lib.so: no such file"),
        ("lib.so f", "needs at least one argument"),
        ("lib.so f g --input x", "unexpected word 'g'"),
        ("lib.so f --inputs x", "unknown option '--inputs'"),
        ("lib.so f --input", "--input needs a value"),
        ("lib.so f --input --output float32:3", "--input needs a value"),
        ("lib.so f --expect x --input y", "--expect comes before any argument"),
        ("lib.so f --input x --rtol 1", "a tolerance without --expect for 'x'"),
        ("lib.so f --input x --expect y --rtol -1", "--rtol is '-1', not a finite number"),
        ("lib.so f --input x --expect y --atol nan", "--atol is 'nan', not a finite number"),
        ("lib.so f --input x --expect y --atol 1e", "--atol is '1e', not a finite number"),
        ("lib.so f --input x --expect y --expect z", "--expect is given twice"),
        ("lib.so f --output float8:3", "output 'float8:3' is not TYPE:SHAPE"),
        ("lib.so f --output 3x4", "output '3x4' is not TYPE:SHAPE"),
        ("lib.so f --output float32:3x", "not integers joined by x"),
        ("lib.so f --output float32:-3", "not integers joined by x"),
        ("lib.so f --output uint8:9000000000000000000", "no memory for an array of 9000000"),
        ("lib.so f --output float32:9223372036854775807", "more than 2^63 - 1 bytes"),
        ("lib.so f --output float32:3 --offset-bytes 2", "splits the elements of float32 3"),
        ("lib.so f --output float32:3 --offset-bytes -4", "--offset-bytes is '-4'"),
        ("lib.so f --input absent.npy", "absent.npy: cannot be read: No such file"),
        ("lib.so f --input .", ".: is a directory"),
        ("@absent.txt", "absent.txt: cannot be read"),
        ("lib.so f --output float32:3", "lib.so: no such file"),
    ],
)
def test_command_line(runner, tmp_path, words, message):
    assert_refused(runner.run(*words.split(), cwd=tmp_path), message)


def test_output_that_cannot_be_written(runner):
    words = ("--input", "input.npy", "--output-like", "input.npy", "--write", "absent/y.npy")
    ran = runner.run("softmax.so", "softmax", *words, cwd=runner.case("softmax"))
    assert_refused(ran, "absent/y.npy: cannot be written: No such file or directory")


def test_help_names_every_option(runner):
    ran = runner.run("--help")
    assert ran.returncode == 0 and ran.stderr == ""
    for option in ("input", "output", "output-like", "expect", "rtol", "atol", "write", "list"):
        assert f"--{option} " in ran.stdout
