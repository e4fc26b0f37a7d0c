"""What the GPU benchmarks share: compiling, ptxas' report, launching, timing, conditions.

Needs torch; `launcher` needs cupy and `compile_source` nvcc. Nothing of this package or TVM.
"""

import contextlib
import ctypes
import hashlib
import math
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch

__all__ = [
    "compile_source",
    "conditions",
    "copy_rate",
    "group_record",
    "launch_dependent",
    "launcher",
    "ptxas_report",
    "set_count",
    "timed",
]

_FOLDER = tempfile.TemporaryDirectory(prefix="tilex-cubin-")
_COMPILING = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_MATH = re.compile(r"// tilex: (?P<arch>sm_\w+) (?P<math>ieee(?: uncontracted)?)\n")


def ptxas_report(text):
    """Resources of each entry function in what `nvcc -Xptxas -v` prints."""
    found = []
    for line in text.splitlines():
        if entry := _COMPILING.search(line):
            found.append({"entry": entry[1], "arch": entry[2], "shared_bytes": 0})
        elif found and (frame := _FRAME.search(line)):
            stack, stores, loads = map(int, frame.groups())
            found[-1] |= {"stack_bytes": stack, "spill_bytes": stores + loads}
        elif found and (registers := _REGISTERS.search(line)):
            found[-1]["registers"] = int(registers[1])
            if shared := _SHARED.search(line):
                found[-1]["shared_bytes"] = int(shared[1])
    return found


def compile_source(source, arch=None, options=()):
    """Compile once per text, arch and options: the cubin's path and ptxas' report.

    The options are what the source's first line asks for (IEEE arithmetic, perhaps uncontracted)
    and ``options``. On failure the path is None and the report an ``error``.
    """
    asked = _MATH.match(source)
    flags = [*options]
    if asked is not None and "uncontracted" in asked["math"]:
        flags.append("--fmad=false")
    arch = arch or _arch() or (asked["arch"] if asked else "sm_90")
    key = hashlib.sha256("\0".join([source, arch, *flags]).encode()).hexdigest()[:24]
    stem = os.path.join(_FOLDER.name, key)
    Path(stem + ".cu").write_text(source)
    command = ["nvcc", "-cubin", f"-arch={arch}", "-O3", "-Xptxas", "-v", *flags]
    run = subprocess.run(
        [*command, "-o", stem + ".cubin", stem + ".cu"], capture_output=True, text=True
    )
    if run.returncode:
        return None, {"error": run.stderr[-300:]}
    kernels = ptxas_report(run.stderr)
    facts = {
        "registers": max(k["registers"] for k in kernels),
        "spill_bytes": sum(k["spill_bytes"] for k in kernels),
        "stack_bytes": max(k["stack_bytes"] for k in kernels),
        "shared_bytes": max(k["shared_bytes"] for k in kernels),
    }
    return stem + ".cubin", facts


def _arch():
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def launcher(row, cubin):
    """A function that launches an exported kernel on torch's current stream, through cupy."""
    import cupy

    module = cupy.RawModule(path=cubin)
    places = {name: i for i, name in enumerate(row["parameters"])}
    launches = [
        (
            module.get_function(k["entry"]),
            tuple(k["grid"]),
            tuple(k["group"]),
            [places[name] for name in k["buffers"]],
            k.get("dynamic_shared_bytes", 0),
            k.get("dependent", False),
        )
        for k in row["launches"]
    ]
    for function, _, _, _, shared, _ in launches:
        if shared:
            function.max_dynamic_shared_size_bytes = shared

    def run(*arguments):
        stream = torch.cuda.current_stream().cuda_stream
        with cupy.cuda.ExternalStream(stream):
            for function, grid, group, order, shared, dependent in launches:
                pointers = [arguments[i].data_ptr() for i in order]
                if dependent:
                    launch_dependent(function.kernel.ptr, grid, group, pointers, shared, stream)
                else:
                    function(grid, group, tuple(map(cupy.uint64, pointers)), shared_mem=shared)

    return run


def launch_dependent(function, grid, group, pointers, shared, stream):
    """Launch so that the kernel may overlap the one before it: cupy has no attributes of launches.

    ``function`` and ``stream`` are the driver's handles, ``pointers`` the arguments.
    """
    from cuda.bindings import driver

    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = group
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = [attribute], 1
    arguments = (tuple(pointers), (ctypes.c_void_p,) * len(pointers))
    (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(function), arguments, 0)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"cuLaunchKernelEx: {status.name}")


def group_record(row, facts):
    """What is recorded of an exported cooperative group beside its times."""
    return {
        "constants": row["constants"],
        "requested": row["requested"],
        "threads": row["plan"]["threads"],
        "realizations": row["plan"]["realizations"],
        "score": row["score"],
        "text": text_key(row["source"]),
        **facts,
    }


def text_key(source):
    """What a record keeps of the text that was measured."""
    return hashlib.sha256(source.encode()).hexdigest()[:12]


def set_count(bytes_a_call, cache_bytes):
    """Argument sets to rotate so that each is used again three caches' bytes later or more."""
    return 1 + max(1, math.ceil(3 * cache_bytes / bytes_a_call))


def timed(run, sets, repeats=7):
    """Time ``run(*set)`` over repeated replays of a CUDA graph that rotates the sets.

    Returns microseconds a call (median, least and most of the repeats) and whether a graph could
    be captured; where it cannot, the calls are issued from the host. Results are kept until the
    set comes round again, so that a function that allocates its output rotates outputs too.
    """
    count = len(sets) * math.ceil(20 / len(sets))
    kept = [None] * len(sets)

    def calls():
        for i in range(count):
            kept[i % len(sets)] = run(*sets[i % len(sets)])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for s in sets:
            run(*s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            calls()
        replay = graph.replay
    except Exception:
        graph = None
        with contextlib.suppress(Exception):
            torch.cuda.synchronize()
        kept[:] = [None] * len(sets)
        replay = calls
    replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
        begin.record()
        replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / count * 1e3)
    return {
        "us": statistics.median(times),
        "us_least": min(times),
        "us_most": max(times),
        "graph": graph is not None,
    }


def copy_rate(bytes_moved=2 << 30, repeats=7):
    """GB/s of an elementwise copy kernel (x + 1) that moves ``bytes_moved``, halves each way."""
    cache = cache_bytes()
    count = max(1, bytes_moved // 8)
    sets = [
        (torch.zeros(count, device="cuda"), torch.empty(count, device="cuda"))
        for _ in range(1 if bytes_moved > 6 * cache else set_count(bytes_moved, cache))
    ]
    found = timed(lambda x, y: torch.add(x, 1.0, out=y), sets, repeats)
    return 8 * count / found["us"] / 1e3


def cache_bytes():
    """Bytes of the L2 cache."""
    return torch.cuda.get_device_properties(0).L2_cache_size


def conditions():
    """Under what the figures were measured: device, driver, clocks, versions."""
    properties = torch.cuda.get_device_properties(0)
    found = {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    fields = "driver_version,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit"
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        command = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        values = [value.strip() for value in answer.strip().split(",")]
        found |= dict(zip(fields.split(","), values, strict=False))
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        answer = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True)
        found["nvcc"] = answer.stdout.strip().splitlines()[-1]
    return found
