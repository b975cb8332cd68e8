"""The command line: TOML in, one store, a summary and a picture out."""
