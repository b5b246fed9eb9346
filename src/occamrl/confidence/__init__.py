"""How wide a confidence set must be: radii with the theory's constants."""
