"""Questions about a ladder, and about simulators, beside those that a run answers."""
