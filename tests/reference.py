"""ELMo in float64 NumPy, written from the equations and not from the package: what the package must equal.

One sentence at a time, no batching, no padding, a loop over time. Weights are plain dicts of arrays named as in the
official HDF5 file, `options` is options.json; the ManyLangs half takes the two state dicts and the config of that tool.
Shapes: T positions with boundaries, C characters, L layers, H cell, P projection, R directions, V vocabulary.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = Mapping[str, Array]
Options = Mapping[str, Any]
State = dict[int, list[tuple[Array, Array]]]  # direction -> per layer (c (H,), h (P,))

FORWARD, BACKWARD = 0, 1
BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 256, 257, 258, 259, 260


def sigmoid(x: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * x))  # the same function, without overflow


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": relu, "tanh": np.tanh}


def wide(weights: Weights, name: str) -> Array:
    return np.asarray(weights[name], dtype=np.float64)


def clip(x: Array, limit: float | None) -> Array:
    return np.clip(x, -limit, limit) if limit else x


# Characters


def byte_row(token: str, limit: int = 50, *, literal_boundaries: bool = True) -> Array:
    """One token as character ids, already shifted by one. bilm-tf knows literal `<S>` only from its vocabulary."""
    middle = list(token.encode("utf-8", "ignore")[: limit - 2])
    if literal_boundaries:
        middle = {"<S>": [BEGIN_SENTENCE], "</S>": [END_SENTENCE]}.get(token, middle)
    ids = [BEGIN_WORD, *middle, END_WORD]
    return np.array(ids + [PAD] * (limit - len(ids))) + 1  # (C,)


def sentence_rows(tokens: Sequence[str], limit: int = 50, *, literal_boundaries: bool = True) -> Array:
    inner = [byte_row(token, limit, literal_boundaries=literal_boundaries) for token in tokens]
    return np.stack([byte_row("<S>", limit), *inner, byte_row("</S>", limit)])  # (T, C)


# Token encoder


def convolve(x: Array, kernel: Array, bias: Array) -> Array:
    """Largest response over all positions. x (C, E), kernel (width, E, n) -> (n,)."""
    width = len(kernel)
    responses = [np.einsum("we,wen->n", x[start : start + width], kernel) for start in range(len(x) - width + 1)]
    return np.asarray(np.max(np.stack(responses) + bias, axis=0))


def encode_rows(weights: Weights, options: Options, rows: Array, *, word_vectors: Array | None = None) -> Array:
    """Character rows (T, C) -> token vectors (T, P). Word vectors (T, W), where given, stand before the projection."""
    cnn = options["char_cnn"]
    activation = ACTIVATIONS[cnn["activation"]]
    stored = wide(weights, "char_embed")
    table = np.concatenate([np.zeros((1, stored.shape[1])), stored])  # (262, E)
    vectors = []
    for row in rows:
        x = table[row]  # (C, E)
        parts = [
            convolve(x, wide(weights, f"CNN/W_cnn_{i}")[0], wide(weights, f"CNN/b_cnn_{i}"))
            for i in range(len(cnn["filters"]))
        ]
        y = activation(np.concatenate(parts))  # (filters,)
        for k in range(cnn.get("n_highway") or 0):
            at = f"CNN_high_{k}/"
            gate = sigmoid(y @ wide(weights, at + "W_carry") + wide(weights, at + "b_carry"))
            change = relu(y @ wide(weights, at + "W_transform") + wide(weights, at + "b_transform"))
            y = gate * change + (1.0 - gate) * y
        vectors.append(y)
    encoded = np.stack(vectors)
    if word_vectors is not None:
        encoded = np.concatenate([word_vectors, encoded], axis=1)
    return project(weights, encoded)


def encode_words(weights: Weights, tokens: Sequence[str], vocabulary: Sequence[str]) -> Array:
    """Word-level input: rows of `embedding`, words outside the vocabulary as `<UNK>`, boundaries added. -> (T, P)."""
    index = {word: i for i, word in enumerate(vocabulary)}
    ids = [index.get(token, index["<UNK>"]) for token in ["<S>", *tokens, "</S>"]]
    return project(weights, wide(weights, "embedding")[ids])


def project(weights: Weights, x: Array) -> Array:
    if "CNN_proj/W_proj" not in weights:
        return x
    return x @ wide(weights, "CNN_proj/W_proj") + wide(weights, "CNN_proj/b_proj")


# Recurrence


def lstm_step(
    gates: Sequence[Array], c: Array, projection: Array | None, limits: Options, forget_bias: float
) -> tuple[Array, Array]:
    """Pre-activations (input, candidate, forget, output) and the last cell -> the new (c, h)."""
    i, j, f, o = gates
    c = clip(sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j), limits.get("cell_clip"))
    h = sigmoid(o) * np.tanh(c)
    return c, h if projection is None else clip(h @ projection, limits.get("proj_clip"))


def cell_name(weights: Weights, direction: int, layer: int) -> str:
    """One-layer files of bilm-tf have no MultiRNNCell level."""
    multi = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/"
    return multi if multi + "W_0" in weights else f"RNN_{direction}/RNN/LSTMCell/"


def directions_of(weights: Weights) -> list[int]:
    return [d for d in (FORWARD, BACKWARD) if any(name.startswith(f"RNN_{d}/") for name in weights)]


def zero_state(weights: Weights, options: Options) -> State:
    state: State = {}
    for d in directions_of(weights):
        state[d] = []
        for layer in range(options["lstm"].get("n_layers", 1)):
            at = cell_name(weights, d, layer)
            cell = weights[at + "B"].shape[0] // 4
            out = weights[at + "W_P_0"].shape[1] if at + "W_P_0" in weights else cell
            state[d].append((np.zeros(cell), np.zeros(out)))
    return state


def run_bilm(
    weights: Weights, options: Options, x: Array, state: State | None = None, *, forget_bias: float = 1.0
) -> tuple[Array, State]:
    """Token vectors (T, P) with boundaries -> layers (L+1, T, R*P) with boundaries, and the state after it."""
    lstm = options["lstm"]
    before = state or zero_state(weights, options)
    after: State = {}
    sides = []
    for d in directions_of(weights):
        flow = x if d == FORWARD else x[::-1]
        layers, after[d] = [flow], []
        for layer in range(lstm.get("n_layers", 1)):
            at = cell_name(weights, d, layer)
            W, B = wide(weights, at + "W_0"), wide(weights, at + "B")
            projection = wide(weights, at + "W_P_0") if at + "W_P_0" in weights else None
            c, h = before[d][layer]
            outputs = []
            for x_t in flow:
                gates = np.split(np.concatenate([x_t, h]) @ W + B, 4)  # i, j, f, o
                c, h = lstm_step(gates, c, projection, lstm, forget_bias)
                outputs.append(h)
            after[d].append((c, h))
            residual = flow if layer > 0 and lstm.get("use_skip_connections") else 0.0
            flow = np.stack(outputs) + residual  # (T, P)
            layers.append(flow)
        sides.append(np.stack(layers)[:, :: 1 if d == FORWARD else -1])  # (L+1, T, P)
    return np.concatenate(sides, axis=-1), after


def embed(
    weights: Weights,
    options: Options,
    tokens: Sequence[str],
    state: State | None = None,
    *,
    vocabulary: Sequence[str] | None = None,
    literal_boundaries: bool = True,
    forget_bias: float = 1.0,
) -> tuple[Array, State]:
    """Tokens -> layers (L+1, T, R*P) with boundaries, and the state to carry on. A vocabulary: word-level input."""
    if vocabulary is None:
        limit = options["char_cnn"].get("max_characters_per_token", 50)
        x = encode_rows(weights, options, sentence_rows(tokens, limit, literal_boundaries=literal_boundaries))
    else:
        x = encode_words(weights, tokens, vocabulary)
    return run_bilm(weights, options, x, state, forget_bias=forget_bias)


def drop_boundaries(layers: Array) -> Array:
    return layers[..., 1:-1, :]  # (..., T - 2, D)


# Mixes: stacks are sentences of one batch, each (L+1, T, D) with boundaries; so are the results, each (T, D)

EPSILON = {"allennlp": 1e-12, "bilm-tf": 1e-12, "allennlp-1.0": 1e-13}


def layer_norm(stacks: Sequence[Array], variant: str, epsilon: float | None = None) -> list[Array]:
    """One mean and variance per layer over the whole batch; bilm-tf takes them from the inner positions alone."""
    counted = [drop_boundaries(s) for s in stacks] if variant == "bilm-tf" else stacks
    pool = np.concatenate([s.astype(np.float64) for s in counted], axis=1)  # (L+1, N, D)
    mean = pool.mean(axis=(1, 2), keepdims=True)
    variance = pool.var(axis=(1, 2), keepdims=True)
    return [(s - mean) / np.sqrt(variance + (EPSILON[variant] if epsilon is None else epsilon)) for s in stacks]


def mix(
    stacks: Sequence[Array],
    w: Sequence[float] | Array,
    gamma: float = 1.0,
    *,
    norm: str | None = None,
    epsilon: float | None = None,
) -> list[Array]:
    """gamma * sum_j softmax(w)_j h_j; `norm` is None, "allennlp", "allennlp-1.0" or "bilm-tf"."""
    e = np.exp(np.asarray(w, dtype=np.float64) - np.max(w))
    if norm is not None:
        stacks = layer_norm(stacks, norm, epsilon)
    return [gamma * np.einsum("l,ltd->td", e / e.sum(), s) for s in stacks]


def top(stacks: Sequence[Array], gamma: float = 1.0) -> list[Array]:
    return [gamma * s[-1] for s in stacks]


def average(stacks: Sequence[Array]) -> list[Array]:
    return [s.mean(axis=0) for s in stacks]


# ELMoForManyLangs: token_embedder.pkl, encoder.pkl, the config file, char.dic and word.dic as dicts


def manylangs_row(token: str, characters: Mapping[str, int], limit: int) -> Array:
    """A character row in that tool's order, end-of-word first; `<bos>` and `<eos>`, also from the user, are symbols."""
    middle = [token] if token in ("<bos>", "<eos>") else list(token[: limit - 2])
    ids = [characters[s] if s in characters else characters["<oov>"] for s in ["<eow>", *middle, "<bow>"]]
    return np.array(ids + [characters["<pad>"]] * (limit - len(ids)))  # (C,)


def manylangs_tokens(
    embedder: Weights,
    config: Options,
    tokens: Sequence[str],
    *,
    words: Mapping[str, int] | None = None,
    characters: Mapping[str, int] | None = None,
) -> Array:
    """Token vectors (T, P) with boundaries. A zero `word_dim` or `char_dim` in the config switches that input off."""
    made = config["token_embedder"]
    limit = made["max_characters_per_token"]
    parts = []
    if made["word_dim"] > 0:
        assert words is not None
        ids = [words.get(token[: limit - 2], words["<oov>"]) for token in ["<bos>", *tokens, "<eos>"]]
        parts.append(wide(embedder, "word_emb_layer.embedding.weight")[ids])
    if made["char_dim"] > 0:
        assert characters is not None
        names = [f"convolutions.{i}." for i in range(len(made["filters"]))]
        filters = [(wide(embedder, at + "weight"), wide(embedder, at + "bias")) for at in names]  # (n, E, width), (n,)
        encoded = []
        for token in ["<bos>", *tokens, "<eos>"]:
            row = manylangs_row(token, characters, limit)
            x = wide(embedder, "char_emb_layer.embedding.weight")[row]  # (C, E)
            pooled = [convolve(x, kernel.transpose(2, 1, 0), bias) for kernel, bias in filters]
            y = ACTIVATIONS[made["activation"]](np.concatenate(pooled))
            for k in range(made["n_highway"]):
                both = wide(embedder, f"highways._layers.{k}.weight") @ y + wide(embedder, f"highways._layers.{k}.bias")
                candidate, gate = relu(both[: len(y)]), sigmoid(both[len(y) :])
                y = gate * y + (1.0 - gate) * candidate
            encoded.append(y)
        parts.append(np.stack(encoded))
    return np.concatenate(parts, axis=1) @ wide(embedder, "projection.weight").T + wide(embedder, "projection.bias")


def manylangs(
    embedder: Weights,
    encoder: Weights,
    config: Options,
    tokens: Sequence[str],
    *,
    words: Mapping[str, int] | None = None,
    characters: Mapping[str, int] | None = None,
) -> Array:
    """The whole ManyLangs computation from zero state: layers (L+1, T, 2*P) with boundaries."""
    x = manylangs_tokens(embedder, config, tokens, words=words, characters=characters)
    made = config["encoder"]
    sides = []
    for side, order in (("forward", 1), ("backward", -1)):
        flow = x[::order]
        layers = [flow]
        for layer in range(made["n_layers"]):
            at = f"{side}_layer_{layer}."
            W_x, W_h = wide(encoder, at + "input_linearity.weight"), wide(encoder, at + "state_linearity.weight")
            B, projection = wide(encoder, at + "state_linearity.bias"), wide(encoder, at + "state_projection.weight").T
            c, h = np.zeros(len(B) // 4), np.zeros(W_h.shape[1])
            outputs = []
            for x_t in flow:
                i, f, j, o = np.split(W_x @ x_t + W_h @ h + B, 4)
                c, h = lstm_step((i, j, f, o), c, projection, made, 0.0)
                outputs.append(h)
            flow = np.stack(outputs) + (flow if layer > 0 else 0.0)
            layers.append(flow)
        sides.append(np.stack(layers)[:, ::order])
    return np.concatenate(sides, axis=-1)


# Random weights in either layout, float32 as the files have them


def random_matrix(rng: np.random.Generator, *shape: int, fan_in: int | None = None) -> Array:
    return np.asarray(rng.standard_normal(shape) / np.sqrt(fan_in or shape[0]), dtype=np.float32)


def random_bias(rng: np.random.Generator, n: int) -> Array:
    return (0.5 * rng.standard_normal(n)).astype(np.float32)


def random_official(
    rng: np.random.Generator,
    options: Options,
    *,
    directions: Sequence[int] | None = None,
    word_dim: int | None = None,
    softmax: bool = False,
) -> dict[str, Array]:
    """Weights as bilm-tf would have written them for these options. No `char_cnn`: word-level, `n_tokens_vocab` rows.

    `directions` overrides `bidirectional`; `word_dim` makes a word table of another width, with its projection.
    """
    lstm = options["lstm"]
    cell, width = lstm["dim"], lstm["projection_dim"]
    weights: dict[str, Array] = {}
    if "char_cnn" in options:
        cnn = options["char_cnn"]
        char_dim, encoded = cnn["embedding"]["dim"], sum(n for _, n in cnn["filters"])
        weights["char_embed"] = rng.uniform(-1, 1, (261, char_dim)).astype(np.float32)
        for i, (span, n) in enumerate(cnn["filters"]):
            weights[f"CNN/W_cnn_{i}"] = random_matrix(rng, 1, span, char_dim, n, fan_in=span * char_dim)
            weights[f"CNN/b_cnn_{i}"] = random_bias(rng, n)
        for k in range(cnn.get("n_highway") or 0):
            for part in ("carry", "transform"):
                weights[f"CNN_high_{k}/W_{part}"] = random_matrix(rng, encoded, encoded)
                weights[f"CNN_high_{k}/b_{part}"] = random_bias(rng, encoded)
    else:
        encoded = word_dim or width
        weights["embedding"] = random_matrix(rng, options["n_tokens_vocab"], encoded, fan_in=1)
    if encoded != width:
        weights["CNN_proj/W_proj"] = random_matrix(rng, encoded, width)
        weights["CNN_proj/b_proj"] = random_bias(rng, width)
    n_layers = lstm.get("n_layers", 1)
    out = min(width, cell)
    for d in directions or ((FORWARD, BACKWARD) if options.get("bidirectional", True) else (FORWARD,)):
        for layer in range(n_layers):
            at = f"RNN_{d}/RNN/" + (f"MultiRNNCell/Cell{layer}/" if n_layers > 1 else "") + "LSTMCell/"
            into = (width if layer == 0 else out) + out
            weights[at + "W_0"] = random_matrix(rng, into, 4 * cell)
            weights[at + "B"] = random_bias(rng, 4 * cell)
            if width < cell:
                weights[at + "W_P_0"] = random_matrix(rng, cell, width, fan_in=cell // 4 or 1)
    if softmax:
        weights["softmax/W"] = random_matrix(rng, options["n_tokens_vocab"], out, fan_in=out)
        weights["softmax/b"] = random_bias(rng, options["n_tokens_vocab"])
    return weights


def random_manylangs(
    rng: np.random.Generator, config: Options, n_words: int, n_chars: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """State dicts of that tool for this config: token_embedder.pkl's and encoder.pkl's."""
    made, rnn = config["token_embedder"], config["encoder"]
    cell, width, char_dim = rnn["dim"], rnn["projection_dim"], made["char_dim"]
    embedder: dict[str, Array] = {}
    encoded = made["word_dim"]
    if made["word_dim"] > 0:
        embedder["word_emb_layer.embedding.weight"] = random_matrix(rng, n_words, made["word_dim"], fan_in=1)
    if char_dim > 0:
        features = sum(n for _, n in made["filters"])
        encoded += features
        embedder["char_emb_layer.embedding.weight"] = random_matrix(rng, n_chars, char_dim, fan_in=1)
        for i, (span, n) in enumerate(made["filters"]):
            embedder[f"convolutions.{i}.weight"] = random_matrix(rng, n, char_dim, span, fan_in=span * char_dim)
            embedder[f"convolutions.{i}.bias"] = random_bias(rng, n)
        for k in range(made["n_highway"]):
            embedder[f"highways._layers.{k}.weight"] = random_matrix(rng, 2 * features, features, fan_in=features)
            embedder[f"highways._layers.{k}.bias"] = random_bias(rng, 2 * features)
    embedder["projection.weight"] = random_matrix(rng, width, encoded, fan_in=encoded)
    embedder["projection.bias"] = random_bias(rng, width)
    encoder: dict[str, Array] = {}
    for side in ("forward", "backward"):
        for layer in range(rnn["n_layers"]):
            at = f"{side}_layer_{layer}."
            encoder[at + "input_linearity.weight"] = random_matrix(rng, 4 * cell, width, fan_in=2 * width)
            encoder[at + "state_linearity.weight"] = random_matrix(rng, 4 * cell, width, fan_in=2 * width)
            encoder[at + "state_linearity.bias"] = random_bias(rng, 4 * cell)
            encoder[at + "state_projection.weight"] = random_matrix(rng, width, cell, fan_in=cell // 4 or 1)
    return embedder, encoder
