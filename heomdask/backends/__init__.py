"""Backends: `BackendTraits`, the registry, and one file for each device."""
