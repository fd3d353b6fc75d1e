"""Plots of records: each a small pure function, data in, figure out; all of one look (`style.py`).
No display is needed.
"""
