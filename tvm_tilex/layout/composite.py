"""Maps built from maps: translation, composition, product, registered transform, pieces."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from tvm_tilex.errors import LayoutError
from tvm_tilex.layout.base import LayoutMap, Piece, check_leaves, checks_of
from tvm_tilex.layout.expr import Expr
from tvm_tilex.layout.index_set import Axis, IndexSet
from tvm_tilex.layout.transforms import BoundTransform, bind_transform, check_transform
from tvm_tilex.layout.visitor import substitute

__all__ = ["Compose", "Piecewise", "Product", "Transform", "Translate"]


@dataclass(frozen=True)
class Translate(LayoutMap):
    """Add ``offset`` (one integer per codomain axis) to the values of ``map``.

    The codomain is that of ``map`` moved by the offset, unless ``target`` states another.
    """

    offset: tuple[int, ...]
    map: LayoutMap
    target: IndexSet | None = None

    def __post_init__(self) -> None:
        if len(self.offset) != self.map.codomain.rank:
            raise LayoutError(f"offset {self.offset} for the axes {self.map.codomain.names}")
        if self.target is not None and self.target.rank != len(self.offset):
            raise LayoutError(f"target {self.target} does not fit the offset {self.offset}")
        _ = self.codomain  # an axis moved past 64-bit range is refused here

    @property
    def domain(self) -> IndexSet:
        """The domain of ``map``."""
        return self.map.domain

    @property
    def codomain(self) -> IndexSet:
        """The moved codomain."""
        if self.target is not None:
            return self.target
        inner = self.map.codomain
        axes = tuple(
            Axis(a.name, a.extent, a.lower + d)
            for a, d in zip(inner.axes, self.offset, strict=True)
        )
        back: dict[str, Expr] = {
            c.name: c - d for c, d in zip(inner.coordinates, self.offset, strict=True)
        }
        return IndexSet(axes, substitute(inner.guards, back), inner.parameters)

    def build_pieces(self) -> tuple[Piece, ...]:
        """Add the offset in each branch, after the obligation on the inner codomain."""
        return tuple(
            Piece(
                p.guards,
                p.checks + checks_of(p.outputs, self.map.codomain),
                tuple(o + d if d else o for o, d in zip(p.outputs, self.offset, strict=True)),
            )
            for p in self.map.pieces
        )


@dataclass(frozen=True)
class Compose(LayoutMap):
    """``outer o inner``: axes correspond by position. Always a map; flattening is separate.

    Raises
    ------
    LayoutError
        Where the inner codomain is not inside the outer domain and the values of ``inner`` are
        not proved to be; the message names the mode.
    """

    outer: LayoutMap
    inner: LayoutMap

    def __post_init__(self) -> None:
        from tvm_tilex.layout.typing_rules import require_composable

        require_composable(self.outer, self.inner)

    @property
    def domain(self) -> IndexSet:
        """The domain of ``inner`` (with the parameters of both)."""
        inner = self.inner.domain
        if not self.outer.domain.parameters:
            return inner
        return IndexSet(inner.axes, inner.guards, inner.parameters + self.outer.domain.parameters)

    @property
    def codomain(self) -> IndexSet:
        """The codomain of ``outer``."""
        return self.outer.codomain

    def build_pieces(self) -> tuple[Piece, ...]:
        """Substitute; outer branches multiply with inner ones."""
        built: list[Piece] = []
        for inner in self.inner.pieces:
            values = dict(zip(self.outer.domain.names, inner.outputs, strict=True))
            checks = inner.checks + checks_of(inner.outputs, self.inner.codomain)
            for piece in self.outer.pieces:
                more = tuple(
                    type(c)(substitute((c.value,), values)[0], c.axis) for c in piece.checks
                )
                built.append(
                    Piece(
                        inner.guards + substitute(piece.guards, values),
                        checks + more,
                        substitute(piece.outputs, values),
                    )
                )
        return tuple(built)


def _joined(sets: list[IndexSet]) -> tuple[IndexSet, list[dict[str, Expr]]]:
    """Return the product set and, per factor, its old coordinate names in terms of the new."""
    names = [name for s in sets for name in s.names]
    clash = {name for name in names if names.count(name) > 1}
    axes: list[Axis] = []
    guards: list[Expr] = []
    renames: list[dict[str, Expr]] = []
    taken = set(names)
    for number, factor in enumerate(sets):
        rename: dict[str, Expr] = {}
        for axis, x in zip(factor.axes, factor.coordinates, strict=True):
            name = axis.name
            if name in clash:
                name = f"{axis.name}_{number}"
                while name in taken:
                    name += "_"
                taken.add(name)
            moved = Axis(name, axis.extent, axis.lower)
            axes.append(moved)
            rename[x.name] = IndexSet((moved,), (), factor.parameters).coordinates[0]
        guards.extend(substitute(factor.guards, rename))
        renames.append(rename)
    parameters = tuple(dict.fromkeys(p for s in sets for p in s.parameters))
    return IndexSet(tuple(axes), tuple(guards), parameters), renames


@dataclass(frozen=True)
class Product(LayoutMap):
    """``(f1 x f2 x ...)(x1, x2, ...) = (f1(x1), f2(x2), ...)``.

    An axis name that occurs in several factors is renamed ``name_<factor number>``.
    """

    maps: tuple[LayoutMap, ...]

    def __post_init__(self) -> None:
        if not self.maps:
            raise LayoutError("a product needs at least one map")
        domain, renames = _joined([m.domain for m in self.maps])
        object.__setattr__(self, "_domain", domain)
        object.__setattr__(self, "_renames", renames)
        object.__setattr__(self, "_codomain", _joined([m.codomain for m in self.maps])[0])

    @property
    def domain(self) -> IndexSet:
        """The product of the domains."""
        return self._domain  # type: ignore[attr-defined,no-any-return]

    @property
    def codomain(self) -> IndexSet:
        """The product of the codomains."""
        return self._codomain  # type: ignore[attr-defined,no-any-return]

    def build_pieces(self) -> tuple[Piece, ...]:
        """Pair every branch of each factor with every branch of the others."""
        renamed: list[list[Piece]] = []
        for factor, rename in zip(self.maps, self._renames, strict=True):  # type: ignore[attr-defined]
            renamed.append([_renamed(piece, rename) for piece in factor.pieces])
        return tuple(
            Piece(
                tuple(g for p in choice for g in p.guards),
                tuple(c for p in choice for c in p.checks),
                tuple(o for p in choice for o in p.outputs),
            )
            for choice in product(*renamed)
        )


def _renamed(piece: Piece, rename: dict[str, Expr]) -> Piece:
    return Piece(
        substitute(piece.guards, rename),
        tuple(type(c)(substitute((c.value,), rename)[0], c.axis) for c in piece.checks),
        substitute(piece.outputs, rename),
    )


@dataclass(frozen=True)
class Transform(LayoutMap):
    """A registered bijection applied to the single value of ``map``.

    The hooks are checked on construction against the evaluator; a contradiction is refused. The
    codomain is ``[0, image_extent)`` of the transform.
    """

    name: str
    arguments: tuple[int, ...]
    map: LayoutMap

    def __post_init__(self) -> None:
        inner = self.map.codomain
        if inner.rank != 1 or inner.guards or inner.box_size is None or inner.axes[0].lower:
            raise LayoutError(f"transform '{self.name}' needs one static zero-based axis")
        bound = bind_transform(self.name, self.arguments)
        exhaustive = check_transform(bound, inner.box_size)
        object.__setattr__(self, "_bound", bound)
        object.__setattr__(self, "_checked", exhaustive)
        _ = self.codomain

    @property
    def bound(self) -> BoundTransform:
        """The transform with its arguments."""
        return self._bound  # type: ignore[attr-defined,no-any-return]

    @property
    def checked_exhaustively(self) -> bool:
        """Whether the hooks were compared with the evaluator on every point."""
        return self._checked  # type: ignore[attr-defined,no-any-return]

    @property
    def domain(self) -> IndexSet:
        """The domain of ``map``."""
        return self.map.domain

    @property
    def codomain(self) -> IndexSet:
        """The declared image."""
        axis = self.map.codomain.axes[0]
        return IndexSet((Axis(axis.name, self.bound.image_extent(axis.bounds()[1] + 1)),))

    def build_pieces(self) -> tuple[Piece, ...]:
        """Apply the DAG, or the opaque call, in each branch."""
        return tuple(
            Piece(
                p.guards,
                p.checks + checks_of(p.outputs, self.map.codomain),
                (self.bound.expression(p.outputs[0]),),
            )
            for p in self.map.pieces
        )


@dataclass(frozen=True)
class Piecewise(LayoutMap):
    """``branches[k]`` where the guards ``guards[k]`` all hold; guards are proved disjoint.

    Only the chosen branch is evaluated. All branches have the same domain box and codomain. A
    point that no branch covers makes the map partial (totality).

    Raises
    ------
    LayoutError
        Where two branches overlap, or where disjointness is not decided.
    """

    guards: tuple[tuple[Expr, ...], ...]
    branches: tuple[LayoutMap, ...]
    domain: IndexSet = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        from tvm_tilex.layout.typing_rules import require_disjoint

        if not self.branches or len(self.guards) != len(self.branches):
            raise LayoutError(f"{len(self.guards)} guards for {len(self.branches)} branches")
        if self.domain is None:
            object.__setattr__(self, "domain", self.branches[0].domain)
        for number, branch in enumerate(self.branches):
            if branch.domain.axes != self.domain.axes:
                raise LayoutError(f"branch {number} has the domain {branch.domain}")
            if branch.codomain != self.branches[0].codomain:
                raise LayoutError(f"branch {number} has the codomain {branch.codomain}")
            extra = set(branch.domain.guards) - set(self.domain.guards) - set(self.guards[number])
            if extra:
                raise LayoutError(f"branch {number} is limited by the guard {min(map(str, extra))}")
        check_leaves("piecewise guard", tuple(g for gs in self.guards for g in gs), self.domain)
        require_disjoint(self.domain, self.guards)

    @property
    def codomain(self) -> IndexSet:
        """The common codomain."""
        return self.branches[0].codomain

    def build_pieces(self) -> tuple[Piece, ...]:
        """Prefix each branch's own pieces with its guards."""
        return tuple(
            Piece(guards + p.guards, p.checks, p.outputs)
            for guards, branch in zip(self.guards, self.branches, strict=True)
            for p in branch.pieces
        )
