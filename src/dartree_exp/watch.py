"""`python -m dartree_exp.watch multirun/<sweep>`: runs `sweeps/watch.py`."""

import sys

from dartree_exp.sweeps.watch import main

if __name__ == "__main__":
    sys.exit(main())
