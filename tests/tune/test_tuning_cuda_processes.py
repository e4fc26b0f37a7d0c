"""Tuning on CUDA in processes: CUDA works in no copy of a process that has initialized it.

Everything is real (the command, its worker processes, TVM's CUDA runtime) but CUDA itself, which is
a stand-in that fails in copies of an initialized process as CUDA does.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys

import pytest

import tvm_tilex as tx
from tvm_tilex import kernels

HERE = "default"


def outcomes(report):
    (section,) = report["sections"]
    return {
        trial["choices"].get("threads_per_group", HERE): trial["status"]
        for trial in section["trials"]
    }


THREADS = (32, 64, 128, 256)
ALL = {HERE, *THREADS}


def others_than_default(target):
    """Thread counts that are tried beside the default's own, whatever the cost policy chooses."""
    entry = kernels.catalog()["softmax"]
    chosen = tx.compile(entry.kernel, *entry.specs(8, 256), target=target).plan.threads
    return [threads for threads in THREADS[:-1] if threads != chosen]


def test_the_stand_in_fails_in_a_copy_of_an_initialized_process(cuda_standin):
    """And so does what tvm_ffi makes of torch, without which this file would test nothing."""
    text = """
import os, sys
import tvm

exists = lambda: bool(tvm.runtime.device("cuda", 0).exist)
copied = os.fork()
if copied == 0:
    try:
        print("copy", tvm.runtime.device("cuda", 0).compute_version, flush=True)
    except RuntimeError as error:
        print("copy", str(error).splitlines()[-1], flush=True)
    os._exit(0)
os.waitpid(copied, 0)
print("original", tvm.runtime.device("cuda", 0).compute_version)
"""
    done = cuda_standin.run("-c", text)
    assert "copy CUDA Runtime Error: cudaErrorInitializationError (3)" in done.stdout, done.stderr
    assert "original 9.0" in done.stdout
    allowed = cuda_standin.run("-c", text, TVM_FFI_DISABLE_TORCH_C_DLPACK="1")
    assert "copy 9.0" in allowed.stdout and "original 9.0" in allowed.stdout


def test_initialized_cuda_is_noticed_and_asking_initializes_nothing(cuda_standin):
    text = """
from tvm_tilex.tune.untouched import initialized_cuda
import tvm

print(initialized_cuda(), tvm.runtime.device("cuda", 0).exist, initialized_cuda())
"""
    done = cuda_standin.run("-c", text, TVM_FFI_DISABLE_TORCH_C_DLPACK="1")
    assert done.stdout == "False True True\n", done.stderr


@pytest.mark.parametrize(
    ("target", "metric", "scopes"),
    [("h200", "gpu-control", {"gpu", "end_to_end"}), ("cuda", "host-wall", {"end_to_end", "gpu"})],
)
def test_candidates_of_cuda_run_in_copies_and_end_alone(
    cuda_standin, tmp_path, target, metric, scopes
):
    """One candidate ends its process, one hangs; the others are measured and replayed."""
    out = tmp_path / "out"
    crash, hang = others_than_default(target)[:2]
    report = cuda_standin.tune(
        *(out, "--target", target, "--tuning-metric", metric, "--time-limit", 3),
        STANDIN_CRASH=str(crash),
        STANDIN_HANG=str(hang) if metric == "gpu-control" else "0",
    )
    hung = "timeout" if metric == "gpu-control" else "valid"
    assert outcomes(report) == {**dict.fromkeys(ALL, "valid"), crash: "crashed", hang: hung}
    (section,) = report["sections"]
    trial = section["winner"]["trial"]
    assert {m["scope"] for m in trial["measurements"]} == scopes
    assert trial["device"] == "stand-in"
    if metric == "gpu-control":  # its clock says so
        assert trial["facts"]["plan"]["threads"] == 256
        gpu = next(m for m in trial["measurements"] if m["scope"] == "gpu")
        assert gpu["value"] == pytest.approx(0.001)
    # The tuner; at least one copy for the searched trials and one for each fresh measurement.
    assert len(set(cuda_standin.initialized)) == len(cuda_standin.initialized) >= 4
    again = cuda_standin.run("-m", "tvm_tilex", "tune", "--replay", out)
    assert "right over every output" in again.stdout, again.stderr


def test_a_process_that_has_initialized_cuda_is_not_copied(cuda_standin, tmp_path):
    """Something else that is loaded may ask, too: jobs then run in the process itself."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import torch\n\ntorch.cuda.is_available()\n")
    path = f"{site}:{cuda_standin.environment['PYTHONPATH']}"
    crash, *_ = others_than_default("h200")
    report = cuda_standin.tune(
        *(tmp_path / "out", "--target", "h200", "--tuning-metric", "gpu-control"),
        STANDIN_CRASH=str(crash),
        PYTHONPATH=path,
    )
    assert outcomes(report) == {**dict.fromkeys(ALL, "valid"), crash: "crashed"}
    assert report["sections"][0]["winner"]["trial"]["facts"]["plan"]["threads"] == 256


SERVER = """
import sys, time
from tvm.rpc.server import _popen_start_rpc_server

port = int(sys.argv[1])
_popen_start_rpc_server("127.0.0.1", port, port + 1, silent=True, custom_addr="127.0.0.1")
print("serving", flush=True)
time.sleep(300)
"""


@contextlib.contextmanager
def serving(cuda_standin, **other):
    """The port of TVM's own RPC server, which runs every session in a copy of itself."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)],
        env={**cuda_standin.environment, **other},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout.readline() == "serving\n"
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.communicate()


@pytest.mark.parametrize("disabled", ["0", "1"])
def test_servers_are_told_apart_by_what_they_were_started_with(cuda_standin, tmp_path, disabled):
    with serving(cuda_standin, TVM_FFI_DISABLE_TORCH_C_DLPACK=disabled) as port:
        report = cuda_standin.tune(
            *(tmp_path / "out", "--target", "h200", "--rpc-server", f"127.0.0.1:{port}"),
            *("--tune-group-threads", "256"),
        )
    reasons = {trial["reason"] for trial in report["sections"][0]["trials"]}
    if disabled == "1":
        assert reasons == {None}
        return
    (reason,) = reasons
    assert "whose sessions are copies" in reason
    assert "start it with TVM_FFI_DISABLE_TORCH_C_DLPACK=1" in reason
