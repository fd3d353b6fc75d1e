"""`python -m dartree_exp.drafters.medusa.convert IN OUT`: a released `medusa_lm_head.pt` as
safetensors.
"""

from __future__ import annotations

import sys

from dartree_exp.drafters.medusa.checkpoint import PICKLED, WEIGHTS
from dartree_exp.drafters.unpickle import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "dartree_exp.drafters.medusa.convert", PICKLED, WEIGHTS))
