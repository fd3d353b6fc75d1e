"""Benchmark prompts: what is asked, in which words, in which order, under which version. Knows
nothing of decoding.
"""

from dartree_exp.prompts.loader import load_prompts
from dartree_exp.prompts.prompt import Prompt

__all__ = ["Prompt", "load_prompts"]
