"""Learners: those of the paper in their sharp forms, Occam, and rivals; one algorithm a file."""
