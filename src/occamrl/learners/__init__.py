"""Learners: those of the paper in their sharp forms, Occam, and baselines; one algorithm, one file."""
