"""``python -m occamrl`` is the command ``occamrl``."""

from occamrl.cli import main

if __name__ == "__main__":
    main()
