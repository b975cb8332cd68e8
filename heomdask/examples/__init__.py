"""Packaged examples: TOML files that `heomdask run` takes by name."""
