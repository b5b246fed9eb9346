"""Selectors: learners that find out which model they need; arenas, and rules over learners."""
