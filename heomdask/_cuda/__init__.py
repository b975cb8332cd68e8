"""The source of the GPU kernels, and what it takes to run them: for `backends/cupy_.py` only."""
