"""Weights that the code of Garg et al. 2022 has trained, as a ``GPT``: from a local file, without PyTorch."""

import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from icl_lab import machine
from icl_lab.models.gpt import GPT
from icl_lab.models.gpt2 import (
    BUFFERS,
    WRAPPERS,
    block_weights,
    check_blocks,
    check_finite,
    checked_heads,
    read_tensors,
)
from icl_lab.models.layers import Params

BACKBONE, HEAD_SIZE = "_backbone.", 32
"""What stands before the names of GPT-2's tensors, and the channels of a head in every published network."""
OUTSIDE = ("_read_in.weight", "_read_in.bias", "_read_out.weight", "_read_out.bias")
CONVERT = """where PyTorch is installed, three lines write a file that can be read:
    import numpy, torch
    state = torch.load("state.pt", map_location="cpu")["model_state_dict"]
    numpy.savez("state.npz", **{name: tensor.float().numpy() for name, tensor in state.items()})"""
PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


def load_garg(path: str | Path, heads: int | None = None) -> tuple[GPT, Params]:
    """The network and its weights from a state with the names of the code of Garg et al. 2022.

    ``_backbone.h.*``, ``_backbone.wpe.weight`` and ``_backbone.ln_f.*`` are those of Hugging Face's GPT-2, matrices
    (in, out); ``_read_in`` and ``_read_out`` are ``torch.nn.Linear``, (out, in). The word embedding, if there, is never
    read, as in their code. The prompts are those of ``alternating_layout``.

    Args:
      path: an ``.npz`` of NumPy (nothing in it is unpickled), or a safetensors file.
      heads: H; None: width / 32, as in every network of the paper.

    Returns:
      The network, with as many positions as the file has, and ``{"params": ...}`` in float32.

    Raises:
      ValueError: for a file that is missing, a pickle of PyTorch (saying how it is converted), damaged, or not of this
        layout, naming the tensor; for weights that are not finite; for heads that do not divide the width, or are not
        known.
      ImportError: for safetensors without the library.
    """
    path = machine.path(path, "path")
    tensors = _tensors(path)
    check_finite(path, tensors)
    if missing := [name for name in OUTSIDE if name not in tensors]:
        got = ", ".join(sorted(tensors)[:4]) or "none"
        raise ValueError(f"{path}: {missing[0]} must be among the tensors of a network of Garg et al., got {got} ..")
    outside = {name: tensors.pop(name) for name in OUTSIDE}
    blocks = {name.removeprefix(BACKBONE): value for name, value in tensors.items()}
    read_in = outside["_read_in.weight"]
    width = read_in.shape[0] if read_in.ndim == 2 else 0
    wanted = ((width, max(read_in.size // max(width, 1), 1)), (width,), (1, width), (1,))
    for name, shape in zip(OUTSIDE, wanted):
        if outside[name].shape != shape or not width:
            raise ValueError(f"{path}: {name} must be of shape {shape}, got {outside[name].shape}")
    blocks["wte.weight"] = np.zeros((1, width), np.float32)  # which nothing reads
    layers = check_blocks(path, {name: value.shape for name, value in blocks.items()}, width)
    if heads is None and width % HEAD_SIZE:
        raise ValueError(f"{path}: heads must be given for a width of {width}, which {HEAD_SIZE} does not divide")
    heads = checked_heads(path, heads, width, HEAD_SIZE)
    weights = block_weights(blocks, layers)
    weights |= {name[1:].replace(".weight", "").replace(".bias", "_bias"): one.T for name, one in outside.items()}
    return GPT(layers, heads, width, len(blocks["wpe.weight"])), {
        "params": {name: jnp.asarray(value, jnp.float32) for name, value in weights.items()}
    }


def _tensors(path: Path) -> dict[str, np.ndarray]:
    """All tensors but masks, by name without what parallel and compiled models put before it."""
    if path.suffix in PICKLES:
        raise ValueError(f"{path}: a pickle of PyTorch may run any code and is not read; {CONVERT}")
    if path.suffix != ".npz":
        return read_tensors(path, lambda file, name: np.asarray(file.get_tensor(name), np.float32))
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path}: {'damaged, or no npz' if path.is_file() else 'no such file of weights'}")
    try:
        with np.load(path, allow_pickle=False) as file:
            tensors = {name: np.asarray(file[name], np.float32) for name in file.files if not name.endswith(BUFFERS)}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: damaged, or no npz of numbers ({error})") from error
    return {".".join(word for word in name.split(".") if word not in WRAPPERS): one for name, one in tensors.items()}
