"""What the server is told when it starts: one field per flag, and per environment variable ELMOKIT_..."""

from dataclasses import dataclass
from typing import Annotated, Literal

from elmokit.config import Amount, Positive, Range, check, setting

Port = Annotated[int, Range(0, 65_535)]
Workers = Annotated[int, Range(1, 256)]
Threads = Annotated[int, Range(0, 1024)]
Tokens = Annotated[int, Range(0)]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`elmokit serve --help` shows them with their meaning; 0 stands for a default that depends on the machine."""

    task: tuple[str, ...] = setting(
        (), "task model to serve: its folder, the name of one that comes with elmokit, or NAME=FOLDER"
    )
    index: tuple[str, ...] = setting((), "index to serve: its folder, or NAME=FOLDER")
    host: str = setting("127.0.0.1", "address to listen on; 0.0.0.0 for all, which needs keys")
    port: Port = setting(8000, "port to listen on; 0 takes a free one")
    workers: Workers = setting(1, "processes; they share the weights' memory")
    device: str = setting("auto", "where models run: auto, cpu, cuda or cuda:N")
    dtype: str = setting("default", "number type of the model, as in elmokit embed")
    threads: Threads = setting(0, "threads that compute, in each process; 0: one per core, shared among the workers")
    max_batch_tokens: Tokens = setting(0, "tokens that the model reads at once; 0: 1,024 on a CPU, 16,384 on a GPU")
    max_queue_tokens: Positive = setting(131_072, "tokens that may wait; beyond them the answer is 429")
    max_queue_seconds: Annotated[float, Range(above=0)] = setting(
        3.0, "seconds that a new request may have to wait for its turn, as it seems; beyond them the answer is 429"
    )
    max_input_tokens: Positive = setting(8_192, "tokens in one text; a longer text is refused")
    max_inputs: Positive = setting(2_048, "texts in one request")
    max_body: Positive = setting(16 << 20, "bytes of a request's body; beyond them the answer is 413")
    timeout: Annotated[float, Range(above=0)] = setting(60.0, "seconds that a request may take; then the answer is 504")
    stuck_seconds: Annotated[float, Range(above=0)] = setting(
        8.0, "seconds after which a batch counts as stuck and /health fails"
    )
    grace: Amount = setting(30.0, "seconds that requests under way get to finish after SIGTERM")
    api_key_file: str = setting("", "file with the keys that clients may use, one per line")
    cors: tuple[str, ...] = setting((), "origin whose pages may call the server; * for all")
    log_format: Literal["text", "json"] = setting("text", "how the line per request looks")

    def __post_init__(self) -> None:
        check(self)
