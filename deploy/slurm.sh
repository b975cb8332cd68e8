#!/usr/bin/env bash
# Runs a sweep on one node of a Slurm cluster, one worker process on each core:
#
#     sbatch --cpus-per-task=64 --time=24:00:00 deploy/slurm.sh sweep.toml
#
# What stands after the script goes to `heomdask run`. Submit it from a folder that the node sees:
# the store lies there. A sweep continues where it stopped, so after the time limit, or with more
# axis values in the file, submit the same line again. To queue several such jobs at once add
# --dependency=singleton: they then run one after the other, and the rest find nothing to do.
#
#SBATCH --job-name=heomdask
#SBATCH --output=%x-%j.log
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem-per-cpu=2G
#SBATCH --time=12:00:00

set -euo pipefail
[ $# -gt 0 ] || { echo "usage: sbatch slurm.sh CONFIG [options of heomdask run]" >&2; exit 2; }

# Your environment, unless the job inherits it:
# module load python
# source "$HOME/heomdask/bin/activate"

# Without Slurm: the cores that this shell may use.
workers=${SLURM_CPUS_PER_TASK:-$(nproc)}
exec heomdask run --workers "$workers" "$@"
