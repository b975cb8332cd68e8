"""Which auxiliary density operators exist, and who is whose neighbour: combinatorics only."""
