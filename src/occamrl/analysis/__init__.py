"""Questions about models, runs and logs."""
