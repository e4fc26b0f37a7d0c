"""Reference TIRx as text: exported from kernels, edited once, parsed back and judged."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

import tvm_tilex as tx
from tvm_tilex import kernels
from tvm_tilex.analysis.admission import ROWS, Admission, admit
from tvm_tilex.analysis.proof_record import ProofRecord
from tvm_tilex.build.pipeline import realization, register_pipeline
from tvm_tilex.build.target import resolve_target
from tvm_tilex.tirx import attrs
from tvm_tilex.tirx.compat import IRModule, PrimFunc, tvm
from tvm_tilex.transform import ForwardViews
from tvm_tilex.transform.options import CompileOptions

NOT_EXAMINED = "not examined"
ALWAYS_EXAMINED = ("target and binding", "kernel ABI")


@functools.cache
def exported(name: str, rows: int = 3, columns: int = 70, *, forward: bool = False) -> str:
    """Text of a library kernel's reference function, its snapshots forwarded or not."""
    entry = kernels.catalog()[name]
    module = tx.lower(entry.kernel, *entry.specs(rows, columns))
    if forward:
        module = ForwardViews()(module)
    return module.script()


def parse(text: str) -> IRModule:
    register_pipeline()
    return tvm.script.from_source(text)


def function_of(module: IRModule) -> PrimFunc:
    (function,) = module.functions.values()
    return function


def edited(text: str, *edits: tuple[str, str]) -> str:
    """``text`` with each old part, which must occur exactly once, replaced."""
    for old, new in edits:
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        text = text.replace(old, new)
    return text


def admission(text: str, *, lanes: int = 32, kind: str = "metal") -> Admission:
    return admit(function_of(parse(text)), lanes=lanes, kind=kind)


def assert_only_declines(found: Admission, row: str, reason: str) -> None:
    """The row declines with the reason; all others hold, or could not be examined at all.

    The rule for the others: where the structure was read, they are PROVEN. Where it was not, those
    that need no structure are PROVEN and every other says that it was not examined.
    """
    verdicts = {r.name: r.verdict for r in found.rows}
    assert list(verdicts) == list(ROWS)
    assert found.declined is not None and found.declined.name == row, found.declined
    assert reason in verdicts[row].reason, verdicts[row].reason
    others = {name: v for name, v in verdicts.items() if name != row and not v.proven}
    if others:
        assert all(v.reason.startswith(NOT_EXAMINED) for v in others.values()), others
        assert set(others) == set(ROWS) - {row, *ALWAYS_EXAMINED}
    assert not found.admitted and found.facts is None


def realized(text: str, target: object = "metal", options: CompileOptions | None = None):
    """The function after this package's own passes for a target."""
    module = parse(text)
    resolved = resolve_target(target)
    if options is not None:
        function = function_of(module).with_attr(attrs.OPTIONS, options.to_json())
        module = IRModule({str(function.attrs["global_symbol"]): function})
    return function_of(tvm.ir.transform.Sequential(realization(resolved))(module))


def proof_of(function: PrimFunc) -> ProofRecord:
    return ProofRecord.from_json(str(function.attrs[attrs.PROOF]))


def bound(text: str) -> str:
    """The same program with its root bound to SIMD groups by the source."""
    old = '"tilex.parallel": 0}'
    return edited(text, (old, '"tilex.binding": "subgroup", "tilex.parallel": 0}'))


def run_on_llvm(text: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compile for the processor and run on copies; returns all arrays afterwards."""
    module = parse(text)
    executable = tvm.compile(module, target=resolve_target("llvm"), tir_pipeline="tilex")
    (name,) = (str(v.name_hint) for v in module.functions)
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    executable[name](*tensors)
    return tuple(tensor.numpy() for tensor in tensors)


@dataclass(frozen=True)
class Mutation:
    """Single edits of an exported kernel that break one row; ``reason`` is part of its reason.

    ``meaning`` maps the inputs to the wanted output where the edited program still has one.
    """

    kernel: str
    row: str
    reason: str
    edits: tuple[tuple[str, str], ...]
    meaning: object = None

    @property
    def text(self) -> str:
        return edited(exported(self.kernel), *self.edits)
