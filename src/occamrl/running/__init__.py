"""Playing plans: the simulator, the driver of every run, results, verdicts and files."""
