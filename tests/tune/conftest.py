"""Quick settings, and kernels in a file whose candidates hang, crash or are refused."""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from tvm_tilex.build.target import resolve_target
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune import Dimension, Settings, Space, Timing

QUICK = Timing(samples=2, sample_ms=0.2, warmup_ms=0.1)


@pytest.fixture(scope="session", autouse=True)
def _warm(warm_workers):
    """Every run of these tests takes a loaded worker process."""


@pytest.fixture(autouse=True)
def database_path(tmp_path, monkeypatch):
    """No test reads or writes the user's own database."""
    path = tmp_path / "tuning.sqlite"
    monkeypatch.setenv("TILEX_TUNING_DATABASE", str(path))
    monkeypatch.delenv("TILEX_TUNED", raising=False)
    return path


def make_space(**dimensions):
    return Space(CompileOptions(), tuple(Dimension(n, tuple(v)) for n, v in dimensions.items()))


def make_settings(kind, metric, space, **other):
    settings = Settings(str(resolve_target(kind)), space, metric, QUICK, search="exhaustive")
    return dataclasses.replace(settings, **other)


@pytest.fixture
def quick():
    return types.SimpleNamespace(space=make_space, settings=make_settings, timing=QUICK)


KERNELS = '''
import os
import signal
import time
from pathlib import Path

import tvm_tilex as tx
from tvm_tilex.plan import register_cost_policy


def crash(facts):
    print("about to end", flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(facts):
    while True:
        time.sleep(3600)


def defect(facts):
    raise RuntimeError("a defect\\nof two lines")


for policy in (crash, hang, defect):
    register_cost_policy(f"test-{policy.__name__}", lambda policy=policy: policy)


@tx.tile_kernel
def normalized(x: tx.TensorView["float32", 2], out: tx.TensorView["float32", 2, "out"]):
    """A row over its sum. Notes every capture in the file beside this one, if there is one."""
    notes = Path(__file__).with_name("captures")
    if notes.exists():
        with notes.open("a") as file:
            file.write(f"{os.getpid()}\\n")
    rows, columns = tx.axis("rows", x.extent(0)), tx.axis("columns", x.extent(1))
    for nest in tx.parallel(tx.shape(rows)):
        at, region = tx.coord(nest.index(), 0), tx.shape(1, columns)
        value = tx.exp(x[at, region])
        out(at, region).store(value / tx.reduce(value, columns, tx.add))
'''


@pytest.fixture(scope="session")
def kernel_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "tuned_kernels.py"
    path.write_text(KERNELS)
    return path


# Loads TVM once and becomes a server or a tracker by copies, each in a process group of its own
# that ends with this process, also when that one is killed.
FARM = """
import os, signal, sys, time
from tvm.rpc.server import _popen_start_rpc_server
from tvm.rpc.tracker import _popen_start_tracker_server

def serve(port, tracker="0", key=""):
    address = ("127.0.0.1", int(tracker)) if int(tracker) else None
    _popen_start_rpc_server(
        "127.0.0.1", port, port + 1, tracker_addr=address, key=key, silent=True,
        custom_addr="127.0.0.1",
    )

def track(port):
    _popen_start_tracker_server("127.0.0.1", port, port + 1, silent=True)

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead leave at once
for line in sys.stdin:
    what, port, *arguments = line.rstrip("\\n").split(" ")
    parent = os.getpid()
    if os.fork():
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    {"server": serve, "tracker": track}[what](int(port), *arguments)
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)
"""


class Loopback:
    """TVM's own RPC servers and trackers."""

    def __init__(self, farm):
        self.farm = farm
        self.started = {}

    def _start(self, what, *arguments):
        port = free_port()
        self.farm.stdin.write(" ".join(map(str, (what, port, *arguments))) + "\n")
        self.farm.stdin.flush()
        self.started[port] = int(self.farm.stdout.readline())
        return port

    def server(self, tracker=0, key=""):
        return self._start("server", tracker, key)

    def tracker(self):
        return self._start("tracker")

    def kill(self, port):
        process = self.started.pop(port)
        os.killpg(process, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            while os.kill(process, 0) is None:
                time.sleep(0.01)

    def close(self):
        for port in list(self.started):
            self.kill(port)


@pytest.fixture(scope="session")
def farm():
    process = subprocess.Popen(
        [sys.executable, "-c", FARM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.communicate(timeout=60)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def loopback(farm):
    servers = Loopback(farm)
    yield servers
    servers.close()


# torch as far as TVM looks at it. What it is asked while tvm_ffi is imported initializes CUDA.
TORCH = """
import ctypes


class Tensor:
    __dlpack_c_exchange_api__ = None


class _C:
    @staticmethod
    def _cuda_getDevice():
        return 0


class cuda:
    class Stream:
        __cuda_stream__ = None

    current_device = _C._cuda_getDevice

    @staticmethod
    def is_initialized():
        return False

    @staticmethod
    def is_available():
        return ctypes.CDLL("libcudart.so.13").cudaGetDeviceCount(ctypes.byref(ctypes.c_int())) == 0


def __getattr__(name):
    if name.startswith("_"):
        raise AttributeError(name)
    return name  # an element type
"""

NVCC = """#!/bin/sh
echo "$*" >>"$STANDIN_COMPILED"
while [ "$1" != -o ]; do shift; done
echo machine code >"$2"
"""


class CudaStandin:
    """Commands in processes that find the stand-in of CUDA, of torch and of nvcc."""

    def __init__(self, folder, log):
        self.log, self.compiled = log / "initialized", log / "compiled"
        path = os.pathsep.join([str(folder / "site"), str(Path(__file__).parents[2])])
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder / "lib"),
            "CUDA_HOME": str(folder / "toolkit"),
            "PYTHONPATH": path,
            "STANDIN_LOG": str(self.log),
            "STANDIN_COMPILED": str(self.compiled),
            "STANDIN_SHAPE": "8x256",
        }

    def run(self, *arguments, **other):
        """Run Python with these arguments."""
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            env={**self.environment, **other},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def tune(self, output, *arguments, **other):
        """Tune softmax of the stand-in's shape; the report."""
        quick = ("--samples", 2, "--sample-ms", 1, "--warmup-ms", 1, "--no-html", "--no-database")
        threads = ("--tune-group-threads", "32,64,128,256")
        head = ("-m", "tvm_tilex", "tune", "softmax", "--shape", "8x256", "--output", output)
        done = self.run(*head, *quick, *threads, *arguments, **other)
        assert (output / "report.json").exists(), done.stderr
        return json.loads((output / "report.json").read_text())

    @property
    def initialized(self):
        """The processes that have initialized CUDA."""
        return [int(line) for line in self.log.read_text().split()]


@pytest.fixture(scope="session")
def cuda_libraries(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("the stand-in of CUDA needs Linux and a C compiler")
    folder = tmp_path_factory.mktemp("cuda")
    for name in ("lib", "site/torch", "toolkit/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "site/torch/__init__.py").write_text(TORCH)
    (folder / "site/torch/version.py").write_text("")
    nvcc = folder / "toolkit/bin/nvcc"
    nvcc.write_text(NVCC)
    nvcc.chmod(0o755)
    # TVM asks for the runtime's functions by their version.
    (folder / "versions").write_text("libcudart.so.13 { global: cuda*; };\n")
    source = Path(__file__).parent / "cuda_standin" / "cuda_standin.c"
    library = folder / "lib/libcuda.so.1"
    flags = ("-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1")
    script = f"-Wl,--version-script={folder / 'versions'}"
    command = [compiler, *flags, script, "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True)
    (folder / "lib/libcudart.so.13").symlink_to("libcuda.so.1")
    return folder


@pytest.fixture
def cuda_standin(cuda_libraries, tmp_path):
    return CudaStandin(cuda_libraries, tmp_path)
