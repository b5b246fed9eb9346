"""Learners: those of the paper in their sharp forms, Occam, rivals and baselines; one algorithm, one file."""
