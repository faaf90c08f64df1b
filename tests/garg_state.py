"""States in the layout of Garg et al.'s code, written by hand."""

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
