"""How parts reach each other: one protocol, one file for each way."""
