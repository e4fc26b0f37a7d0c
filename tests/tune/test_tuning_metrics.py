"""Scopes and metrics: what each demands, and errors by name where it is not there."""

import types

import numpy as np
import pytest

import tvm_tilex as tx
from tvm_tilex.build.device_artifact import DeviceArtifact, KernelLaunch
from tvm_tilex.build.target import system_has
from tvm_tilex.errors import OptionError
from tvm_tilex.tune import Endpoint, Timing, tune
from tvm_tilex.tune.command_buffer import CommandBufferTimer
from tvm_tilex.tune.cuda_events import CudaEvents
from tvm_tilex.tune.endpoint import LOCAL
from tvm_tilex.tune.errors import MetricError
from tvm_tilex.tune.metric import default_metric, require_metric
from tvm_tilex.tune.sim_cost import EVENTS, WEIGHTINGS, count_events, modelled_cost
from tvm_tilex.tune.wall import wall_clock

SERVER = Endpoint("server", "127.0.0.1", 9)

REFUSED = [
    ("gpu-control", "llvm", LOCAL, "a processor has none"),
    ("gpu-control", "llvm", SERVER, "a processor has none"),
    ("gpu-control", "metal", SERVER, "no command buffer's GPU time"),
    ("host-wall", "cuda", SERVER, "would time the network"),
    ("sim-cost", "llvm", LOCAL, "counts Metal text"),
    ("sim-cost", "cuda", LOCAL, "counts Metal text"),
    ("sim-cost", "metal", SERVER, "counts Metal text"),
]


@pytest.mark.parametrize(("metric", "kind", "endpoint", "text"), REFUSED)
def test_a_metric_that_a_device_lacks_is_refused_by_name(metric, kind, endpoint, text):
    with pytest.raises(MetricError, match=text):
        require_metric(metric, kind, endpoint)


@pytest.mark.parametrize("kind", ["cuda", "metal"])
@pytest.mark.parametrize("metric", ["host-wall", "gpu-control"])
def test_a_gpu_that_is_not_there(kind, metric):
    if system_has(kind):
        pytest.skip(f"this process has a {kind} device")
    with pytest.raises(MetricError, match=f"{metric}: this process has no {kind} device"):
        require_metric(metric, kind, LOCAL)


def test_gpu_control_on_metal_needs_command_buffers(monkeypatch):
    """Where there is an Apple GPU but no PyObjC."""
    monkeypatch.setattr("tvm_tilex.tune.metric.system_has", lambda kind: True)
    monkeypatch.setitem(__import__("sys").modules, "Metal", None)
    require_metric("host-wall", "metal", LOCAL)
    with pytest.raises(MetricError, match=r"PyObjC .*not installed"):
        require_metric("gpu-control", "metal", LOCAL)


def test_gpu_control_on_cuda_needs_the_driver(monkeypatch):
    monkeypatch.setattr("tvm_tilex.tune.metric.system_has", lambda kind: True)

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", missing)
    from tvm_tilex.tune.cuda_events import load_driver

    load_driver.cache_clear()
    with pytest.raises(MetricError, match="CUDA driver"):
        require_metric("gpu-control", "cuda", LOCAL)


def test_an_unknown_metric():
    with pytest.raises(OptionError, match="'speed': use one of host-wall, gpu-control, sim-cost"):
        require_metric("speed", "llvm", LOCAL)


def test_a_metric_is_refused_before_any_work(tmp_path):
    with pytest.raises(MetricError):
        tune("softmax", [(3, 64)], metric="gpu-control", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_defaults():
    assert default_metric("llvm") == "host-wall"
    assert default_metric("cuda") == "host-wall"
    assert default_metric("cuda", SERVER) == "gpu-control"
    assert default_metric("metal", SERVER) == "host-wall"
    if not system_has("metal"):
        assert default_metric("metal") == "sim-cost"


def test_wall_clock_counts_every_call_and_waits_once_a_sample():
    events = []
    measured = wall_clock(
        lambda: events.append("launch"), lambda: events.append("wait"), Timing(3, 0.05, 0)
    )
    calls = measured.calls_per_sample
    tail = events[-3 * (calls + 1) :]
    assert tail == (["launch"] * calls + ["wait"]) * 3
    assert len(measured.samples) == 3 and measured.scope == "end_to_end"
    assert sorted(measured.samples)[1] == measured.value > 0


# The simulator's model.


@pytest.mark.filterwarnings("ignore:no Apple GPU")
def test_modelled_cost_is_the_weighted_sum_of_counted_events():
    entry = tx.kernels.catalog()["softmax"]
    artifact = tx.compile(entry.kernel, *entry.specs(6, 512), target="metal")
    counters = artifact.simulate(*entry.arguments(6, 512))
    events = count_events(counters, 6)
    assert set(events) == set(EVENTS)
    # One or more threadgroups a row, a barrier a reduction, every element read and written.
    plan = artifact.plan
    assert events["groups"] == plan.blocks / 6 and events["barriers"] == plan.barrier_sites
    assert events["segments"] >= 2 * 512 * 4 / 128
    weights = WEIGHTINGS["balanced"]
    assert modelled_cost(events) == pytest.approx(
        0.5 * events["segments"]
        + weights.barriers * events["barriers"]
        + weights.collectives * events["collectives"]
        + events["arithmetic"]
        + weights.groups * events["groups"]
    )
    assert modelled_cost(dict.fromkeys(EVENTS, 0.0)) == 0


# Device timestamps, against stand-ins of the two libraries.


class Driver:
    """A CUDA driver whose clock moves by what was enqueued: 5 ms a flush, 2 ms a launch."""

    def __init__(self, fails=None):
        self.now, self.times, self.log, self.fails = 0.0, {}, [], fails
        self.live = set()

    def __getattr__(self, name):
        def call(*arguments):
            self.log.append(name)
            if name == self.fails:
                return 700
            act = vars(Driver).get("do_" + name)
            return 0 if act is None else act(self, *arguments)

        return call

    def do_cuEventCreate(self, pointer, flags):
        pointer._obj.value = len(self.times) + 1
        self.times[pointer._obj.value] = None
        self.live.add(pointer._obj.value)
        return 0

    def do_cuEventRecord(self, event, stream):
        self.times[event.value] = self.now
        return 0

    def do_cuMemsetD8Async(self, *arguments):
        self.now += 5.0
        return 0

    def do_cuEventElapsedTime(self, pointer, begin, end):
        assert "cuCtxSynchronize" in self.log
        pointer._obj.value = self.times[end.value] - self.times[begin.value]
        return 0

    def do_cuEventDestroy_v2(self, event):
        self.live.remove(event.value)
        return 0

    def launch(self):
        self.now += 2.0


def test_cuda_events_enclose_the_launch_alone():
    driver = Driver()
    events = CudaEvents(driver)
    assert events.seconds(driver.launch, 3) == pytest.approx([0.002] * 3)
    events.close()
    assert driver.live == set() and driver.log[-1] == "cuMemFree_v2"
    assert driver.log.count("cuMemsetD8Async") == 3


def test_an_error_of_the_driver_is_named():
    with pytest.raises(MetricError, match="cuEventRecord failed with code 700"):
        CudaEvents(Driver("cuEventRecord")).seconds(lambda: None, 1)


def fake_metal(error=None, compiles=True):
    """PyObjC's Metal with one device; a dispatch costs 3 ms of GPU time and negates a buffer."""
    log = types.SimpleNamespace(dispatched=[], fast_math=None, sources=[])

    class Buffer:
        def __init__(self, data):
            self.data = bytearray(data)

        def contents(self):
            return types.SimpleNamespace(as_buffer=lambda size: memoryview(self.data)[:size])

    class Commands:
        def __init__(self):
            self.count, self.bound = 0, {}

        def computeCommandEncoder(self):
            return self

        def setComputePipelineState_(self, state):
            self.state = state

        def setBuffer_offset_atIndex_(self, buffer, offset, index):
            self.bound[index] = buffer

        def dispatchThreadgroups_threadsPerThreadgroup_(self, grid, group):
            self.count += 1
            log.dispatched.append((self.state, grid, group))
            source = np.frombuffer(bytes(self.bound[0].data), np.float32)
            self.bound[1].data[:] = (-source).tobytes()

        def endEncoding(self):
            self.ended = True

        def commit(self):
            assert self.ended

        def waitUntilCompleted(self):
            self.done = True

        def error(self):
            return error

        def GPUStartTime(self):
            return 100.0

        def GPUEndTime(self):
            assert self.done
            return 100.0 + 0.003 * self.count

    class Options:
        def setFastMathEnabled_(self, enabled):
            log.fast_math = enabled

    class Device:
        def newLibraryWithSource_options_error_(self, source, options, _):
            log.sources.append(source)
            library = types.SimpleNamespace(newFunctionWithName_=lambda name: name)
            return (library, None) if compiles else (None, "bad source")

        def newCommandQueue(self):
            return types.SimpleNamespace(commandBuffer=Commands)

        def newBufferWithBytes_length_options_(self, data, size, options):
            return Buffer(data)

        def newComputePipelineStateWithFunction_error_(self, function, _):
            return f"state of {function}", None

    return types.SimpleNamespace(
        MTLCreateSystemDefaultDevice=Device,
        MTLCompileOptions=types.SimpleNamespace(new=Options),
        MTLResourceStorageModeShared=0,
        MTLSizeMake=lambda *extents: extents,
        log=log,
    )


def artifact(**other):
    launch = KernelLaunch("negate_kernel", (4, 1, 1), (32, 1, 1), ("x", "out"), (), 0)
    return DeviceArtifact("metal", "source text", (launch,), other.get("precise", False))


def test_command_buffers_time_the_device_artifact():
    metal, x = fake_metal(), np.arange(8, dtype=np.float32)
    timer = CommandBufferTimer(artifact(), ("out", "x"), (np.empty_like(x), x), metal)
    assert timer.seconds(5) == pytest.approx(0.003)
    assert metal.log.dispatched == [("state of negate_kernel", (4, 1, 1), (32, 1, 1))] * 5
    assert metal.log.sources == ["source text"] and metal.log.fast_math is True
    assert (timer.array("out") == -x).all()
    precise = fake_metal()
    CommandBufferTimer(artifact(precise=True), ("x", "out"), (x, x), precise)
    assert precise.log.fast_math is False


def test_failures_of_metal_are_named():
    x = np.zeros(4, np.float32)
    with pytest.raises(MetricError, match="rejects the emitted source: bad source"):
        CommandBufferTimer(artifact(), ("x", "out"), (x, x), fake_metal(compiles=False))
    with pytest.raises(MetricError, match="command buffer failed: out of memory"):
        CommandBufferTimer(artifact(), ("x", "out"), (x, x), fake_metal("out of memory")).seconds(1)


@pytest.mark.device("cuda")
def test_gpu_and_end_to_end_on_a_cuda_device():
    if not system_has("cuda"):
        pytest.skip("no CUDA device")
    from tvm_tilex.tune.evaluate import evaluate
    from tvm_tilex.tune.job import Job, SubjectSpec

    options = tx.CompileOptions().to_json()
    spec = SubjectSpec("softmax", ((512, 4096),))
    found = evaluate(Job(spec, "cuda", options, "gpu-control", timing=Timing(3, 2, 2)))
    assert found["status"] == "valid", found
    scopes = {m["scope"]: m["value"] for m in found["measurements"]}
    assert set(scopes) == {"end_to_end", "gpu"} and min(scopes.values()) > 0


@pytest.mark.device("metal")
def test_gpu_and_end_to_end_on_a_metal_device():
    if not system_has("metal"):
        pytest.skip("no Apple GPU")
    pytest.importorskip("Metal", reason="PyObjC is not installed")
    from tvm_tilex.tune.evaluate import evaluate
    from tvm_tilex.tune.job import Job, SubjectSpec

    options = tx.CompileOptions().to_json()
    spec = SubjectSpec("softmax", ((512, 4096),))
    found = evaluate(Job(spec, "metal", options, "gpu-control", timing=Timing(3, 2, 2)))
    assert found["status"] == "valid", found
    assert {m["scope"] for m in found["measurements"]} == {"end_to_end", "gpu"}
