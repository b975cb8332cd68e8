"""What `heomdask bench` measures: kernels against the machine and its peers, solves, set-up."""
