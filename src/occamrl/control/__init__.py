"""Continuous systems with simulators that can only be run: which is needed, and control."""
