"""Compile every Triton kernel ahead of time for the given compute capabilities; no GPU needed.

    python tests/kernels/aot_compile.py 89 90

Runs in a process of its own, since compilation fails under TRITON_INTERPRET. It proves that the
kernels compile and do not spill, not that they are right or fast on a GPU. One line of JSON per
kernel and target.
"""

import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from dartree_exp.kernels import candidate_select_triton, tree_mask_triton

CONSTEXPR = "constexpr"
KEYS = {
    "keys": "*i64",
    "merged": "*i64",
    "length": "i32",
    "tiles": "i32",
    "K": CONSTEXPR,
    "TILE": CONSTEXPR,
}


def tile_keys(dtype: str):
    signature = {
        "logits": f"*{dtype}",
        "keys": "*i64",
        "lse": "*fp32",
        "columns": "i32",
        "tiles": "i32",
    }
    constants = {"K": 64, "TILE": candidate_select_triton._TILE}
    return (
        candidate_select_triton.tile_keys,
        signature | dict.fromkeys(constants, CONSTEXPR),
        constants,
        8,
    )


def tree_mask(dtype: str, hidden: float):
    signature = {"parents": "*i64", "mask": f"*{dtype}", "past": "i32", "columns": "i32"}
    constants = {"HIDDEN": hidden, "TILE": tree_mask_triton._TILE}
    return (
        tree_mask_triton.tree_mask_rows,
        signature | dict.fromkeys(constants, CONSTEXPR),
        constants,
        4,
    )


KERNELS = [
    tile_keys("bf16"),
    (candidate_select_triton.merge_keys, KEYS, {"K": 64, "TILE": candidate_select_triton._TILE}, 8),
    tree_mask("bf16", -3.3895313892515355e38),
]

for capability in map(int, sys.argv[1:]):
    for kernel, signature, constants, warps in KERNELS:
        source = ASTSource(kernel, signature, constants)
        done = triton.compile(
            source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
        )
        cubin, ptx = len(done.asm["cubin"]), done.asm["ptx"]
        print(
            json.dumps(
                {
                    "kernel": kernel.__name__,
                    "sm": capability,
                    "cubin": cubin,
                    "spills": ".local" in ptx,
                }
            )
        )
