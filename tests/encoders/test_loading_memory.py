"""Loading a model and running it takes about the memory of its file, not twice that."""

import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.kernels.cpu.c import c_library
from elmokit.nn.bilm import BiLM, BiLMConfig, initialise
from elmokit.nn.char_cnn import TokenEncoderConfig
from elmokit.nn.lstm import LstmConfig
from elmokit.weights import Pretrained, save_pretrained

BESIDES = 20e6  # what a run takes that does not grow with the model
STATUS = Path("/proc/self/status")
IN_C = pytest.mark.skipif(c_library() is None, reason="nothing runs in C here; floats take more")
CHILD = """
import re, sys, torch
from pathlib import Path
from elmokit.encoders import Elmo

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def run(folder):
    Elmo.from_pretrained(folder, device="cpu", dtype=mode).encode_layers([["a", "few", "words"]] * int(rows))

small, folder, mode, rows = sys.argv[1:]
torch.set_num_threads(1)
run(small)  # brings in the code of the libraries, whose pages count too, and differently on every machine
Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
before = peak()
run(folder)
print(peak() - before)
"""


def saved(base: Path, cells: int, width: int) -> dict[str, Path]:
    """A model stored in each way."""
    tokens = TokenEncoderConfig(filters=((1, 16), (3, 48)), n_highway=1, projection_dim=width)
    model = BiLM(BiLMConfig(tokens=tokens, lstm=LstmConfig(cells, width)))
    initialise(model, seed=0)
    pretrained = Pretrained.of(model.requires_grad_(False))
    folders = {dtype: base / dtype for dtype in ("float32", "bfloat16", "int8", "int4")}
    for dtype, folder in folders.items():
        save_pretrained(pretrained, folder, dtype=dtype)  # type: ignore[arg-type]
    return folders


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """25 million parameters, 100 MB as float32."""
    return saved(tmp_path_factory.mktemp("models"), 2176, 320)


@pytest.fixture(scope="module")
def small_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return saved(tmp_path_factory.mktemp("small"), 64, 32)


@pytest.mark.skipif(not STATUS.exists(), reason="tells the peak of memory on Linux alone")
@pytest.mark.parametrize(
    ("stored", "mode", "rows", "most"),
    [
        ("float32", "float32", 1, 1.5),
        ("float32", "float32", 8, 1.5),
        pytest.param("float32", "int8", 1, 1.5, marks=IN_C),
        pytest.param("int8", "int8", 1, 0.8, marks=IN_C),
        pytest.param("int4", "int8", 1, 0.8, marks=IN_C),
        pytest.param("bfloat16", "bfloat16", 1, 1.3, marks=IN_C),
    ],
)
def test_peak_of_loading(
    folders: dict[str, Path], small_folders: dict[str, Path], stored: str, mode: str, rows: int, most: float
) -> None:
    """As a multiple of the model in float32; pages mapped from the file count too."""
    size = (folders["float32"] / "model.safetensors").stat().st_size
    assert size > 95e6
    run = subprocess.run(
        [sys.executable, "-c", CHILD, str(small_folders[stored]), str(folders[stored]), mode, str(rows)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < most * size + BESIDES


def test_int8_and_bfloat16_copies_are_small(folders: dict[str, Path]) -> None:
    sizes = {dtype: (folder / "model.safetensors").stat().st_size for dtype, folder in folders.items()}
    assert sizes["bfloat16"] < 0.51 * sizes["float32"]
    assert sizes["int8"] < 0.27 * sizes["float32"]
    assert sizes["int4"] < 0.14 * sizes["float32"]
