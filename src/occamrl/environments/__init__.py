"""Gymnasium environments: finite spaces as integers, tables as problems, ladders of models, our problems registered."""
