"""Raw text to a biLM: corpus, vocabulary, objective, trainer. `elmokit.pretrain.finetune` trains a model further."""

from typing import TYPE_CHECKING

from elmokit._lazy import lazy

if TYPE_CHECKING:
    from elmokit.pretrain.config import FinetuneConfig, PretrainConfig, load_config, load_finetune_config
    from elmokit.pretrain.corpus.text import Corpus
    from elmokit.pretrain.run import pretrain
    from elmokit.pretrain.trainer import Progress
    from elmokit.pretrain.validation import Perplexity

__all__ = [
    "Corpus", "FinetuneConfig", "Perplexity", "PretrainConfig", "Progress", "load_config",
    "load_finetune_config", "pretrain",
]  # fmt: skip

__getattr__, __dir__ = lazy(
    __name__,
    {
        "config": "FinetuneConfig PretrainConfig load_config load_finetune_config",
        "corpus.text": "Corpus",
        "run": "pretrain",
        "trainer": "Progress",
        "validation": "Perplexity",
    },
)
