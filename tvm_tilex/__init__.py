"""Execution-first tile kernels on stock Apache TVM."""
