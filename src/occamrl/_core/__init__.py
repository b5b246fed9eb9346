"""Compiled code: arrays in, arrays out."""
