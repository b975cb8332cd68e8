"""What comes out: solutions, the zarr store of a sweep, the labelled dataset on it."""
