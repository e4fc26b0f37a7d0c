"""What the language refuses inside and around a group: type, text and the user's line."""

# ruff: noqa: F821

import pytest

import tvm_tilex as tx
from tvm_tilex.errors import CaptureError, DTypeError, ShapeError


class Body:
    """What a refused body sees: the nest, the view, a tile and axes."""

    def __init__(self, nest, x, out):
        self.nest, self.x, self.out = nest, x, out
        self.rows, self.k, self.columns = tx.axis("rows", 4), tx.axis("k", 8), tx.axis("columns", 8)
        self.steps = tx.axis("steps", 2)

    @property
    def tile(self):
        return self.x[tx.coord(0, 0), tx.shape(self.rows, self.k)]


def capture(body, domain=True):
    @tx.tile_kernel
    def kernel(x: tx.TensorView["float32", 2], out: tx.TensorView["float32", 2, "out"]):
        p = tx.axis("p", 1)
        for nest in tx.parallel(tx.shape(p)):
            this = Body(nest, x, out)
            if not domain:
                body(this)
                continue
            for _ in tx.group(tx.shape(this.rows)):
                body(this)
                out(tx.coord(0, 0), tx.shape(this.rows, this.k)).store(this.tile)

    return kernel.capture([tx.spec((4, 8)), tx.spec((4, 8))])


REFUSED = {}


def refused(error, text, **options):
    def add(body):
        REFUSED[body.__name__] = (error, text, body, options)
        return body

    return add


@refused(CaptureError, "belongs inside", domain=False)
def pipeline_outside(this):
    for _ in tx.pipeline(this.steps):
        pass


@refused(CaptureError, "belongs inside", domain=False)
def dot_outside(this):
    tx.dot(this.tile, this.tile, this.tile)


@refused(CaptureError, "belongs inside", domain=False)
def memory_outside(this):
    tx.memory(tx.shape(this.rows))


@refused(CaptureError, "one statement of a root parallel nest", domain=False)
def group_after_a_tile(this):
    this.tile  # noqa: B018
    for _ in tx.group(tx.shape(this.rows)):
        pass


@refused(CaptureError, "one statement of a root parallel nest")
def group_in_a_group(this):
    for _ in tx.group(tx.shape(this.rows)):
        pass


@refused(ShapeError, "takes tx.shape", domain=False)
def domain_of_one(this):
    tx.group(tx.shape(1))


@refused(ShapeError, "in the group's domain")
def reduction_over_the_domain(this):
    tx.reduce(this.tile, this.rows, tx.add)


@refused(ShapeError, "in the group's domain")
def contraction_over_the_domain(this):
    weights = tx.full(tx.shape(this.rows, this.columns), 1.0)
    tx.dot(this.tile, weights, tx.full(tx.shape(this.k, this.columns), 0.0))


@refused(ShapeError, "lacks 'rows' of the group's domain")
def store_of_a_part_of_the_domain(this):
    this.out(tx.coord(0, 0), tx.shape(1, this.k)).store(0.0)


@refused(ShapeError, "is not an axis")
def pipeline_over_a_number(this):
    tx.pipeline(3)


@refused(ShapeError, "is empty")
def pipeline_of_nothing(this):
    tx.pipeline(tx.axis("none", 0))


@refused(CaptureError, "use tx.full")
def pipeline_carries_a_number(this):
    tx.pipeline(this.steps, 0.0)


@refused(CaptureError, "never calls carry")
def carry_forgotten(this):
    for _ in tx.pipeline(this.steps, this.tile):
        pass


@refused(CaptureError, "called twice")
def carry_twice(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(step.state[0])
        step.carry(step.state[0])


@refused(CaptureError, "takes 1 tiles, not 2")
def carry_too_many(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(this.tile, this.tile)


@refused(ShapeError, "the tile has rows: 4, not")
def carry_other_axes(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(tx.reduce(step.state[0], this.k, tx.add))


@refused(DTypeError, "cast it")
def carry_other_type(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(tx.cast(step.state[0], tx.float16))


@refused(CaptureError, "after the loop")
def result_too_early(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(step.result[0])


@refused(CaptureError, "left by break")
def pipeline_left(this):
    for step in tx.pipeline(this.steps, this.tile):
        step.carry(this.tile)
        break


@refused(CaptureError, "has ended")
def state_after_the_loop(this):
    for step in tx.pipeline(this.steps, this.tile):
        kept = step.state[0]
        step.carry(kept)
    kept + 1.0


@refused(ShapeError, "one axis is contracted")
def dot_without_a_common_axis(this):
    other = tx.full(tx.shape(this.columns), 1.0)
    tx.dot(this.tile, other, tx.full(tx.shape(this.rows, this.columns), 0.0))


@refused(ShapeError, "has other axes")
def dot_with_a_strange_accumulator(this):
    other = tx.full(tx.shape(this.k, this.columns), 1.0)
    tx.dot(this.tile, other, tx.full(tx.shape(this.rows), 0.0))


@refused(DTypeError, "not one float type")
def dot_of_two_types(this):
    other = tx.full(tx.shape(this.k, this.columns), 1.0, tx.float16)
    tx.dot(this.tile, other, tx.full(tx.shape(this.rows, this.columns), 0.0))


@refused(DTypeError, "its state is float32")
def dot_into_half(this):
    other = tx.full(tx.shape(this.k, this.columns), 1.0)
    tx.dot(this.tile, other, tx.full(tx.shape(this.rows, this.columns), 0.0, tx.float16))


@refused(CaptureError, "use one of shared, private")
def memory_of_an_unknown_scope(this):
    tx.memory(tx.shape(this.rows), scope="texture")


@refused(ShapeError, "memory store")
def memory_holds_another_shape(this):
    tx.memory(tx.shape(this.rows)).store(this.tile)


@pytest.mark.parametrize("name", REFUSED)
def test_refused_at_the_users_line(name):
    error, text, body, options = REFUSED[name]
    with pytest.raises(error, match=text) as raised:
        capture(body, **options)
    assert type(raised.value) is error
    assert raised.value.location is not None
    assert raised.value.location.file == __file__
