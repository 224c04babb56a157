import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    """Every test has stores of its own."""
    monkeypatch.setenv("GNNPAR_DATA", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def shared_data():
    folder = os.environ.get("GNNPAR_TEST_DATA")
    if not folder:
        pytest.skip("GNNPAR_TEST_DATA is not set: the folder of test graphs")
    return Path(folder).resolve()
