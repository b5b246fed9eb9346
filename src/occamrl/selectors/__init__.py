"""Selectors: learners that find out which model they need while they act; and arenas of learners under a rule."""
