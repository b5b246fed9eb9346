"""Benchmarks, and the plain NumPy implementation that they and the tests compare with."""
