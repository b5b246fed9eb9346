"""What data say about models: by value-targeted regression, and by likelihood."""
