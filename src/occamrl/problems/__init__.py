"""Ground truths with a known optimum: :class:`FiniteMDP`, and one file for each named problem."""
