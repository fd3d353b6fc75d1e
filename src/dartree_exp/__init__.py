"""Draft-tree speculative decoding: one loop, one clock, one lossless check for every method."""

__version__ = "0.1.0"
