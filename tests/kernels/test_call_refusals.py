"""Calls that do not fit are refused by name at the caller's line, before anything runs."""

import inspect
import re

import numpy as np
import pytest
import torch

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, DTypeError, ShapeError, TilexError


def squares(modulus, side=4):
    return (np.arange(side * side) ** 2 % modulus).astype(np.float32).reshape(side, side)


OUT = np.zeros((4, 4), np.float32)


@pytest.mark.parametrize(
    ("arrays", "error", "text"),
    [
        ((squares(7),), ArgumentError, "takes 2"),
        ((squares(7), OUT, OUT), ArgumentError, "takes 2"),
        ((squares(7)[0], OUT), ShapeError, "'input' has rank 1"),
        ((squares(7)[:2], OUT), ShapeError, "'output' has the shape (4, 4)"),
        ((squares(7), OUT[:, :2].copy()), ShapeError, "'output' has the shape (4, 2)"),
        ((squares(7).astype(np.float64), OUT), TilexError, "'input' is float64"),
        ((squares(7).astype(np.int32), OUT), DTypeError, "'input' is int32"),
        ((squares(7).astype(">f4"), OUT), ArgumentError, "input"),
        ((squares(7).astype(np.complex64), OUT), TilexError, "input"),
        ((squares(7).astype(object), OUT), ArgumentError, "input"),
        ((squares(7).tolist(), OUT), ArgumentError, "list is not an array"),
        ((None, OUT), ArgumentError, "NoneType is not an array"),
        ((torch.zeros(4, 4, device="meta"), OUT), ArgumentError, "meta"),
        ((torch.zeros(4, 4).to_sparse(), OUT), ArgumentError, "input"),
    ],
)
def test_wrong_arguments_are_refused_at_the_callers_line(arrays, error, text):
    with pytest.raises(error, match=re.escape(text)) as caught:
        kernels.softmax(*arrays)
    assert str(caught.value).count("\n") <= 1
    assert "softmax" in str(caught.value)
    assert caught.value.location.line == inspect.currentframe().f_lineno - 3
    np.testing.assert_array_equal(OUT, 0)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((squares(7),), "takes 2"),
        ((squares(7), np.zeros((4, 5), np.float32)), "'output' has shape (4, 5)"),
        ((squares(7)[:, :2].copy(), OUT), "'input' has shape (4, 2)"),
        ((squares(7).astype(np.float16), OUT), "'input' is float16"),
        ((torch.zeros(4, 4, device="meta"), OUT), "meta"),
        ((np.zeros(16, np.float32), OUT), "'input' has shape (16,)"),
    ],
)
def test_a_compiled_kernel_refuses_what_it_was_not_compiled_for(arrays, text):
    artifact = tx.compile(kernels.softmax, (4, 4), (4, 4))
    with pytest.raises(ArgumentError, match=re.escape(text)) as caught:
        artifact(*arrays)
    assert "softmax" in str(caught.value)
    assert caught.value.location.line == inspect.currentframe().f_lineno - 2


class OnAnotherDevice:
    """A DLPack producer that claims CUDA memory."""

    def __dlpack_device__(self):
        return 2, 0

    def __dlpack__(self, **options):
        raise BufferError("no CUDA memory here")


def test_another_device_is_refused_by_name():
    with pytest.raises(ArgumentError, match="input"):
        kernels.softmax(OnAnotherDevice(), OUT)
