"""AllenNLP's `ElmoTokenEmbedder`: one representation of `Elmo`, projected on request."""

from collections.abc import Sequence

from torch import Tensor, nn

from elmokit.compat.allennlp.elmo import Elmo
from elmokit.compat.allennlp.source import Named


class ElmoTokenEmbedder(nn.Module):
    """Character ids (..., T, 50) to vectors (..., T, D), or (..., T, projection_dim)."""

    def __init__(
        self,
        options_file: Named,
        weight_file: Named,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            requires_grad=requires_grad,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        width = self._elmo.get_output_dim()
        self._projection = nn.Linear(width, projection_dim) if projection_dim else None
        self.output_dim = projection_dim or width

    def get_output_dim(self) -> int:
        return self.output_dim

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        vectors: Tensor = self._elmo(inputs, word_inputs)["elmo_representations"][0]
        return vectors if self._projection is None else self._projection(vectors)
