"""Which expressions have no effect and no hidden input."""

from __future__ import annotations

from typing import Any

from tvm_tilex.tirx.compat import IF_THEN_ELSE, PURE, Call, Op, TensorLoad, Var, structural_walk

__all__ = ["TAKES_ADDRESS", "calls", "effect_kind", "impure_call", "loads", "mentions", "reads_own"]

# Registered as pure, but their result is a way to reach other elements.
TAKES_ADDRESS = ("tirx.address_of", "tirx.ptr_byte_offset", "tirx.handle_add_byte_offset")
# Registered as pure, but what the named function does is only claimed: it may read other lanes.
_CLAIMED = ("tirx.call_pure_extern", "tirx.call_llvm_pure_intrin")


_NOT_PURE = (*TAKES_ADDRESS, *_CLAIMED)


def impure_call(expression: Any) -> str | None:
    """Name of the first call in ``expression`` that is not known to be pure, or None.

    A call is pure if its operator's registered effect kind says so. Calls of anything that is not
    an operator, operators without a registered kind, external functions whose purity is only
    claimed, and whatever takes an address are not pure.
    """
    found: list[str] = []

    def visit(call: Call) -> None:
        name, kind = effect_kind(call)
        if kind is None or kind > PURE or name in _NOT_PURE:
            found.append(name)

    structural_walk(expression, (Call, visit))
    return found[0] if found else None


def effect_kind(call: Any) -> tuple[str, int | None]:
    """Name of what is called, and its registered effect kind or None where there is none."""
    if not isinstance(call.op, Op):
        return str(getattr(call.op, "name_hint", call.op)), None
    if call.op.name == IF_THEN_ELSE:
        return IF_THEN_ELSE, PURE
    kind = call.op.get_attr("TCallEffectKind")
    return str(call.op.name), None if kind is None else int(kind)


def loads(expression: Any) -> list[Any]:
    """Every buffer load in ``expression``, inner ones first."""
    found: list[Any] = []
    structural_walk(expression, (TensorLoad, found.append))
    return found


def mentions(node: Any, variable: Any) -> bool:
    """Whether ``variable`` (a Var or a buffer) occurs in ``node``."""
    found: list[bool] = []
    structural_walk(node, (Var, lambda var: found.append(True) if var.same_as(variable) else None))
    return bool(found)


def reads_own(load: Any, program: Any) -> bool:
    """Whether a load's place depends on the variable ``program``, which counts programs."""
    return any(mentions(index, program) for index in load.indices)


def calls(expression: Any) -> tuple[str, ...]:
    """Names of the operators called in ``expression``."""
    found: list[str] = []
    structural_walk(
        expression,
        (Call, lambda call: found.append(str(getattr(call.op, "name", call.op)))),
    )
    return tuple(found)
