"""The architecture's arrows: no package imports one to its right, and only some import TVM."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "tvm_tilex"
BASE = frozenset({"errors", "settings", "support"})
# What each package may import beside itself and BASE; modules of the top folder by name.
MAY_IMPORT = {
    "errors": set(),
    "settings": set(),
    "support": set(),
    "layout": set(),
    "plan": set(),
    "sim": set(),
    "ir": {"layout"},
    "lang": {"ir", "layout"},
    "kernels": {"lang", "ir"},
    "tirx": {"ir", "layout"},
    "lowering": {"ir", "layout", "tirx"},
    "analysis": {"ir", "layout", "tirx", "plan"},
    "transform": {"ir", "layout", "tirx", "lowering", "analysis", "plan"},
    "build": {"ir", "tirx", "lowering", "analysis", "plan", "transform"},
    "runtime": {"ir", "tirx", "lowering", "analysis", "plan", "transform", "build", "sim"},
    "driver": {
        "ir", "lang", "tirx", "lowering", "analysis", "plan", "transform", "build", "runtime",
    },
    "torch": {"kernels", "lang", "ir", "transform"},
    "tune": {"driver", "runtime", "build", "transform", "plan", "kernels", "ir", "lang"},
}  # fmt: skip
# Modules whose job is to look further, inside a function, so that importing them stays cheap.
LAZY = {
    ("lang.kernel", "driver"),  # a call compiles and launches
    ("driver", "tune"),  # a stored winner's options, when told to use them
    ("__init__", "*"),  # public names are resolved on first use
}
TVM = {"tirx", "lowering", "analysis", "transform", "build", "runtime", "driver", "tools", "tune"}
OUTER = {"tools", "__init__", "__main__"}  # may import anything, and nothing imports them


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path):
    """Every imported module's full name, wherever in the file, unless only for type checkers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for part in node.body
        for inner in ast.walk(part)
    }
    for node in ast.walk(tree):
        if id(node) in checking:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "tvm_tilex":
                yield from (f"tvm_tilex.{alias.name}" for alias in node.names)
            else:
                yield node.module


def package_of(module):
    return module.split(".")[1] if module.count(".") else ""


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_arrows(path):
    name = name_of(path)
    own = name.split(".")[0]
    if own in OUTER:
        return
    for module in imports(path):
        root = module.split(".")[0]
        if root == "tvm":
            assert own in TVM, f"{name} imports {module}"
        if root != "tvm_tilex":
            continue
        other = package_of(module)
        allowed = MAY_IMPORT[own] | BASE | {own}
        assert other in allowed or (name, other) in LAZY, f"{name} imports {module}"


def test_every_package_has_its_row():
    found = {name_of(path).split(".")[0] for path in modules()} - OUTER
    assert found <= set(MAY_IMPORT)


def test_the_table_itself_has_no_cycle():
    done = set(BASE)
    while len(done) < len(MAY_IMPORT):
        ready = {name for name, may in MAY_IMPORT.items() if may <= done} - done
        assert ready, "a cycle among " + ", ".join(set(MAY_IMPORT) - done)
        done |= ready


def test_the_simulator_knows_errors_only():
    for path in (PACKAGE / "sim").glob("*.py"):
        ours = {package_of(m) for m in imports(path) if m.startswith("tvm_tilex")}
        assert ours <= {"sim", "errors"}, path.name


def test_analysis_takes_only_the_vocabulary_of_plan():
    """Facts and resource formulas, which are integers; never a candidate, a cost or a plan."""
    vocabulary = {f"tvm_tilex.plan.{name}" for name in ("facts", "group_facts", "resources")}
    for path in (PACKAGE / "analysis").glob("*.py"):
        found = {m for m in imports(path) if m.startswith("tvm_tilex.plan")}
        assert found <= vocabulary, path.name


def test_a_measurement_cannot_reach_what_decides_legality():
    """The tuner picks among plans: it sees neither proofs nor passes, and they do not see it."""
    deciding = {"analysis", "lowering", "tirx", "sim"}
    assert not MAY_IMPORT["tune"] & deciding
    for package in (*deciding, "plan", "transform", "build", "runtime"):
        assert "tune" not in MAY_IMPORT[package], package
    # What the compiler takes from the tuner is options, by one door.
    found = {m for m in imports(PACKAGE / "driver.py") if m.startswith("tvm_tilex.tune")}
    assert found == {"tvm_tilex.tune.lookup"}
    # Of the passes' package the tuner knows the options alone, and of plans nothing.
    for path in (PACKAGE / "tune").glob("*.py"):
        ours = {m for m in imports(path) if package_of(m) in ("transform", "plan")}
        assert ours <= {"tvm_tilex.transform.options"}, path.name


def test_plan_sees_integers_only():
    for path in (PACKAGE / "plan").glob("*.py"):
        roots = {m.split(".")[0] for m in imports(path)}
        assert not roots & {"tvm", "tvm_ffi", "numpy", "torch"}, path.name


FRESH = """
import sys
import tvm_tilex as tx
{more}
loaded = [m for m in ("tvm", "torch", "tvm_ffi", "jax") if m in sys.modules]
print(loaded, len(tx.kernels.softmax.artifacts) if "tvm_tilex.kernels" in sys.modules else 0)
"""


@pytest.mark.parametrize("more", ["", "tx.kernels, tx.layout, tx.sim, tx.errors"])
def test_importing_loads_neither_tvm_nor_torch_and_compiles_nothing(more):
    done = subprocess.run(
        [sys.executable, "-c", FRESH.format(more=more)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[] 0"


def test_importing_captures_nothing():
    script = (
        "import tvm_tilex.lang.capture as c\n"
        "def refuse(*a, **k): raise SystemExit('traced at import')\n"
        "c.Capture.__init__ = refuse\n"
        "import tvm_tilex, tvm_tilex.kernels, tvm_tilex.driver\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
