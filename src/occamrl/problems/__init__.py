"""Problems with a known optimum: :class:`~occamrl.problems.mdp.FiniteMDP`, and named ones."""
