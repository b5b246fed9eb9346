"""Experiments: many problems, agents and seeds, in a folder that survives kills and damage."""
