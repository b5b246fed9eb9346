"""Simulators that can only be run: which of them a continuous system needs, and control while finding out."""
