"""GPT-2's published weights and tokenizer, from local files; needs the optional extra ``gpt2``, and never a network."""

import importlib
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np

from icl_lab import machine
from icl_lab.models.language import LanguageModel
from icl_lab.models.layers import Params

HEAD_SIZE, PUBLISHED = 64, (768, 1024, 1280, 1600)
"""Channels of a head in every published GPT-2, and their widths."""
PREFIX = "transformer."
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""What parallel, compiled and checkpointed models of PyTorch put into the names of their tensors."""
END = "<|endoftext|>"
BUFFERS = (".attn.bias", ".attn.masked_bias")
"""Ends of the names of causal masks, which some files carry and which are no weights."""
HEADER_LIMIT = 100_000_000
DTYPES = ("F16", "BF16", "F32")
SHARDS = "if this file is one shard of several, merge them into one file first"
UNTIED = "lm_head.weight must equal wte.weight, GPT-2's embedding is tied"
FUNCTION: dict[str, tuple] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "tie_word_embeddings": (True,),
}
"""What a ``config.json`` may say of the function that the weights are for; silence means the first value."""
T = TypeVar("T")


def gpt2_network(path: str | Path, heads: int | None = None) -> LanguageModel:
    """The network whose weights a file holds; only the names, shapes and types of the tensors are read.

    Args:
      path: a safetensors file with the names of Hugging Face's GPT-2, as ``load_gpt2`` takes it.
      heads: H; None for ``n_head`` of a ``config.json`` beside the file, or else, at the published widths 768, 1024,
        1280 and 1600, width / 64.

    Raises:
      ImportError: without the library safetensors.
      ValueError: for a file that is missing, truncated, no safetensors file, an index or one shard of several; for a
        tensor that is missing, not GPT-2's or of the wrong shape (transposed, too) or type; for heads that are not
        known, do not divide the width or are not those of ``config.json``; for a ``config.json`` that describes
        another function or other sizes. It names the file and the tensor.
    """
    path = machine.path(path, "path")
    shapes = read_tensors(path, lambda file, name: tuple(file.get_slice(name).get_shape()))
    embedding = shapes.get("wte.weight")
    if embedding is None or len(embedding) != 2 or 0 in embedding:
        fault = f"missing; {SHARDS}" if embedding is None else f"of shape {embedding}"
        if longer := [name for name in shapes if name.endswith(".wte.weight")]:
            fault = f"called {longer[0]}; take what stands before wte.weight off all names"
        raise ValueError(f"{path}: wte.weight must be the embedding (vocabulary, width) of a GPT-2, it is {fault}")
    if shapes.pop("lm_head.weight", embedding) != embedding:
        raise ValueError(f"{path}: {UNTIED}")
    vocabulary, width = embedding
    layers = check_blocks(path, shapes, width)
    configuration = _configuration(path.parent / "config.json")
    sizes = {"vocab_size": vocabulary, "n_embd": width, "n_layer": layers, "n_positions": shapes["wpe.weight"][0]}
    for name, size in sizes.items():
        if configuration.get(name, size) != size:
            raise ValueError(
                f"{path}: {name} of config.json beside it is {configuration[name]}, its tensors say {size}"
            )
    n_head = configuration.get("n_head")
    if n_head is not None and heads not in (None, n_head):
        raise ValueError(f"heads must be {n_head}, the n_head of config.json beside {path}, got {heads}")
    heads = n_head if heads is None else heads
    if heads is None and width not in PUBLISHED:
        raise ValueError(
            f"{path}: heads must be given for a width of {width} (heads=H, in a command --heads=H), as there is no "
            f"config.json with n_head beside it and the published widths are {', '.join(map(str, PUBLISHED))}"
        )
    heads = checked_heads(path, heads, width, HEAD_SIZE)
    return LanguageModel(vocabulary, layers, heads, width, shapes["wpe.weight"][0])


def load_gpt2(path: str | Path, heads: int | None = None) -> tuple[LanguageModel, Params]:
    """The network and its weights from a safetensors file with the names of Hugging Face's GPT-2.

    Names with or without ``transformer.`` and ``WRAPPERS``; matrices are stored (in, out), x @ W, and ``attn.c_attn``
    holds the queries' columns, then the keys', then the values'. ``lm_head.weight`` may be there if it equals the
    embedding, causal-mask buffers are left out. Weights of half precision are widened to float32.

    Args:
      path: the file; nothing is looked for elsewhere, but for a ``config.json`` beside it.
      heads: as in ``gpt2_network``.

    Raises:
      ImportError, ValueError: as ``gpt2_network``; and for an ``lm_head.weight`` that is not the embedding, or weights
        that are not finite.
    """
    path = machine.path(path, "path")
    network = gpt2_network(path, heads)
    tensors = read_tensors(path, lambda file, name: np.asarray(file.get_tensor(name), np.float32))
    check_finite(path, tensors)
    if not np.array_equal(tensors.pop("lm_head.weight", tensors["wte.weight"]), tensors["wte.weight"]):
        raise ValueError(f"{path}: {UNTIED}")
    weights = {"embedding": tensors["wte.weight"]} | block_weights(tensors, network.layers)
    for joint, own in (("w_qkv", "w_{}"), ("qkv_bias", "{}_bias")):
        weights |= {own.format(letter): part for letter, part in zip("qkv", np.split(weights.pop(joint), 3, axis=-1))}
    return network, {"params": {name: jnp.asarray(value) for name, value in weights.items()}}


class Tokenizer(NamedTuple):
    """Text to token ids, and back.

    Attributes:
      encode: text -> ids.
      decode: ids -> text.
    """

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """GPT-2's byte-level BPE from ``tokenizer.json`` of a local folder, or else from ``vocab.json`` and ``merges.txt``.

    The end token is one id where the vocabulary has it; no token is added to a text.

    Raises:
      ImportError: without the library tokenizers.
      ValueError: where the files are missing or cannot be read; it names them.
    """
    folder = machine.path(folder)
    whole, parts = folder / "tokenizer.json", [folder / name for name in ("vocab.json", "merges.txt")]
    files = [whole] if whole.is_file() else parts
    if missing := [str(file) for file in files if not file.is_file()]:
        raise ValueError(
            f"a tokenizer is tokenizer.json, or vocab.json and merges.txt, in one folder; missing: {', '.join(missing)}"
        )
    tokenizers = _library("tokenizers")
    try:
        if files == [whole]:
            bpe = tokenizers.Tokenizer.from_file(str(whole))
        else:
            bpe = tokenizers.ByteLevelBPETokenizer.from_file(*map(str, files), add_prefix_space=False)
    except Exception as error:  # the library raises bare exceptions
        raise ValueError(f"{' and '.join(map(str, files))} are not a tokenizer: {error}") from error
    bpe.no_truncation()
    bpe.no_padding()
    if bpe.token_to_id(END) is not None:
        bpe.add_special_tokens([END])
    return Tokenizer(
        lambda text: bpe.encode(text, add_special_tokens=False).ids,
        lambda ids: bpe.decode(ids, skip_special_tokens=False),
    )


def _configuration(path: Path) -> dict[str, Any]:
    """What a ``config.json`` says; nothing where there is none."""
    if not path.is_file():
        return {}
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8-sig")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: no configuration of a network: {error}") from error
    for name, allowed in FUNCTION.items():
        if config.get(name, allowed[0]) not in allowed:
            raise ValueError(f"{path}: {name} must be {' or '.join(map(repr, allowed))}, got {config[name]!r}")
    return config


def read_tensors(path: Path, of_tensor: Callable[[Any, str], T]) -> dict[str, T]:
    """What a function of the open file and a name finds of every tensor but masks, by name without prefixes."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file of weights")
    if path.suffix == ".json":
        raise ValueError(f"{path}: allowed is one safetensors file of weights, not an index of shards or another JSON")
    if re.search(r"-\d+-of-0*([2-9]|[1-9]\d+)\.", path.name):
        raise ValueError(f"{path}: allowed is one safetensors file of all weights, not one shard of several")
    size = path.stat().st_size
    with path.open("rb") as opened:
        header = int.from_bytes(opened.read(8), "little")
    if size < 8 or not 2 <= header <= min(size - 8, HEADER_LIMIT):
        raise ValueError(f"{path}: truncated or no safetensors file, {size} bytes with a header of {header}")
    safetensors, values = _library("safetensors"), dict[str, T]()
    try:
        with safetensors.safe_open(str(path), "flax") as file:
            for name in file.keys():  # noqa: SIM118 (a file, not a dict)
                short = ".".join(word for word in name.split(".") if word not in WRAPPERS).removeprefix(PREFIX)
                if short in values:
                    raise ValueError(f"{path}: {name} is there twice, under two prefixes")
                if short.endswith(BUFFERS):
                    continue
                if (kind := file.get_slice(name).get_dtype()) not in DTYPES:
                    raise ValueError(f"{path}: {name} must be of type {', '.join(DTYPES)}, got {kind}")
                values[short] = of_tensor(file, name)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: truncated or no safetensors file, {error}") from error
    return values


def check_finite(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """ValueError for NaN or infinite weights."""
    for name, tensor in tensors.items():
        if wrong := tensor.size - np.count_nonzero(np.isfinite(tensor)):
            raise ValueError(f"{path}: {name} must hold finite numbers, {wrong} of {tensor.size} are NaN or infinite")


def checked_heads(path: Path, heads: int | None, width: int, size: int) -> int:
    """H, for None that of heads of this size; ValueError where it does not divide the width."""
    heads = width // size if heads is None else heads
    if not isinstance(heads, int) or heads < 1 or width % heads:
        raise ValueError(f"heads must divide the width {width} of {path}, got {heads}")
    return heads


def check_blocks(path: Path, shapes: dict[str, tuple[int, ...]], width: int) -> int:
    """L; ValueError where names and shapes are not those of a GPT-2."""
    layers = len({name.split(".")[1] for name in shapes if name.startswith("h.")})
    positions = (shapes.get("wpe.weight") or (1,))[0]
    wanted: dict[str, tuple[int, ...]] = {"wte.weight": (shapes["wte.weight"][0], width)}
    wanted |= {"wpe.weight": (positions, width), "ln_f.weight": (width,), "ln_f.bias": (width,)}
    for layer in range(max(layers, 1)):
        wanted |= {f"h.{layer}.{name}": tuple(width * size for size in sizes) for name, sizes in OF_BLOCK.items()}
    missing, extra = sorted(set(wanted) - set(shapes)), sorted(set(shapes) - set(wanted))
    if missing or extra:
        kinds = {"missing": missing, "not GPT-2's": extra}
        listed = {kind: ", ".join(names[:8]) + " .." * (len(names) > 8) for kind, names in kinds.items() if names}
        message = "; ".join(f"{kind}: {names}" for kind, names in listed.items())
        if missing and all(name.endswith(".bias") for name in missing):
            message += "; where the network has no biases, write zeros for them"
        elif missing:
            message += f"; {SHARDS}"
        raise ValueError(f"{path}: the tensors are not those of a GPT-2 of {layers} layers; {message}")
    for name, shape in wanted.items():
        if shapes[name] != shape or not math.prod(shape):
            turned = "" if len(shape) < 2 or shapes[name] != shape[::-1] else (
                "; it is transposed: matrices are kept (in, out), not (out, in) as by torch.nn.Linear, the square "
                "attn.c_proj.weight among them"
            )  # fmt: skip
            raise ValueError(f"{path}: {name} must be of shape {shape}, got {shapes[name]}{turned}")
    return layers


OF_BLOCK: dict[str, tuple[int, ...]] = {
    "ln_1.weight": (1,),
    "ln_1.bias": (1,),
    "attn.c_attn.weight": (1, 3),
    "attn.c_attn.bias": (3,),
    "attn.c_proj.weight": (1, 1),
    "attn.c_proj.bias": (1,),
    "ln_2.weight": (1,),
    "ln_2.bias": (1,),
    "mlp.c_fc.weight": (1, 4),
    "mlp.c_fc.bias": (4,),
    "mlp.c_proj.weight": (4, 1),
    "mlp.c_proj.bias": (1,),
}
"""Shapes of what a block has, in widths."""

NAMES = {
    "attention_scale": "ln_1.weight",
    "attention_offset": "ln_1.bias",
    "w_qkv": "attn.c_attn.weight",
    "qkv_bias": "attn.c_attn.bias",
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


def block_weights(tensors: dict[str, np.ndarray], layers: int) -> dict[str, np.ndarray]:
    """Weights by our names: those of the blocks, stacked, the positions and the last LayerNorm."""
    weights = {
        ours: np.stack([tensors[f"h.{layer}.{theirs}"] for layer in range(layers)]) for ours, theirs in NAMES.items()
    }
    last = {"norm_scale": tensors["ln_f.weight"], "norm_offset": tensors["ln_f.bias"]}
    return weights | {"position": tensors["wpe.weight"]} | last


def _library(name: str) -> Any:
    """An optional library."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"GPT-2's files need the library {name}: pip install 'icl-lab[gpt2]'") from error
