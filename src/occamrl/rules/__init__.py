"""Rules that choose a base before every episode; the registry finds them by scanning this folder."""
