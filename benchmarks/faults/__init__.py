"""Faults for the studies of robustness."""
