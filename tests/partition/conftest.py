"""What several tests of links need."""

from __future__ import annotations

from pathlib import Path

import pytest
from links_support import write_certificate


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a certificate lies that every part of a group has."""
    made = tmp_path_factory.mktemp("tls")
    write_certificate(made)
    return made
