"""Arrays to the wire: JSON, base64, safetensors or Arrow, never by way of Python's numbers."""

import base64
from typing import Any

import numpy as np
import orjson
from fastapi import Response
from numpy.typing import NDArray

from elmokit.encoders.results import Vectors


def to_json(value: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON of anything that holds numbers, texts and float32 arrays."""
    content = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, status, headers=headers, media_type="application/json")


def as_float32(vectors: Vectors) -> NDArray[np.float32]:
    """In one piece, as orjson and base64 need it."""
    return np.ascontiguousarray(vectors, dtype=np.float32)


def to_base64(vectors: Vectors) -> str:
    """Little-endian float32, in rows."""
    return base64.b64encode(np.ascontiguousarray(vectors, dtype="<f4").tobytes()).decode()
