"""Launching compiled kernels on the caller's arrays, without copies."""
