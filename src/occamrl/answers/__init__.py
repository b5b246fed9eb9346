"""The answer: which model, what to do, what it is worth, does it matter; and its words."""
