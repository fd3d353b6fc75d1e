"""Target models: loading, one cache adapter, tree forward, hidden-state taps. Knows nothing about
drafters or trees.
"""
