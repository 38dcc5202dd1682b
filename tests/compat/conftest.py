"""The model that the tests of the older tools' names share."""

import pytest
from official_files import Files, write_official

import models


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write_official(tmp_path_factory.mktemp("compat") / "model", models.tiny(seed=5))
