"""The recipe for Spark runs on a real Spark, twice, and its rows are those of one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import recipes

from elmokit import Elmo

pytestmark = pytest.mark.integration
pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")


def test_the_recipe(tmp_path: Path) -> None:
    texts = [f"The cat sat on mat {k}." for k in range(10)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts))
    parts = 'plan_parts([str(Path("corpus.jsonl").absolute())], part_rows=3)'
    (tmp_path / "recipe.py").write_text(recipes.recipe("mapInArrow", parts=parts))
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    for _ in range(2):  # the second makes what is missing
        done = subprocess.run(
            [sys.executable, "recipe.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr
        found = [pq.read_table(path).to_pydict() for path in sorted((tmp_path / "vectors").glob("part-*.parquet"))]
        assert len(found) == 4
        elmo = Elmo.from_pretrained(device="cpu")
        assert [number for table in found for number in dict.fromkeys(table["sentence"])] == list(range(10))
        vectors = np.concatenate([np.array(table["vector"]) for table in found])
        np.testing.assert_allclose(vectors, np.concatenate(elmo.encode_tokens(texts, layers="top")), atol=1e-4)
        assert json.loads((tmp_path / "vectors" / "manifest.json").read_text())["complete"]
        (tmp_path / "vectors" / "part-000002.parquet").unlink()
