"""The pipeline by name: an IRModule of ours through TVM's own entry points."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tvm
import tvm_ffi

import tvm_tilex as tx
from tvm_tilex.build.target import host_target, resolve_target
from tvm_tilex.errors import LoweringError, MappingError, TargetError, VerifyError
from tvm_tilex.tirx.compat import prim_func_pass

SOFTMAX = tx.kernels.catalog()["softmax"]
SPECS = SOFTMAX.specs(5, 127)
BUILDERS = {
    "compile": lambda mod, target: tvm.compile(mod, target=target, tir_pipeline="tilex"),
    "build": lambda mod, target: tvm.tirx.build(mod, target, pipeline="tilex"),
}


@pytest.mark.parametrize("builder", BUILDERS)
def test_llvm_runs_and_is_right(builder):
    module = BUILDERS[builder](tx.lower(SOFTMAX.kernel, *SPECS), host_target())
    arrays = SOFTMAX.arguments(5, 127)
    module["softmax"](*map(tvm_ffi.from_dlpack, arrays))
    assert all(comparison.within for comparison in SOFTMAX.check(arrays))


def source(built):
    module = getattr(built, "mod", built)
    return module.imports[0].inspect_source()


@pytest.mark.parametrize("builder", BUILDERS)
def test_metal_emits_the_artifacts_own_text(builder):
    built = BUILDERS[builder](tx.lower(SOFTMAX.kernel, *SPECS), resolve_target("metal"))
    artifact = tx.compile(SOFTMAX.kernel, *SPECS, target="metal")
    assert "kernel void softmax_kernel" in source(built)
    assert source(built) == artifact.source


def test_a_module_of_two_kernels():
    module = tx.lower(SOFTMAX.kernel, *SPECS)
    entry = tx.kernels.catalog()["row_sum"]
    module.update(tx.lower(entry.kernel, *entry.specs(5, 127)))
    built = tvm.compile(module, target=host_target(), tir_pipeline="tilex")
    arrays = entry.arguments(5, 127)
    built["row_sum"](*map(tvm_ffi.from_dlpack, arrays))
    assert all(comparison.within for comparison in entry.check(arrays))


def test_passes_run_one_by_one_in_a_pipeline_of_the_users_own():
    passes = [tx.transform.VectorizeReductions(), tx.transform.VectorizeDomains()]
    module = tvm.transform.Sequential(passes)(tx.lower(SOFTMAX.kernel, *SPECS))
    assert "T.vectorized" in module.script()


def fresh(script, **environment):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_importing_tvm_alone_makes_the_pipeline_known_and_loads_nothing():
    known = fresh(
        """
        import sys
        import tvm
        from tvm.tirx.compilation_pipeline import PIPELINE_MAP
        print("tilex" in PIPELINE_MAP, any(m.startswith("tvm_tilex.driver") for m in sys.modules))
        """
    )
    assert known == "True False"


def test_a_saved_module_builds_where_only_tvm_was_imported(tmp_path):
    """The text needs our operators, so the pipeline registers them when it is first used."""
    path = tmp_path / "softmax.json"
    path.write_text(tvm.ir.save_json(tx.lower(SOFTMAX.kernel, *SPECS)))
    printed = fresh(
        f"""
        import pathlib, tvm
        from tvm.tirx.compilation_pipeline import get_tir_pipeline
        get_tir_pipeline("tilex")
        module = tvm.ir.load_json(pathlib.Path({str(path)!r}).read_text())
        built = tvm.compile(module, target="llvm", tir_pipeline="tilex")
        print(built["softmax"] is not None)
        """
    )
    assert printed == "True"


def test_the_callers_pass_context_is_kept():
    seen = []

    @tvm.ir.instrument.pass_instrument
    class Spy:
        def run_before_pass(self, mod, info):
            context = tvm.transform.PassContext.current()
            seen.append(dict(context.config).get("tirx.disable_vectorize"))

    rows = 11  # a shape that nothing else has compiled
    config = {"tirx.disable_vectorize": True}
    with tvm.transform.PassContext(config=config, instruments=[Spy()]) as outer:
        tx.compile(SOFTMAX.kernel, *SOFTMAX.specs(rows, 33))
        assert tvm.transform.PassContext.current().same_as(outer)
    assert seen and all(seen)


# Targets.


def test_metal_is_never_tvms_bare_default():
    attributes = resolve_target("metal").attrs
    assert int(attributes["thread_warp_size"]) == 32
    assert int(attributes["max_num_threads"]) == int(attributes["max_threads_per_block"]) == 1024
    assert int(attributes["max_shared_memory_per_block"]) == 32768


def test_llvm_is_this_processor():
    from tvm.target import codegen

    target = tx.compile(SOFTMAX.kernel, *SPECS).target
    assert str(target.attrs["mcpu"]) == str(codegen.llvm_get_system_cpu())


def test_a_stated_target_is_kept():
    target = {"kind": "metal", "thread_warp_size": 32, "max_threads_per_block": 256,
              "max_num_threads": 256, "max_shared_memory_per_block": 16384}  # fmt: skip
    resolved = resolve_target(target)
    assert int(resolved.attrs["max_threads_per_block"]) == 256
    assert resolved.host is not None


@pytest.mark.parametrize("target", ["opencl", "metall", {"kind": "llvm", "mcpuu": "x"}, 3])
def test_an_unknown_target_is_named(target):
    with pytest.raises(TargetError):
        tx.compile(SOFTMAX.kernel, *SPECS, target=target)


# Errors of ours through TVM's C++.


@pytest.mark.parametrize("kind", [LoweringError, VerifyError, MappingError])
def test_an_error_of_ours_survives_a_pass(kind):
    from tvm_tilex.tirx.register import register

    register()

    @prim_func_pass(opt_level=0, name="test.Refuse")
    class Refuse:
        def transform_function(self, func, mod, ctx):
            raise kind("softmax: refused in a pass")

    with pytest.raises(kind, match="softmax: refused in a pass") as caught:
        Refuse()(tx.lower(SOFTMAX.kernel, *SPECS))
    assert type(caught.value) is kind


def test_a_function_of_somebody_else_passes_through():
    module = tvm.script.from_source(
        """
@T.prim_func(s_tir=True)
def double(x: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "double"})
    for i in range(16):
        out[i] = x[i] * T.float32(2)
"""
    )
    built = tvm.compile(tvm.IRModule({"double": module}), target="llvm", tir_pipeline="tilex")
    x, out = (tvm.runtime.tensor(np.full(16, n, np.float32)) for n in (3, 0))
    built["double"](x, out)
    np.testing.assert_array_equal(out.numpy(), np.full(16, 6, np.float32))
