"""GPT-2's published weights and tokenizer, from local files; needs the optional extra ``gpt2``, and never a network."""

import importlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from icl_lab.models.language import LanguageModel
from icl_lab.models.transformer import Params

HEAD_SIZE = 64
"""Channels of a head in every published GPT-2."""
PREFIX = "transformer."
END = "<|endoftext|>"
BUFFERS = (".attn.bias", ".attn.masked_bias")
"""Ends of the names of causal masks, which some files carry and which are no weights."""
HEADER_LIMIT = 100_000_000
DTYPES = ("F16", "BF16", "F32")


def load_gpt2(path: str | Path, heads: int | None = None) -> tuple[LanguageModel, Params]:
    """The network and its weights from a safetensors file with the names of Hugging Face's GPT-2.

    Names with or without ``transformer.``; matrices are stored (in, out), x @ W, and ``attn.c_attn`` holds the queries'
    columns, then the keys', then the values'. ``lm_head.weight`` may be there if it equals the embedding, causal-mask
    buffers are left out. Weights of half precision are widened to float32.

    Args:
      path: the file; nothing is looked for elsewhere.
      heads: H; None for width / 64, as in every published GPT-2.

    Raises:
      ImportError: without the library safetensors.
      ValueError: for a file that is missing, truncated or no safetensors file, and for a tensor that is missing, not
        GPT-2's or of the wrong shape or type; it names the file and the tensor. For heads that do not divide the width.
    """
    tensors = _tensors(Path(path))
    embedding = tensors.get("wte.weight")
    if embedding is None or embedding.ndim != 2 or 0 in embedding.shape:
        found = "missing" if embedding is None else f"of shape {embedding.shape}"
        raise ValueError(f"{path}: wte.weight must be the embedding (vocabulary, width) of a GPT-2, it is {found}")
    vocabulary, width = embedding.shape
    layers = len({name.split(".")[1] for name in tensors if name.startswith("h.")})
    head = tensors.pop("lm_head.weight", embedding)
    if not np.array_equal(head, embedding):
        raise ValueError(f"{path}: lm_head.weight must equal wte.weight, GPT-2's embedding is tied")
    _check(path, tensors, layers, width)
    if heads is None and width % HEAD_SIZE:
        raise ValueError(f"{path}: heads must be given for a width of {width}, which is no multiple of {HEAD_SIZE}")
    heads = width // HEAD_SIZE if heads is None else heads
    if heads < 1 or width % heads:
        raise ValueError(f"heads must divide the width {width} of {path}, got {heads}")
    network = LanguageModel(vocabulary, layers, heads, width, tensors["wpe.weight"].shape[0])
    return network, {"params": {name: jnp.asarray(value) for name, value in _renamed(tensors, layers).items()}}


class Tokenizer(NamedTuple):
    """Text to token ids, and back.

    Attributes:
      encode: text -> ids.
      decode: ids -> text.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """GPT-2's byte-level BPE from ``vocab.json`` and ``merges.txt`` of a local folder.

    The end token is one id where the vocabulary has it.

    Raises:
      ImportError: without the library tokenizers.
      ValueError: where one of the two files is missing or cannot be read; it names the file.
    """
    files = [Path(folder) / name for name in ("vocab.json", "merges.txt")]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        raise ValueError(f"a tokenizer is vocab.json and merges.txt in one folder; missing: {', '.join(missing)}")
    tokenizers = _library("tokenizers")
    try:
        bpe = tokenizers.ByteLevelBPETokenizer.from_file(*map(str, files), add_prefix_space=False)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"{files[0]} and {files[1]} are not a tokenizer: {error}") from error
    if bpe.token_to_id(END) is not None:
        bpe.add_special_tokens([END])
    return Tokenizer(lambda text: bpe.encode(text).ids, lambda ids: bpe.decode(ids, skip_special_tokens=False))


def _tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a file in float32, by name without the prefix, mask buffers left out."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file of weights")
    size = path.stat().st_size
    with path.open("rb") as file:
        header = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= header <= min(size - 8, HEADER_LIMIT):
        raise ValueError(f"{path}: truncated or no safetensors file, {size} bytes with a header of {header}")
    safetensors = _library("safetensors")
    tensors: dict[str, np.ndarray] = {}
    try:
        with safetensors.safe_open(str(path), "flax") as file:
            for name in file.keys():  # noqa: SIM118 (a file, not a dict)
                short = name.removeprefix(PREFIX)
                if short in tensors:
                    raise ValueError(f"{path}: {name} is there twice, with and without {PREFIX!r}")
                if not short.endswith(BUFFERS):
                    tensors[short] = _widened(path, name, file)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: truncated or no safetensors file, {error}") from error
    return tensors


def _widened(path: Path, name: str, file: Any) -> np.ndarray:
    """One tensor of an open file in float32."""
    kind = file.get_slice(name).get_dtype()
    if kind not in DTYPES:
        raise ValueError(f"{path}: {name} must be of type {', '.join(DTYPES)}, got {kind}")
    return np.asarray(file.get_tensor(name), np.float32)


def _check(path: str | Path, tensors: dict[str, np.ndarray], layers: int, width: int) -> None:
    """Names and shapes are those of a GPT-2."""
    positions = tensors["wpe.weight"].shape[0] if "wpe.weight" in tensors and tensors["wpe.weight"].ndim else 1
    outside = {"wte.weight": (len(tensors["wte.weight"]), width), "wpe.weight": (positions, width)}
    wanted = outside | {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    for layer in range(max(layers, 1)):
        for name, out in OF_BLOCK.items():
            rows = (4 * width if name.startswith("mlp.c_proj") else width,) if name in MATRICES else ()
            wanted[f"h.{layer}.{name}"] = (*rows, out * width)
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        kinds = {"missing": missing, "not GPT-2's": extra}
        listed = {kind: ", ".join(names[:8]) + " .." * (len(names) > 8) for kind, names in kinds.items() if names}
        said = "; ".join(f"{kind}: {names}" for kind, names in listed.items())
        raise ValueError(f"{path}: the tensors are not those of a GPT-2 of {layers} layers; {said}")
    for name, shape in wanted.items():
        if tensors[name].shape != shape or not math.prod(shape):
            raise ValueError(f"{path}: {name} must be of shape {shape}, got {tensors[name].shape}")


MATRICES = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
OF_BLOCK = {
    "ln_1.weight": 1,
    "ln_1.bias": 1,
    "attn.c_attn.weight": 3,
    "attn.c_attn.bias": 3,
    "attn.c_proj.weight": 1,
    "attn.c_proj.bias": 1,
    "ln_2.weight": 1,
    "ln_2.bias": 1,
    "mlp.c_fc.weight": 4,
    "mlp.c_fc.bias": 4,
    "mlp.c_proj.weight": 1,
    "mlp.c_proj.bias": 1,
}
"""Last axis of what a block has, in widths."""

NAMES = {
    "attention_scale": "ln_1.weight",
    "attention_offset": "ln_1.bias",
    "w_p": "attn.c_proj.weight",
    "p_bias": "attn.c_proj.bias",
    "mlp_scale": "ln_2.weight",
    "mlp_offset": "ln_2.bias",
    "mlp_in": "mlp.c_fc.weight",
    "mlp_in_bias": "mlp.c_fc.bias",
    "mlp_out": "mlp.c_proj.weight",
    "mlp_out_bias": "mlp.c_proj.bias",
}
"""What a block's weights are called here, and there."""


def _renamed(tensors: dict[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """The weights of a ``LanguageModel``, those of blocks stacked."""

    def stacked(name: str) -> np.ndarray:
        return np.stack([tensors[f"h.{layer}.{name}"] for layer in range(layers)])

    joint = [np.split(stacked(f"attn.c_attn.{part}"), 3, axis=-1) for part in ("weight", "bias")]
    weights = {f"w_{letter}": part for letter, part in zip("qkv", joint[0])}
    weights |= {f"{letter}_bias": part for letter, part in zip("qkv", joint[1])}
    weights |= {ours: stacked(theirs) for ours, theirs in NAMES.items()}
    outside = {"embedding": "wte.weight", "position": "wpe.weight"}
    outside |= {"norm_scale": "ln_f.weight", "norm_offset": "ln_f.bias"}
    return weights | {ours: tensors[theirs] for ours, theirs in outside.items()}


def _library(name: str) -> Any:
    """An optional library."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"GPT-2's files need the library {name}: pip install 'icl-lab[gpt2]'") from error
