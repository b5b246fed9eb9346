"""Logged episodes: reading them, and which class of models they require."""
