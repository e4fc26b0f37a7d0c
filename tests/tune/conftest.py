"""Quick settings, and kernels in a file whose candidates hang, crash or are refused."""

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import types

import pytest

from tvm_tilex.build.target import resolve_target
from tvm_tilex.transform.options import CompileOptions
from tvm_tilex.tune import Dimension, Settings, Space, Timing

QUICK = Timing(samples=2, sample_ms=0.2, warmup_ms=0.1)


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
    """A row over its sum. Notes every capture where the environment says so."""
    if "CAPTURES" in os.environ:
        with open(os.environ["CAPTURES"], "a") as file:
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


# A server ends with the process that started it, also when that one is killed.
STAY = """
parent = os.getppid()
print("ready", flush=True)
while os.getppid() == parent:
    time.sleep(0.5)
os._exit(0)
"""
SERVER = """
import os, sys, time
from tvm.rpc.server import _popen_start_rpc_server
port, tracker = int(sys.argv[1]), int(sys.argv[2])
address = ("127.0.0.1", tracker) if tracker else None
_popen_start_rpc_server(
    "127.0.0.1", port, port + 1, tracker_addr=address, key=sys.argv[3], silent=True,
    custom_addr="127.0.0.1",
)
"""
TRACKER = """
import os, sys, time
from tvm.rpc.tracker import _popen_start_tracker_server
port = int(sys.argv[1])
_popen_start_tracker_server("127.0.0.1", port, port + 1, silent=True)
"""


class Loopback:
    """TVM's own RPC servers and trackers, each in a process group of its own."""

    def __init__(self):
        self.started = {}

    def _start(self, script, port, *arguments):
        command = [sys.executable, "-c", script + STAY, str(port), *map(str, arguments)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.started[port] = process
        assert process.stdout.readline() == "ready\n"
        return port

    def server(self, tracker=0, key=""):
        return self._start(SERVER, free_port(), tracker, key)

    def tracker(self):
        return self._start(TRACKER, free_port())

    def kill(self, port):
        process = self.started.pop(port)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def close(self):
        for port in list(self.started):
            self.kill(port)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@pytest.fixture
def loopback():
    servers = Loopback()
    yield servers
    servers.close()
