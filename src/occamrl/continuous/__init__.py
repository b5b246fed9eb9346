"""State spaces that are boxes: grids, interpolation, integrals over transitions, and what they cost in accuracy."""
