"""Group normalization: mean and variance over the channels of a group and all pixels."""

# A view annotation is a value that the decorator reads, not a static type.
# mypy: disable-error-code="valid-type, attr-defined, index, misc, operator, call-overload"

from __future__ import annotations

from typing import Any

from tvm_tilex import lang as tx
from tvm_tilex.errors import ShapeError
from tvm_tilex.ir.types import BoundsPolicy

__all__ = ["group_normalization"]

IMAGES, CHANNEL = ("batch", "channels", "pixels"), ("channels",)


@tx.tile_kernel
def group_normalization(
    input: tx.TensorView[tx.floating, IMAGES, BoundsPolicy.predicate],
    weight: tx.TensorView[tx.floating, CHANNEL],
    bias: tx.TensorView[tx.floating, CHANNEL],
    output: tx.TensorView[tx.floating, IMAGES, tx.Out, BoundsPolicy.zero],
    *,
    groups: int = 2,
    epsilon: float = 1e-5,
    block_pixels: int = 128,
) -> None:
    """``output = (input - mean) / sqrt(variance + epsilon) * weight + bias`` by channel groups.

    Parameters
    ----------
    input, output
        (B, C, pixels), any float storage; FP32 state, the variance of centered values.
    weight, bias
        (C,), any float storage.
    groups
        Divides C.
    """
    channels, pixels = input.extent(1), input.extent(2)
    if groups < 1 or channels % groups:
        raise ShapeError(f"group_normalization: {groups} groups do not divide {channels} channels")
    batch, sets = tx.axis("batch", input.extent(0)), tx.axis("groups", groups)
    steps = tx.axis("steps", -(-pixels // block_pixels))
    own, block = tx.axis("own", channels // groups), tx.axis("block", block_pixels)
    count = float(channels // groups * pixels)
    for nest in tx.parallel(tx.shape(batch, sets)):
        for _ in tx.group():
            b, first = nest.index(0), nest.index(1) * (channels // groups)

            def tile(step: Any, b: Any = b, first: Any = first) -> Any:
                at = tx.coord(b, first, step.index() * block_pixels)
                return tx.cast(input[at, tx.shape(1, own, block)], tx.float32)

            for step in tx.pipeline(steps, tx.full(tx.shape(own), 0.0)):
                (sums,) = step.state
                step.carry(sums + tx.reduce(tile(step), block, tx.add))
            mean = tx.reduce(step.result[0], own, tx.add) / count
            for step in tx.pipeline(steps, tx.full(tx.shape(own), 0.0)):
                (sums,) = step.state
                centered = tile(step) - mean
                step.carry(sums + tx.reduce(centered * centered, block, tx.add))
            variance = tx.reduce(step.result[0], own, tx.add) / count
            spread = tx.rsqrt(variance + epsilon)
            gain = tx.cast(weight[tx.coord(first), tx.shape(own)], tx.float32) * spread
            shift = tx.cast(bias[tx.coord(first), tx.shape(own)], tx.float32)
            for step in tx.pipeline(steps):
                result = (tile(step) - mean) * gain + shift
                at = tx.coord(b, first, step.index() * block_pixels)
                output(at, tx.shape(1, own, block)).store(tx.cast(result, output.dtype))
