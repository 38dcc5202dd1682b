"""Weight names as data: a table says where each of `BiLM`'s parameters stands in a file, for reading and writing.

A file's array is made of *parts*: views of parameters, turned as the file has them, one below the other. Filling the
views from the array reads a file; joining them writes it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

View = Callable[[Tensor], Tensor]


class Row(NamedTuple):
    """A row of a table. In names, `{k}` is the parameter's number; in keys, other fields are the format's own."""

    key: str  # in the file
    name: str  # in BiLM's state dict
    view: View  # the parameter as the file has it; of one direction, where the parameter holds several


class Part(NamedTuple):
    name: str
    direction: int | None
    view: View

    def of(self, tensors: Mapping[str, Tensor]) -> Tensor:
        tensor = tensors[self.name]
        return self.view(tensor if self.direction is None else tensor[self.direction])


class Place(NamedTuple):
    """One array of a file and the parts of parameters that make it, from its first row to its last."""

    key: str
    parts: list[Part]

    def shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """What the file's array must look like; nothing is allocated."""
        blank = {part.name: torch.empty(shapes[part.name], device="meta") for part in self.parts}
        views = [part.of(blank) for part in self.parts]
        return (sum(view.shape[0] for view in views), *views[0].shape[1:])

    def fill(self, tensors: Mapping[str, Tensor], array: Tensor) -> None:
        row = 0
        for part in self.parts:
            view = part.of(tensors)
            view.copy_(array[row : row + view.shape[0]])
            row += view.shape[0]

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([part.of(tensors).cpu() for part in self.parts])


def lay_out(table: Sequence[Row], parameters: Iterable[str], directions: Sequence[Mapping[str, object]]) -> list[Place]:
    """The arrays of a file that holds these parameters; `directions` has the keys' fields, once for each."""
    numbered: dict[str, list[tuple[str, str]]] = {}
    for name in parameters:
        number = re.search(r"\.(\d+)\.", name)
        numbered.setdefault(re.sub(r"\.\d+\.", ".{k}.", name), []).append((name, number[1] if number else ""))
    places: dict[str, Place] = {}

    def add(key: str, part: Part) -> None:
        places.setdefault(key, Place(key, [])).parts.append(part)

    for row in table:
        for name, k in numbered.get(row.name, ()):
            if not name.startswith("lstm."):
                add(row.key.format(k=k), Part(name, None, row.view))
                continue
            for d, fields in enumerate(directions):
                add(row.key.format(k=k, **fields), Part(name, d, row.view))
    return list(places.values())
