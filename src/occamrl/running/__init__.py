"""One driver for everything that plays."""
