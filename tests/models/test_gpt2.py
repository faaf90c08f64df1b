"""Files are written here by hand, so that the format is tested and not the library against itself."""

import functools
import json
import socket
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from garg_state import gpt2

from icl_lab.models import load_gpt2, load_tokenizer
from icl_lab.models.gpt2 import HEADER_LIMIT, gpt2_network

L, E, H, V, P = 2, 32, 4, 50, 16
KINDS = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64}
TOKENS = np.random.default_rng(4).integers(0, V, 9)
pytest.importorskip("safetensors")


def small(prefix="", layers=L):
    """The tensors of a GPT-2 with weights so large that every one matters."""
    draw = np.random.default_rng(0).normal
    shapes = {"wte.weight": (V, E), "wpe.weight": (P, E), "ln_f.weight": (E,), "ln_f.bias": (E,)}
    for i in range(layers):
        shapes |= {f"h.{i}.{norm}.{part}": (E,) for norm in ("ln_1", "ln_2") for part in ("weight", "bias")}
        for name, (rows, columns) in {
            "attn.c_attn": (E, 3 * E),
            "attn.c_proj": (E, E),
            "mlp.c_fc": (E, 4 * E),
            "mlp.c_proj": (4 * E, E),
        }.items():
            shapes |= {f"h.{i}.{name}.weight": (rows, columns), f"h.{i}.{name}.bias": (columns,)}
    return {prefix + name: (0.3 * draw(size=shape)).astype(np.float32) for name, shape in shapes.items()}


def written(path, tensors, kind="F32", cut=0):
    """A safetensors file: length of the header, header, bytes."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, value in tensors.items():
        raw = np.ascontiguousarray(value, KINDS[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": value.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    data = len(text).to_bytes(8, "little") + text + body
    path.write_bytes(data[: len(data) - cut])
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def logits_of(tensors, tokens):
    """The forward pass in float64."""
    w = {name: value.astype(float) for name, value in tensors.items()}
    return gpt2(w, w["wte.weight"][tokens] + w["wpe.weight"][: len(tokens)], H) @ w["wte.weight"].T


@functools.cache
def run(network):
    return jax.jit(network.apply)


def test_logits_are_those_of_an_independent_forward_pass(path):
    network, params = load_gpt2(written(path, small()), heads=H)
    assert (network.vocabulary, network.layers, network.heads, network.width, network.positions) == (V, L, H, E, P)
    logits, _ = run(network)(params, jnp.asarray(TOKENS))
    np.testing.assert_allclose(logits, logits_of(small(), TOKENS), atol=1e-4)
    shapes = jax.eval_shape(network.init, jax.random.key(0), jnp.asarray(TOKENS))
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, params)


@pytest.mark.parametrize(
    "prefix", ["transformer.", "_orig_mod.", "module.", "module._orig_mod.transformer.", "transformer._orig_mod."]
)
def test_names_with_prefixes_with_an_equal_head_and_with_masks_are_the_same_network(path, prefix):
    network, params = load_gpt2(written(path, small()), heads=H)
    more = small(prefix) | {"lm_head.weight": small()["wte.weight"]}
    more |= {f"{prefix}h.0.attn.bias": np.tril(np.ones((1, 1, P, P))), f"{prefix}h.1.attn.masked_bias": np.ones(())}
    same, again = load_gpt2(written(path, more), heads=H)
    assert same == network
    jax.tree.map(np.testing.assert_array_equal, again, params)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_half_precision_is_widened(path, kind):
    _, params = load_gpt2(written(path, small(), kind), heads=H)
    for ours, theirs in {"embedding": "wte.weight", "norm_offset": "ln_f.bias"}.items():
        assert params["params"][ours].dtype == jnp.float32
        np.testing.assert_array_equal(params["params"][ours], small()[theirs].astype(KINDS[kind]).astype(np.float32))


def test_heads_of_published_sizes_need_not_be_told(path):
    wide = {name: np.tile(value, (24,) * value.ndim) for name, value in small(layers=1).items()}  # width 768
    assert gpt2_network(written(path, wide, "F16")).heads == 12
    wide = {name: np.tile(value, (2,) * value.ndim) for name, value in small(layers=1).items()}  # width 64
    with pytest.raises(ValueError, match=r"heads must be given for a width of 64 \(heads=H, in a command --heads=H\)"):
        gpt2_network(written(path, wide))
    with pytest.raises(ValueError, match=r"heads must be given for a width of 32"):
        load_gpt2(written(path, small()))
    with pytest.raises(ValueError, match=r"heads must divide the width 32 .* got 5"):
        load_gpt2(path, heads=5)


def test_a_configuration_beside_the_file_says_heads_and_what_the_weights_are_for(path):
    written(path, small())
    beside = path.parent / "config.json"
    beside.write_text(json.dumps({"n_head": H, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}))
    assert gpt2_network(path).heads == load_gpt2(path)[0].heads == load_gpt2(path, H)[0].heads == H
    with pytest.raises(ValueError, match=r"heads must be 4, the n_head of config\.json beside .*, got 8"):
        gpt2_network(path, 8)
    for name, value in {"activation_function": "relu", "layer_norm_epsilon": 1e-6, "model_type": "opt"}.items():
        beside.write_text(json.dumps({name: value}))
        with pytest.raises(ValueError, match=rf"config\.json: {name} must be .*, got {value!r}"):
            gpt2_network(path, H)
    beside.write_text("[1")
    with pytest.raises(ValueError, match=r"config\.json: no configuration"):
        gpt2_network(path, H)


def test_a_configuration_of_other_sizes_is_refused(path):
    written(path, small())
    for name, said in {"n_layer": L + 1, "n_embd": 2 * E, "vocab_size": V + 1, "n_positions": P - 1}.items():
        (path.parent / "config.json").write_text(json.dumps({"n_head": H, name: said}))
        with pytest.raises(ValueError, match=rf"{name} of config\.json beside it is {said}, its tensors say"):
            gpt2_network(path)


def test_shards_and_their_index_are_refused_as_such(path):
    shard = written(path.with_name("model-00001-of-00002.safetensors"), small())
    index = path.with_name("model.safetensors.index.json")
    index.write_text(json.dumps({"weight_map": {}}))
    for part, said in ((shard, "not one shard of several"), (index, "not an index of shards")):
        with pytest.raises(ValueError, match=said):
            gpt2_network(part, H)
    half = {name: value for name, value in small().items() if not name.startswith(("h.1.", "ln_f"))}
    with pytest.raises(ValueError, match=r"missing: ln_f.*one shard of several, merge"):
        gpt2_network(written(path, half), H)
    assert gpt2_network(written(path.with_name("model-00001-of-00001.safetensors"), small()), H).layers == L


def test_the_network_of_a_file_is_known_before_its_weights_are_read(path):
    network, _ = load_gpt2(written(path, small()), heads=H)
    assert gpt2_network(path, H) == network
    assert gpt2_network(written(path, changed(lm_head__weight=small()["wte.weight"] + 1)), H) == network


def changed(**values):
    """The tensors with some replaced, or taken out where the value is None."""
    tensors = small() | {name.replace("__", "."): value for name, value in values.items()}
    return {name: value for name, value in tensors.items() if value is not None}


REFUSED = {
    "wte.weight must be the embedding .* missing": changed(wte__weight=None),
    r"wte.weight must be the embedding .* of shape \(50,\)": changed(wte__weight=np.ones(V)),
    "missing: wpe.weight": changed(wpe__weight=None),
    "not GPT-2's: h.0.attn.rotary.inv_freq": changed(h__0__attn__rotary__inv_freq=np.ones(4)),
    r"of 2 layers; missing: h.1.attn.c_attn.bias, .* \.\.; not GPT-2's: h.7.attn.c_attn.bias, .* \.\.": {
        name.replace("h.1.", "h.7."): value for name, value in small().items()
    },
    r"c_attn.weight must be of shape \(32, 96\), got \(96, 32\).* transposed: .* attn.c_proj.weight among them": {
        name: value.T if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")) else value
        for name, value in small().items()
    },
    "missing: h.0.attn.c_attn.bias.*no biases, write zeros": {
        name: value for name, value in small().items() if not name.endswith(".bias")
    },
    r"called model\.wte\.weight; take what stands before": small("model."),
    r"ln_f.weight must be of shape \(32,\), got \(\)": changed(ln_f__weight=np.ones(())),
    r"wpe.weight must be of shape \(16, 32\), got \(16, 31\)": changed(wpe__weight=np.ones((P, E - 1))),
    "lm_head.weight must equal wte.weight": changed(lm_head__weight=small()["wte.weight"] + 1),
    "wte.weight is there twice": small() | {"transformer.wte.weight": np.ones((V, E))},
}


@pytest.mark.parametrize("said", REFUSED)
def test_tensors_of_another_network_are_refused_by_name(path, said):
    with pytest.raises(ValueError, match=said) as refusal:
        load_gpt2(written(path, REFUSED[said]), heads=H)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("name", ["wte.weight", "wpe.weight", "h.1.mlp.c_fc.weight", "ln_f.bias"])
@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_named(path, name, wrong):
    tensors = small()
    tensors[name] = tensors[name].copy()
    tensors[name].flat[3] = wrong
    with pytest.raises(ValueError, match=f"{name} must hold finite numbers, 1 of {tensors[name].size} are NaN"):
        load_gpt2(written(path, tensors), heads=H)


def test_types_that_are_no_weights_are_refused(path):
    with pytest.raises(ValueError, match=r"wte.weight must be of type F16, BF16, F32, got F64") as refusal:
        load_gpt2(written(path, {"wte.weight": np.ones((V, E))}, "F64"), heads=H)
    assert str(path) in str(refusal.value)


def test_truncated_files_and_other_files_are_refused(path, tmp_path):
    whole = written(path, small()).read_bytes()
    header = int.from_bytes(whole[:8], "little")
    text = json.loads(whole[8 : 8 + header])
    text["wte.weight"]["data_offsets"][1] += 4  # more bytes than its shape has
    spans = json.dumps(text).encode()
    broken = {
        "cut in the tensors": whole[:-4],
        "cut in the header": whole[: header // 2],
        "cut in the length": whole[:5],
        "empty": b"",
        "a long header": HEADER_LIMIT.to_bytes(8, "little") + whole[8:],
        "an insane header": b"\xff" * 8 + whole[8:],
        "no JSON": whole[:8] + b"[" + whole[9:],
        "wrong spans": len(spans).to_bytes(8, "little") + spans + whole[8 + header :],
        "more bytes": whole + b"1234",
    }
    for what, data in broken.items():
        path.write_bytes(data)
        with pytest.raises(ValueError, match="truncated or no safetensors file") as refusal:
            load_gpt2(path, heads=H)
        assert str(path) in str(refusal.value), what
    with pytest.raises(ValueError, match=r"nothing\.safetensors: no such file"):
        load_gpt2(tmp_path / "nothing.safetensors")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a network was asked for")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.usefixtures("no_network")
def test_a_file_that_is_not_there_is_not_looked_for_elsewhere(path, tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        load_gpt2("gpt2")
    with pytest.raises(ValueError, match="missing"):
        load_tokenizer("gpt2")
    load_gpt2(written(path, small()), heads=H)


@pytest.mark.parametrize("library", ["safetensors", "tokenizers"])
def test_a_missing_library_is_named_with_what_to_install(path, tmp_path, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, None)
    written(path, small())
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ImportError, match=rf"library {library}: pip install 'icl-lab\[gpt2\]'"):
        load_gpt2(path, heads=H) if library == "safetensors" else load_tokenizer(tmp_path)


@pytest.mark.parametrize("there", ["vocab.json", "merges.txt"])
def test_a_tokenizer_file_without_its_pair_is_refused(tmp_path, there):
    (tmp_path / there).write_text("{}")
    (absent,) = {"vocab.json", "merges.txt"} - {there}
    with pytest.raises(ValueError, match=f"missing: .*{absent}$"):
        load_tokenizer(tmp_path)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", ["vocab.json", "tokenizer.json"])
def test_text_becomes_tokens_and_text_again(tmp_path, name):
    tokenizers = pytest.importorskip("tokenizers", reason="not in the lock: it pulls a network client")
    words = ["a", "b", "c", "Ġ", "ab", "Ġab", "<|endoftext|>"]  # Ġ stands for a space
    ids = {word: i for i, word in enumerate(words)}
    if name == "vocab.json":
        (tmp_path / name).write_text(json.dumps(ids), encoding="utf-8")
        (tmp_path / "merges.txt").write_text("#version: 0.2\na b\nĠ ab\n", encoding="utf-8")
    else:
        bpe = tokenizers.ByteLevelBPETokenizer(ids, [("a", "b"), ("Ġ", "ab")])
        bpe.enable_truncation(2)
        bpe.enable_padding(length=9)
        bpe.save(str(tmp_path / name))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode("abc ab<|endoftext|>ba") == [4, 2, 5, 6, 1, 0]
    assert tokenizer.decode([4, 2, 5, 6, 1, 0]) == "abc ab<|endoftext|>ba"
    (tmp_path / name).write_text("no JSON")
    with pytest.raises(ValueError, match=rf"{name}( and .*)? are not a tokenizer"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("half", [False, True])
def test_a_random_network_of_transformers_gives_the_same_logits(tmp_path, half):
    transformers = pytest.importorskip("transformers", reason="the library transformers is not installed")
    torch = pytest.importorskip("torch", reason="the library torch is not installed")
    torch.manual_seed(0)
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=V, n_positions=P, n_embd=E, n_layer=L, n_head=H)
    ).eval()
    theirs = theirs.to(torch.bfloat16) if half else theirs
    theirs.save_pretrained(tmp_path)
    network, params = load_gpt2(tmp_path / "model.safetensors")
    assert network.heads == H
    with torch.no_grad():
        expected = theirs.float()(torch.tensor(TOKENS)[None]).logits[0].numpy()
    logits, _ = run(network)(params, jnp.asarray(TOKENS))
    np.testing.assert_allclose(logits, expected, atol=3e-5)
