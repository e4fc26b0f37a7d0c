"""Several compiled kernels in one shared library, with a manifest that says what they are.

The manifest is in the library itself, as text that two functions return
(:mod:`tvm_tilex.tirx.embedded_text`), so that a process without this package can list the entries
and know their arguments. Its form, as JSON::

    {"format": 1, "producer": "tvm_tilex 0.1.0", "tvm": "0.27.0", "target": "llvm ...",
     "entries": [{"name": "softmax", "kernel": "softmax", "signature": "softmax(...)",
                  "arguments": [{"name": "input", "access": "in", "dtype": "float32",
                                 "shape": ["P", 4096], "alignment": 4}, ...],
                  "dimensions": {"P": [0, 2147483647]},
                  "variants": [{"ranges": {"P": [1, 2147483647]}, "plan": null}]}]}

``alignment`` is in bytes: the base address of the argument must be a multiple of it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tvm_tilex.build.pipeline import register_pipeline
from tvm_tilex.build.target import host_target
from tvm_tilex.errors import ArgumentError
from tvm_tilex.ir import View
from tvm_tilex.runtime.artifact import Artifact
from tvm_tilex.tirx.compat import IRModule, tvm
from tvm_tilex.tirx.embedded_text import text_functions

__all__ = ["MANIFEST", "export_library", "manifest_of"]

MANIFEST = "tilex_manifest"
_PACKAGE = __name__.partition(".")[0]


def export_library(
    path: str | Path, artifacts: Mapping[str, Artifact] | Iterable[Artifact]
) -> Path:
    """Write one shared library of several kernels, which TVM's runtime alone loads.

    Parameters
    ----------
    path
        The file; its name ends in ``.so``, ``.dylib`` or ``.dll``.
    artifacts
        Compiled kernels of one target, by the names of the library's entries, or in any order
        under their kernels' names. An artifact with dynamic extents is one entry with all its
        classes.

    Raises
    ------
    ArgumentError
        If there is none, a name is no identifier or taken, or the targets differ.
    TargetError
        If a kernel needs precise math that the toolchain here cannot give.
    """
    register_pipeline()
    entries = _named(artifacts)
    first = next(iter(entries.values()))
    functions: dict[str, Any] = {}
    for name, artifact in entries.items():
        if str(artifact.target) != str(first.target):
            raise ArgumentError(
                f"export_library: {name!r} is for another target than {next(iter(entries))!r}"
            )
        artifact.require_launchable()
        function = artifact.scheduled[artifact.name]
        functions[name] = function.with_attr("global_symbol", name)
    text = json.dumps(manifest_of(entries), sort_keys=True)
    host = first.target.host or host_target()
    for name, function in text_functions(MANIFEST, text).items():
        functions[name] = function.with_attr("target", host)
    module = tvm.compile(IRModule(functions), target=first.target, tir_pipeline="tilex")
    module.export_library(str(path))
    return Path(path)


def manifest_of(entries: Mapping[str, Artifact]) -> dict[str, Any]:
    """What the manifest says, as JSON's types."""
    target = str(next(iter(entries.values())).target)
    return {
        "format": 1,
        "producer": f"{_PACKAGE} {sys.modules[_PACKAGE].__version__}",
        "tvm": str(tvm.__version__),
        "target": target,
        "entries": [_entry(name, artifact) for name, artifact in entries.items()],
    }


def _named(artifacts: Mapping[str, Artifact] | Iterable[Artifact]) -> dict[str, Artifact]:
    if isinstance(artifacts, Mapping):
        pairs = list(artifacts.items())
    else:
        pairs = [(artifact.name, artifact) for artifact in artifacts]
    if not pairs:
        raise ArgumentError("export_library: no artifact is given")
    found: dict[str, Artifact] = {}
    for name, artifact in pairs:
        if not name.isidentifier() or name.startswith(MANIFEST):
            raise ArgumentError(f"export_library: {name!r} is no name of an entry")
        if name in found:
            raise ArgumentError(
                f"export_library: two entries are named {name!r}; give a mapping of names"
            )
        found[name] = artifact
    return found


def _entry(name: str, artifact: Artifact) -> dict[str, Any]:
    return {
        "name": name,
        "kernel": artifact.name,
        "signature": _signature(name, artifact),
        "arguments": [_argument(view, artifact.alignment) for view in artifact.tile_ir.views],
        "dimensions": {d.name: [d.minimum, d.maximum] for d in artifact.dimensions},
        "variants": [
            {
                "ranges": {d.name: [d.minimum, d.maximum] for d in variant.dimensions},
                "plan": None if variant.plan is None else variant.plan.describe(),
            }
            for variant in artifact.variants
        ],
    }


def _argument(view: View, alignment: Mapping[str, int]) -> dict[str, Any]:
    return {
        "name": view.name,
        "access": view.access.value,
        "dtype": view.dtype.name,
        "shape": [extent if isinstance(extent, int) else extent.name for extent in view.shape],
        "alignment": max(view.dtype.bytes, alignment.get(view.name, 1)),
    }


def _signature(name: str, artifact: Artifact) -> str:
    """``softmax(input: in float32[P, 8], output: out float32[P, 8]) P: 0..2147483647``."""
    views = ", ".join(
        f"{v.name}: {v.access.value} {v.dtype}[{', '.join(map(str, v.shape))}]"
        for v in artifact.tile_ir.views
    )
    ranges = ", ".join(f"{d.name}: {d.range}" for d in artifact.dimensions)
    return f"{name}({views}) {ranges}".rstrip()
