"""Entry point of the ``tvm.backends`` group: makes the pipeline known when TVM is imported."""

from __future__ import annotations

__all__ = ["autoload"]


def autoload() -> None:
    """Register a factory for the ``tilex`` pipeline without importing the compiler yet."""
    from tvm.tirx import compilation_pipeline

    def tilex() -> object:
        from tvm_tilex.build.pipeline import register_pipeline, tilex_pipeline

        register_pipeline()
        return tilex_pipeline()

    compilation_pipeline.PIPELINE_MAP.setdefault("tilex", tilex)
