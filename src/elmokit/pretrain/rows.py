"""Word types to the rows that the token encoder reads, on the device that trains."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.chars import N_BYTE_IDS, Codec, WordCodec
from elmokit.pretrain.lexicon import Lexicon
from elmokit.pretrain.windows import UNK_ID

TABLE_BYTES = 4 * 2**30  # a lexicon whose rows take more than this on a GPU has them made on the host instead
_BLOCK = 2**16


class TypeRows:
    """Rows of a lexicon's words. On a GPU all of them are kept there, so that a step sends word numbers only."""

    def __init__(self, lexicon: Lexicon, codec: Codec, *, vocabulary: int, device: torch.device) -> None:
        self.lexicon, self.codec, self.vocabulary, self.device = lexicon, codec, vocabulary, device
        self.table: Tensor | None = None
        words = isinstance(codec, WordCodec)
        if device.type == "cuda" and not words and 2 * codec.width * len(lexicon) <= TABLE_BYTES:
            blocks = (np.arange(k, min(k + _BLOCK, len(lexicon))) for k in range(0, len(lexicon), _BLOCK))
            self.table = torch.empty(len(lexicon), codec.width, dtype=torch.int16, device=device)
            for block in blocks:
                rows = lexicon.rows(block, codec)
                assert rows.max() < max(N_BYTE_IDS, 2**15)
                self.table[int(block[0]) : int(block[-1]) + 1] = torch.from_numpy(rows.astype(np.int16)).to(device)

    def __call__(self, types: NDArray[np.int64]) -> Tensor:
        """(U,) to (U, W) int32."""
        if self.table is not None:
            return self.table[torch.from_numpy(types).to(self.device, non_blocking=True)].int()
        if isinstance(self.codec, WordCodec):
            rows = np.where(types < self.vocabulary, types, UNK_ID).astype(np.int32)[:, None]
        else:
            rows = self.lexicon.rows(types, self.codec)
        return torch.from_numpy(rows).to(self.device, non_blocking=True)
