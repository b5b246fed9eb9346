"""Gymnasium environments: finite spaces as integers, tables as problems, ladders of models.

Importing this package registers our own problems as ``occamrl/<Name>-v0``.
"""

from occamrl.envs.registered import register_problems

register_problems()
