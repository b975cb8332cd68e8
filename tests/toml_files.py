"""Configuration files that several tests change a part of."""

PLAIN = """
[system]
hamiltonian = [[0.25, 0.5], [0.5, -0.25]]
[[bath]]
kind = "drude-lorentz"
coupling = "sz"
lam = 0.1
gamma = 0.5
T = "T"
[sweep.axes]
T = { values = [0.5, 1.0] }
[solve]
times = { start = 0, stop = 1, step = 0.5 }
depth = 2
expansion = "pade 1"
[output]
store = "x.zarr"
"""
