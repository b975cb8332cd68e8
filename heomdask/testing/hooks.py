"""What a backend's test file tells the conformance suite.

Takes: nothing.
Gives: `Hooks`, the base of all parts of the suite.
Next file: `segments.py`, the part about polynomial segments.
"""

from __future__ import annotations

from heomdask.backends.traits import BackendTraits, Compiled
from heomdask.plan import Plan


class Hooks:
    """What a backend's test file fills."""

    def backend(self) -> BackendTraits:
        """The backend as a user gets it."""
        raise NotImplementedError

    def ensemble_backend(self) -> BackendTraits:
        """The backend as ensembles use it: the bits of a member do not depend on its companions."""
        return self.backend()

    def ready(self, plan: Plan, dtype: str = "float64") -> tuple[BackendTraits, Compiled]:
        backend = self.backend()
        return backend, backend.compile(plan, dtype)
