"""Learners, one algorithm per file; the registry finds them by scanning this folder."""
