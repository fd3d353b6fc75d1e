"""Configuration: the schema of every setting, its checks and its hash. Imports neither torch nor transformers."""
