"""Logged data: episodes that someone else collected, and what they say about a ladder of models."""
