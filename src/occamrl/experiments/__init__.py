"""Experiments: one TOML file to a folder of records."""
