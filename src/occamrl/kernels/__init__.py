"""Compiled kernels: arrays in, arrays out. No input or output, no classes that own anything."""
