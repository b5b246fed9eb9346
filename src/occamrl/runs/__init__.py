"""Running agents: the loop over phases, results, and the step-by-step interaction."""
