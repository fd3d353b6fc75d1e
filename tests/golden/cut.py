"""Cut the repository's subset of golden vectors from the full folder:

    python tests/golden/cut.py ../shared

Files are copied byte for byte, and their checksums go to MANIFEST.sha256.
"""

import hashlib
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from golden_support import MODEL, GoldenCase  # noqa: E402

# The smallest cases of each kind that notice, between them, every broken rule of the control tests.
CASES = {
    "dartree": [
        "fixed_b5_d8",
        "markov_pruned_w12_k64_b24_d7",
        "pruned_w4_k16_b10_beta-0.5_d7",
        "ties_clones_w6_b15_beta0_d6",
    ],
    "ddtree_heap": [
        "empty_d0",
        "rand_bf16_d7_v64_b32",
        "rand_d1_v8_b0",
        "rand_d1_v8_b7",
        "rand_d2_v8_b16",
        "rand_d3_v16_b7",
        "rand_d7_v32_b16",
        "tie_grid_d5_v8_b24",
        "tie_paths_d4_v12_b32",
        "tie_tokens_d3_v10_b16",
    ],
    "dflash_backbone": ["l1_b8_default_layers", "l2_b8_bf16"],
    "domino_head": ["full_shift1_prefix1_b8", "shift0_prefix1_b4", "shift1_prefix1_b8_bf16"],
    "dominotree": ["v30_d5_b8_k1_padded", "v40_d7_b32_full"],
    "dspark_heads": ["full_vanilla_b7", "gated_b7", "rnn_b7", "vanilla_b7_bf16"],
    "end_to_end": ["domino_family_shift1"],
    MODEL: ["smollm2_135m"],
    "pctree": ["k2_n16_d7", "k3_n100_whole_pool_d4", "k4_n1_d3", "ties_k3_n9_d5"],
    "sampling": [
        "chain3_conditional_v2",
        "chain3_independent_v3",
        "chain_fixed_uniforms",
        "residual_single",
        "sibling_rejection_q1",
        "tree_law_v4_d1_b3",
        "tree_law_v5_d3_b12",
        "tree_law_v8_d6_b32",
        "tree_walk",
    ],
}


def main(shared: Path) -> None:
    lines = []
    for family, names in CASES.items():
        source = shared / family if family == MODEL else shared / "golden" / family
        shutil.rmtree(HERE / family, ignore_errors=True)
        for file in sorted(
            {f for name in names for f in GoldenCase(source / f"{name}.json").files()}
        ):
            place = HERE / family / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
            digest = hashlib.sha256(place.read_bytes()).hexdigest()
            lines.append(f"{digest}  {place.relative_to(HERE).as_posix()}\n")
    (HERE / "MANIFEST.sha256").write_text("".join(sorted(lines, key=lambda line: line[66:])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
