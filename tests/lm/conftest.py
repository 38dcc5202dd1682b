import pytest
from small_lm import tiny

from elmokit.lm import LanguageModel


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return LanguageModel(tiny(), device="cpu")
