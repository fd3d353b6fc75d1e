"""Draft-tree speculative decoding."""
