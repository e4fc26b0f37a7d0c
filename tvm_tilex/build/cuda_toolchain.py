"""CUDA source to machine code by nvcc or NVRTC, with the options stated and none of TVM's added."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_tilex.errors import TargetError

__all__ = ["compile_cubin", "find_nvcc", "include_folders"]


def compile_cubin(source: str, arch: str, options: Sequence[str]) -> bytes:
    """Compile to a cubin for ``arch`` (``"sm_90"``).

    By nvcc where there is one, else by NVRTC (the ``cuda-bindings`` package); TVM's variable
    ``TVM_CUDA_COMPILE_MODE`` (``nvrtc`` or ``nvcc``) decides where it is set.

    Raises
    ------
    TargetError
        If there is no compiler, or it rejects the source; the message is its first error.
    """
    mode = os.environ.get("TVM_CUDA_COMPILE_MODE", "").lower()
    nvcc = find_nvcc() if mode != "nvrtc" else None
    if nvcc is not None:
        return _by_nvcc(nvcc, source, arch, options)
    if mode != "nvcc" and _has_nvrtc():
        return _by_nvrtc(source, arch, options)
    raise TargetError("no CUDA compiler: neither nvcc nor the cuda-bindings package (NVRTC)")


def find_nvcc() -> str | None:
    """Path of nvcc: under ``CUDA_HOME`` or ``CUDA_PATH``, on the path, or in /usr/local/cuda."""
    for folder in _toolkits():
        if (folder / "bin" / "nvcc").is_file():
            return str(folder / "bin" / "nvcc")
    return shutil.which("nvcc")


def _toolkits() -> tuple[Path, ...]:
    stated = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    on_path = shutil.which("nvcc")
    found = [Path(folder) for folder in stated if folder]
    found += [Path(on_path).resolve().parent.parent] if on_path else []
    return (*found, Path("/usr/local/cuda"))


def include_folders() -> tuple[Path, ...]:
    """Folders of the CUDA headers, those of libcu++ among them."""
    found: list[Path] = []
    for folder in (*_toolkits(), *_wheels()):
        for include in (folder / "include", *folder.glob("targets/*/include")):
            if (include / "cuda_fp16.h").is_file():
                found += [include, include / "cccl"]
        if found:
            break
    return tuple(folder for folder in found if folder.is_dir())


def _wheels() -> tuple[Path, ...]:
    """Where the packages nvidia-cuda-* put a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    return tuple(path for folder in folders for path in sorted(Path(folder).glob("cu*")))


def _by_nvcc(nvcc: str, source: str, arch: str, options: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilex-cuda-") as folder:
        text, cubin = Path(folder, "kernel.cu"), Path(folder, "kernel.cubin")
        text.write_text(source, encoding="utf-8")
        command = [nvcc, "-cubin", "-O3", f"-arch={arch}", *options, "-o", str(cubin), str(text)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise TargetError(f"nvcc: {_first_error(run.stderr or run.stdout)}")
        return cubin.read_bytes()


@functools.cache
def _has_nvrtc() -> bool:
    try:
        found = importlib.util.find_spec("cuda.bindings.nvrtc")
    except ImportError:
        return False
    return found is not None and bool(include_folders())


def _by_nvrtc(source: str, arch: str, options: Sequence[str]) -> bytes:
    from cuda.bindings import nvrtc

    def checked(result: tuple[Any, ...]) -> Any:
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise TargetError(f"NVRTC: {result[0].name}")
        return result[1] if len(result) > 1 else None

    # nvcc includes the host's headers by itself; these have no place here.
    text = source.replace("#include <cuda.h>", "")
    program = checked(nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], []))
    try:
        includes = [f"-I{folder}" for folder in include_folders()]
        stated = [f"--gpu-architecture={arch}", "-default-device", *options, *includes]
        flags = [option.encode() for option in stated]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            raise TargetError(f"NVRTC: {_first_error(log.decode(errors='replace'))}")
        cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
        checked(nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _first_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["failed without a message"])[0]
