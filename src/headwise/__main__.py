"""Run the command line as `python -m headwise`."""

import sys

from headwise.cli import main

if __name__ == "__main__":
    sys.exit(main())
