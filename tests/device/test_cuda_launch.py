"""Kernels launched by TVM's CUDA runtime on torch tensors: right everywhere, on torch's stream."""

import timeit

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.errors import ArgumentError, TargetError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.device("cuda")
CATALOG = kernels.catalog()
VIEW = tx.TensorView

FLOAT32 = [(1, 1), (7, 33), (3, 4096), (1000, 257), (300, 3)]
NARROW = [(7, 33), (3, 4096), (1000, 257)]
CASES = [("float32", s) for s in FLOAT32] + [
    (d, s) for d in ("float16", "bfloat16") for s in NARROW
]


def compiled(gpu, name, rows, columns, dtype="float32", **options):
    entry = CATALOG[name]
    chosen = tx.CompileOptions(**options)
    specs = entry.specs(rows, columns, dtype)
    return entry, tx.compile(entry.kernel, *specs, target=gpu.target, options=chosen)


def ran(gpu, name, rows, columns, dtype="float32", **options):
    """Compile, launch on fresh arguments and check every output."""
    entry, artifact = compiled(gpu, name, rows, columns, dtype, **options)
    tensors = gpu.arguments(entry, rows, columns, dtype)
    artifact(*tensors)
    gpu.check(entry, tensors)
    return entry, artifact, tensors


@pytest.mark.parametrize(("dtype", "shape"), CASES, ids=str)
@pytest.mark.parametrize("name", CATALOG)
def test_against_fp64(gpu, name, dtype, shape):
    _, artifact, tensors = ran(gpu, name, *shape, dtype)
    assert artifact.plan is not None or artifact.fallback
    assert tensors[0].device.type == gpu.device


@pytest.mark.parametrize("name", ["softmax", "layernorm", "cross_entropy"])
def test_a_large_ragged_matrix(gpu, name):
    ran(gpu, name, 8191, 4095)


@pytest.mark.parametrize("name", CATALOG)
def test_no_rows_launch_nothing(gpu, name):
    entry, artifact = compiled(gpu, name, 0, 40)
    artifact(*gpu.arguments(entry, 0, 40))
    assert artifact.empty


def test_a_row_beyond_the_stripe_bound(gpu):
    ran(gpu, "softmax", 3, 131072)
    ran(gpu, "layernorm", 3, 131072, "bfloat16")


@pytest.mark.parametrize("threads", [32, 96, 256, 1024])
def test_explicit_plans(gpu, threads):
    entry, artifact, _ = ran(gpu, "layernorm", 37, 1030, threads_per_group=threads)
    assert artifact.plan.threads == threads and entry is not None


@pytest.mark.parametrize(("rows", "columns"), [(1, 256), (1001, 256), (1003, 255), (37, 7), (5, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("sharing", [2, 4])
def test_rows_that_share_a_simd_group(gpu, sharing, dtype, rows, columns):
    """Full and partial threadgroups of several rows a SIMD group, for any number of rows."""
    asked = {
        "reduction_programs_per_subgroup": sharing,
        "max_reduction_striped_scalars_per_worker": 255,
    }
    for name in ("row_sum", "softmax", "rmsnorm", "residual_layernorm", "cross_entropy", "minmax"):
        _, artifact, tensors = ran(gpu, name, rows, columns, dtype, **asked)
        assert artifact.plan.workers == 32 // sharing
        entry, dynamic = compiled(gpu, name, tx.dynamic("P"), columns, dtype, **asked)
        for position in entry.outputs:
            tensors[position].fill_(float("nan"))
        dynamic(*tensors)
        gpu.check(entry, tensors)


@pytest.mark.parametrize("columns", [40000, 40001])
@pytest.mark.parametrize("blocks", [2, 8])
def test_a_row_over_a_cluster(gpu, blocks, columns):
    """Threadgroups of a cluster share a row: launched, then replayed from a graph."""
    entry, artifact = compiled(gpu, "softmax", 5, columns, reduction_blocks_per_program=blocks)
    assert artifact.plan.blocks_per_program == blocks
    assert artifact.device.launches[0].cluster == (blocks, 1, 1)
    tensors = gpu.arguments(entry, 5, columns)
    artifact(*tensors)
    gpu.check(entry, tensors)
    graph = torch.cuda.CUDAGraph()
    tensors[-1].fill_(float("nan"))
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        artifact(*tensors)
    graph.replay()
    torch.cuda.synchronize()
    gpu.check(entry, tensors)


def test_the_jit_picks_the_gpu_by_its_tensors(gpu):
    entry = CATALOG["rmsnorm"]
    tensors = gpu.arguments(entry, 17, 513)
    for _ in range(2):  # compiled, then by the short way
        tensors[-1].fill_(float("nan"))
        entry.kernel(*tensors)
        gpu.check(entry, tensors)


# Numerics that the compiler's flags decide


def test_subnormals_survive(gpu):
    x = torch.full((3, 77), 1e-42, device=gpu.device)
    x[1] = -1e-42
    for name, wanted in (("row_max", x[:, 0]), ("row_min", x[:, 0])):
        out = torch.empty(3, device=gpu.device)
        compiled(gpu, name, 3, 77)[1](x, out)
        assert torch.equal(out.view(torch.int32), wanted.contiguous().view(torch.int32))


@tx.tile_kernel
def ordered_squares(x: VIEW[tx.float32, 2], out: VIEW[tx.float32, 1, tx.Out]):
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        tile = x[tx.coord(nest.index(), 0), tx.shape(tx.axis("one", 1), columns)]
        total = tx.reduce(tile * tile, columns, tx.add, policy=tx.ReductionPolicy.fold_left)
        out(tx.coord(nest.index()), tx.shape(tx.axis("one", 1))).store(total)


def test_an_ordered_fold_is_bit_for_bit(gpu):
    x = np.random.default_rng(3).standard_normal((5, 4096), dtype=np.float32)
    wanted = np.zeros(5, np.float32)
    for column in x.T:
        wanted = wanted + column * column  # each operation rounded, nothing contracted
    out = torch.full((5,), float("nan"), device=gpu.device)
    tx.compile(ordered_squares, (5, 4096), (5,), target=gpu.target)(gpu.tensor(x), out)
    np.testing.assert_array_equal(gpu.array(out), wanted)


ROWS = {
    "a NaN": lambda x: x.__setitem__((0, 100), np.nan),
    "a NaN at the end": lambda x: x.__setitem__((0, -1), np.nan),
    "all -inf": lambda x: x.__setitem__(0, -np.inf),
    "one -inf": lambda x: x.__setitem__((0, 3), -np.inf),
    "one +inf": lambda x: x.__setitem__((0, 200), np.inf),
    "both": lambda x: x.__setitem__((0, slice(7, 9)), (np.inf, -np.inf)),
}


@pytest.mark.parametrize("columns", [257, 4096])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "row_max", "minmax"])
def test_rows_with_special_values(gpu, name, columns):
    """One matrix of all cases: each row's class and the ordinary rows between are right."""
    entry, artifact = compiled(gpu, name, 2 * len(ROWS), columns)
    arrays = list(entry.arguments(2 * len(ROWS), columns))
    for i, change in enumerate(ROWS.values()):
        change(arrays[0][2 * i : 2 * i + 1])
    tensors = [gpu.tensor(a) for a in arrays]
    artifact(*tensors)
    gpu.check(entry, tensors)


# Memory


@pytest.mark.parametrize("offset", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bases_that_vectors_do_not_fit(gpu, dtype, offset):
    entry, artifact = compiled(gpu, "softmax", 9, 1024, dtype)
    tensors = []
    for tensor in gpu.arguments(entry, 9, 1024, dtype):
        memory = torch.zeros(tensor.numel() + offset, dtype=tensor.dtype, device=gpu.device)
        memory[offset:] = tensor.flatten()
        tensors.append(memory[offset:].view(tensor.shape))
    for _ in range(2):
        tensors[-1].fill_(float("nan"))
        artifact(*tensors)
        gpu.check(entry, tensors)


def test_a_write_stays_inside_its_tensor(gpu):
    entry, artifact = compiled(gpu, "softmax", 5, 1024)
    x, _ = gpu.arguments(entry, 5, 1024)
    memory = torch.full((7, 1024), 7.0, device=gpu.device)
    artifact(x, memory[1:6])
    assert (memory[0] == 7).all() and (memory[6] == 7).all()
    gpu.check(entry, [x, memory[1:6]])


def test_an_array_in_place(gpu):
    entry, artifact = compiled(gpu, "softmax", 9, 300)
    x, out = gpu.arguments(entry, 9, 300)
    same = x.clone()
    artifact(same, same)
    out.copy_(same)
    gpu.check(entry, [x, out])


def test_what_does_not_fit_is_refused_by_name(gpu):
    entry, artifact = compiled(gpu, "softmax", 8, 64)
    x, out = gpu.arguments(entry, 8, 64)
    wide = torch.zeros(8, 128, device=gpu.device)
    for arrays, text in (
        ((wide[:, ::2], out), "strides"),
        ((wide[:, :64], out), "strides"),
        ((x.half(), out), "float16"),
        ((x[:4], out), r"shape \(4, 64\)"),
        ((x, x.flatten()[32:].view(-1)[:480]), "shape"),
    ):
        with pytest.raises(ArgumentError, match=text):
            artifact(*arrays)
    memory = torch.zeros(9, 64, device=gpu.device)
    with pytest.raises(ArgumentError, match="overlap in part"):
        artifact(memory[:8], memory[1:])
    promised = compiled(gpu, "softmax", 8, 64, noalias=True)[1]
    with pytest.raises(ArgumentError, match="noalias=True was promised"):
        promised(x, x)


def test_memory_of_the_processor_is_refused(gpu):
    entry, artifact = compiled(gpu, "softmax", 8, 64)
    x, out = gpu.arguments(entry, 8, 64)
    with pytest.raises(ArgumentError, match="'output' is on llvm"):
        artifact(x, out.cpu())
    with pytest.raises(ArgumentError, match="'output' is on llvm:0, the first argument on cuda:0"):
        entry.kernel(x, out.cpu())


# Streams, graphs, devices


def test_a_launch_is_ordered_on_the_current_stream(gpu):
    """The input is written late on a side stream; another stream would read the poison."""
    entry, artifact = compiled(gpu, "softmax", 64, 1024)
    x, out = gpu.arguments(entry, 64, 1024)
    artifact(x, out)
    entry.kernel(x, out)  # compiles, which takes longer than the stream below sleeps
    late = torch.full_like(x, float("nan"))
    for launch in (artifact, entry.kernel):
        late.fill_(float("nan"))
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            late.copy_(x)
            launch(late, out)
            result = out.clone()
            assert not stream.query(), "the host waited for the device"
        stream.synchronize()
        gpu.check(entry, [x, result])
        out.fill_(float("nan"))


@pytest.mark.parametrize("name", CATALOG)
def test_a_graph_replays_on_new_inputs(gpu, name):
    entry, artifact = compiled(gpu, name, 33, 1026)
    tensors = gpu.arguments(entry, 33, 1026)
    artifact(*tensors)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # entering and leaving it allocate, which is torch's affair
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        artifact(*tensors)
        artifact(*tensors)
        allocated = torch.cuda.memory_stats()["allocation.all.allocated"] - before
    assert allocated == 0, "the launch allocates"
    for seed in (5, 6):
        fresh = gpu.arguments(entry, 33, 1026, seed=seed)
        for old, new in zip(tensors, fresh, strict=True):
            old.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        gpu.check(entry, tensors)


def test_a_capture_before_the_first_launch_is_refused(gpu):
    entry, artifact = compiled(gpu, "softmax", 35, 1027)
    tensors = gpu.arguments(entry, 35, 1027)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    refused = pytest.raises(TargetError, match="call it once before the capture")
    with refused, torch.cuda.graph(graph):
        artifact(*tensors)
    artifact(*tensors)
    gpu.check(entry, tensors)


def test_the_second_gpu(gpu):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    entry, artifact = compiled(gpu, "layernorm", 33, 1024)
    first = gpu.arguments(entry, 33, 1024)
    artifact(*first)
    other = [tensor.to("cuda:1") for tensor in gpu.arguments(entry, 33, 1024)]
    for launch in (artifact, artifact, entry.kernel):
        other[-1].fill_(float("nan"))
        launch(*other)
        assert torch.cuda.current_device() == 0
        gpu.check(entry, other)
    with pytest.raises(ArgumentError, match="is on cuda:1, the first argument on cuda:0"):
        artifact(*first[:-1], other[-1])


def test_an_exported_library(gpu, tmp_path):
    import tvm_ffi

    entry, artifact = compiled(gpu, "softmax", 9, 513)
    path = artifact.export_library(tmp_path / "softmax.so")
    tensors = gpu.arguments(entry, 9, 513)
    tvm_ffi.load_module(str(path))["softmax"](*tensors)
    gpu.check(entry, tensors)


# Resources


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CATALOG)
def test_what_ptxas_reports(gpu, measuring, name, dtype):
    """Automatic plans of wide rows keep their stripes in registers."""
    from tvm_tilex.build import cuda_toolchain

    if cuda_toolchain.find_nvcc() is None:
        pytest.skip("needs nvcc")
    for shape in ((8192, 4096), (1024, 32000), (512, 131072)):
        _, artifact = compiled(gpu, name, *shape, dtype)
        cubin, facts = measuring.compile_source(artifact.source)
        assert cubin is not None, facts
        assert facts["spill_bytes"] == 0, (shape, facts)
        assert facts["registers"] > 0


def test_the_time_of_a_launch_on_the_host(gpu, capsys):
    """Printed, not asserted: the aim is 10 microseconds with every check on."""
    entry, artifact = compiled(gpu, "layernorm", 1, 64)
    tensors = gpu.arguments(entry, 1, 64)
    artifact(*tensors)
    entry.kernel(*tensors)
    packed, found = artifact.function, []
    for name, call in (
        ("bare tvm_ffi call", lambda: packed(*tensors)),
        ("artifact", lambda: artifact(*tensors)),
        ("kernel", lambda: entry.kernel(*tensors)),
    ):
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            times.append(timeit.timeit(call, number=200) / 200)
        found.append(f"{name} {min(times) * 1e6:.2f} us")
    with capsys.disabled():
        print("\nhost time of a launch, layernorm, 4 tensors:", ", ".join(found))
    gpu.check(entry, tensors)
