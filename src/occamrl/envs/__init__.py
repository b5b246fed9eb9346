"""Gymnasium environments: finite spaces as integers, tables as problems, ladders of models in files.

Importing this package registers the problems of occamrl as ``occamrl/<Name>-v0``.
"""

from occamrl.envs.registered import register_problems

register_problems()
