"""The torch path works without triton (macOS has no wheel)."""

import subprocess
import sys

CODE = """
import sys
sys.modules["triton"] = None  # `import triton` now raises ImportError
import torch
from dartree_exp.kernels.candidate_select import candidate_select
from dartree_exp.kernels.tree_mask import tree_mask
import dartree_exp.trees.builder
assert candidate_select(torch.tensor([[1.0, 3.0, 3.0]]), 2).columns.tolist() == [[1, 2]]
assert tree_mask(torch.tensor([-1, 0]), 1, torch.float32).shape == (1, 1, 2, 3)
try:
    import dartree_exp.kernels.tree_mask_triton
except ImportError:
    print("ok")
"""


def test_torch_path_imports_without_triton():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ok"]


def test_kernels_folder_is_no_package_of_its_own(request):
    # With an __init__.py, transformers' probe for a package named `kernels` would import it from
    # the repository root.
    assert not (request.config.rootpath / "kernels" / "__init__.py").exists()
