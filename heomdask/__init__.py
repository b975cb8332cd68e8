"""heomdask: ensembles of hierarchical equations of motion on a Dask cluster."""

__version__ = "0.1.0"
