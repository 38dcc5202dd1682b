"""What is in an `__all__` is the API: it is there, pages use nothing else, and the imports of 0.1.0's pages work."""

import ast
import importlib
import re
import sys
from pathlib import Path

import pytest

import elmokit
from elmokit.errors import MissingExtraError

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from make_api import public_modules, read_module  # noqa: E402

MODULES = ["elmokit", *(module.name for module in public_modules())]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*/*.md"))]
IMPORT = re.compile(r"^from (elmokit[\w.]*) import (.+)$", flags=re.MULTILINE)
OF_0_1_0 = """
from elmokit.analysis.drift import DriftConfig, measure_drift
from elmokit.analysis.neighbours import find_neighbours
from elmokit.analysis.probing import Probing
from elmokit.analysis.views import list_views
from elmokit.analysis.word_labels import WordLabels
from elmokit.analysis.word_senses import SensesConfig, find_uses, group_senses
from elmokit.batch import build_batch
from elmokit.chars import ByteCodec
from elmokit.compat.allennlp import ConfigurationError, Elmo, ElmoEmbedder, ElmoTokenEmbedder, ScalarMix, batch_to_ids
from elmokit.compat.manylangs import Embedder
from elmokit.compat.simple_elmo import ElmoModel
from elmokit.encoders import distil_corpus, distil_words, export_word2vec
from elmokit.export.save import export_onnx
from elmokit.formats import read_sentences
from elmokit.index import Index, IndexSettings
from elmokit.integrations.onnx import OnnxElmo
from elmokit.lm import LanguageModel
from elmokit.plots import MixWeights, Value, draw_bars, draw_mixes, save_chart
from elmokit.pretrain.config import load_config, load_finetune_config
from elmokit.pretrain.corpus import Corpus
from elmokit.pretrain.finetune import finetune
from elmokit.pretrain.run import pretrain
from elmokit.tasks.ablate import Plan, pick_variants, run_ablation
from elmokit.tasks.ablate_report import summarise
from elmokit.tasks.catalogue import load_task
from elmokit.tasks.layers import CachedLayers
from elmokit.tasks.run import train_task
from elmokit.tasks.setup import load_setup
from elmokit.text import Sentence, load_tokenizer
from elmokit.weights.pretrained import parameter_shapes
"""


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_states_is_there(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except MissingExtraError as missing:  # an integration; .ci/integrations has its package
        pytest.skip(str(missing))
    assert len(set(module.__all__)) == len(module.__all__)
    assert set(module.__all__) <= {*dir(module), "__version__"}
    for each in module.__all__:
        assert getattr(module, each) is not None
    assert read_module(name).public == sorted(module.__all__, key=str.casefold)


def test_a_name_that_is_not_offered_is_an_attribute_error_that_lists_those_that_are() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'Elmos'; it offers .*Elmo, ElmoEmbedding"):
        elmokit.Elmos  # noqa: B018
    with pytest.raises(ImportError, match="pretrian"):
        from elmokit.pretrain import pretrian  # type: ignore[attr-defined]  # noqa: F401


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_imports_the_api_only(page: Path) -> None:
    for home, names in IMPORT.findall(page.read_text(encoding="utf-8")):
        for name in re.split(r",\s*", names.partition("  #")[0].strip()):
            assert home in MODULES, f"{page.name} imports from {home}, which states no API"
            assert name in read_module(home).public, f"{page.name} imports {name}, which {home} does not state"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("line", OF_0_1_0.strip().splitlines())
def test_a_documented_import_of_0_1_0_still_works(line: str) -> None:
    statement = ast.parse(line).body[0]
    assert isinstance(statement, ast.ImportFrom)
    module = importlib.import_module(statement.module or "")
    for alias in statement.names:
        assert hasattr(module, alias.name)
