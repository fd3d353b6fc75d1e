"""Benchmark prompts: data, templates, order and version. Independent of decoding."""

from dartree_exp.prompts.loader import load_prompts
from dartree_exp.prompts.prompt import Prompt

__all__ = ["Prompt", "load_prompts"]
