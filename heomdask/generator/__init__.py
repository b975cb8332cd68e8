"""The HEOM written once, as algebra: a problem and an index set become a plan."""
