"""`python -m dartree_exp.drafters.eagle.convert IN OUT`: a released `pytorch_model.bin` as
safetensors.
"""

from __future__ import annotations

import sys

from dartree_exp.drafters.eagle.checkpoint import PICKLED, WEIGHTS
from dartree_exp.drafters.unpickle import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "dartree_exp.drafters.eagle.convert", PICKLED, WEIGHTS))
