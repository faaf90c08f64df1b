"""States in the layout of Garg et al.'s code, and the forward pass of GPT-2, written by hand."""

import numpy as np


def state(own, before=""):
    """Weights of a ``GPT``, by name, as ``TransformerModel.state_dict()`` of the released code has them."""
    layers, (positions, width) = len(own["w_p"]), own["position"].shape
    found = {"_read_in.weight": own["read_in"].T, "_read_in.bias": own["read_in_bias"]}
    found |= {"_read_out.weight": own["read_out"].T, "_read_out.bias": own["read_out_bias"]}
    found |= {"_backbone.wte.weight": np.ones((7, width)), "_backbone.wpe.weight": own["position"]}
    found |= {"_backbone.ln_f.weight": own["norm_scale"], "_backbone.ln_f.bias": own["norm_offset"]}
    names = {
        "ln_1.weight": "attention_scale", "ln_1.bias": "attention_offset", "attn.c_attn.weight": "w_qkv",
        "attn.c_attn.bias": "qkv_bias", "attn.c_proj.weight": "w_p", "attn.c_proj.bias": "p_bias",
        "ln_2.weight": "mlp_scale", "ln_2.bias": "mlp_offset", "mlp.c_fc.weight": "mlp_in",
        "mlp.c_fc.bias": "mlp_in_bias", "mlp.c_proj.weight": "mlp_out", "mlp.c_proj.bias": "mlp_out_bias",
    }  # fmt: skip
    for i in range(layers):
        found |= {f"_backbone.h.{i}.{theirs}": own[ours][i] for theirs, ours in names.items()}
        found |= {f"_backbone.h.{i}.attn.bias": np.tril(np.ones((1, 1, positions, positions), bool))}
        found |= {f"_backbone.h.{i}.attn.masked_bias": np.array(-1e4)}
    return {before + name: value for name, value in found.items()}


def norm(x, w, name):
    unit = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return unit * w[f"{name}.weight"] + w[f"{name}.bias"]


def conv(x, w, name):
    return x @ w[f"{name}.weight"] + w[f"{name}.bias"]


def gpt2(w, x, heads):
    """What the blocks of GPT-2 and the norm after them make of a stream (T, E), one head of one token at a time."""
    size = x.shape[1] // heads
    for i in range(sum(name.endswith("attn.c_attn.weight") for name in w)):
        q, k, v = np.split(conv(norm(x, w, f"h.{i}.ln_1"), w, f"h.{i}.attn.c_attn"), 3, axis=1)
        read = np.zeros_like(x)
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            for t in range(len(x)):
                weights = np.exp(k[: t + 1, own] @ q[t, own] / np.sqrt(size))
                read[t, own] = weights @ v[: t + 1, own] / weights.sum()
        x = x + conv(read, w, f"h.{i}.attn.c_proj")
        u = conv(norm(x, w, f"h.{i}.ln_2"), w, f"h.{i}.mlp.c_fc")
        u = 0.5 * u * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))
        x = x + conv(u, w, f"h.{i}.mlp.c_proj")
    return norm(x, w, "ln_f")
