"""ggml's operator FLASH_ATTN_EXT in an unmodified ggml (of the wheel xllamacpp), computed by quire.

Each case is computed by the wheel as it is, by the wheel under quire-ggml, and in float64 on the dequantised
blocks: quire's error must not be above ggml's own.
"""

import json
import math

import ml_dtypes
import numpy as np
import pytest
from blocks import BYTES, decode
from ggml_program import numbers_of
from llama import counts, needs_llama, run

TYPES = ["f32", "f16", "bf16", *BYTES]
FIRST_CALL = {"the first call, which shows how it is called": 1}


def case(**changes):
    base = {
        "seed": 0, "streams": 1, "tokens": 1, "keys": 256, "H": 4, "Hk": 2, "D": 64, "Dv": None,
        "key_type": "f16", "value_type": None, "value_in_key": False, "mask": "causal", "scale": None,
        "max_bias": 0.0, "soft_cap": 0.0, "sinks": False, "threads": 2,
    }  # fmt: skip
    made = base | changes
    made["Dv"] = made["Dv"] or made["D"]
    made["value_type"] = made["value_type"] or made["key_type"]
    made["scale"] = made["scale"] or 1 / math.sqrt(made["D"])
    return made


# ---- masks: float16 [ne33, ne32, tokens, keys], as llama.cpp fills them ------------------------------------


def mask_of(c):
    rng = np.random.default_rng(c["seed"] + 1)
    shape = (c["streams"], 1, c["tokens"], c["keys"])
    i, j = np.arange(c["tokens"])[:, None], np.arange(c["keys"])[None, :]
    position = (
        c["keys"] - c["tokens"] - min(40, c["keys"] // 3) + i
    )  # the last keys are cells without a token
    if c["mask"] is None:
        return None
    if c["mask"] == "causal":
        mask = np.where(j <= position, 0, -np.inf)
    elif c["mask"] == "window":
        mask = np.where((j <= position) & (j > position - 50), 0, -np.inf)
    elif c["mask"] == "slots":  # sequences in one cache: most cells in runs, the last ones in turns
        owner = np.where(j < c["keys"] // 2, j * 2 * c["tokens"] // c["keys"], j % c["tokens"])
        mask = np.where(owner == i, 0, -np.inf)
    elif c["mask"] == "slopes":  # ALiBi: the distance, which max_bias makes slopes of
        mask = np.where(j <= position, -np.abs(j - position), -np.inf)
    elif c["mask"] == "numbers":
        mask = np.where(rng.random((c["tokens"], c["keys"])) < 0.2, -np.inf, rng.normal(size=(1, c["keys"])))
    elif c["mask"] == "heads":
        shape = (1, c["H"], c["tokens"], c["keys"])
        mask = np.where(
            rng.random((c["H"], 1, c["keys"])) < 0.2, -np.inf, rng.normal(size=(c["H"], 1, c["keys"]))
        )
    else:
        mask = np.full((c["tokens"], c["keys"]), -np.inf)
        mask[1::2, : c["keys"] // 2] = 0  # every other row sees nothing
    return np.ascontiguousarray(np.broadcast_to(mask, shape)).astype(np.float16)


# ---- the definition ----------------------------------------------------------------------------------------


def decoded(name, stored, shape):
    """Numbers of a dense tensor [streams, keys, Hk, D] from its bytes."""
    if name in BYTES:
        return decode(name, stored.reshape(*shape[:-1], -1)).astype(np.float64)
    types = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    return stored.view(types[name]).reshape(shape).astype(np.float64)


def definition(c, key, value, mask):
    query, _, _, sinks = numbers_of(c)
    query, sinks = query.astype(np.float32).astype(np.float64), sinks.astype(np.float32).astype(np.float64)
    group = c["H"] // c["Hk"]
    key, value = (np.repeat(x, group, axis=2) for x in (key, value))
    score = c["scale"] * np.einsum("bihd,bjhd->bhij", query, key)
    if c["soft_cap"]:
        score = c["soft_cap"] * np.tanh(score / c["soft_cap"])
    if mask is not None:
        power = 2 ** int(math.log2(c["H"]))
        m0, m1 = 2 ** (-c["max_bias"] / power), 2 ** (-c["max_bias"] / 2 / power)
        slopes = [m0 ** (h + 1) if h < power else m1 ** (2 * (h - power) + 1) for h in range(c["H"])]
        slope = np.array(slopes).reshape(1, -1, 1, 1) if c["max_bias"] > 0 else 1.0
        added = mask.astype(np.float64)
        score = score + np.where(np.isinf(added), -np.inf, slope * np.where(np.isinf(added), 0, added))
    top = score.max(-1, keepdims=True)
    if c["sinks"]:
        top = np.maximum(top, sinks.reshape(1, -1, 1, 1))
    top = np.where(np.isinf(top), 0, top)
    weight = np.exp(score - top)
    total = weight.sum(-1, keepdims=True)
    if c["sinks"]:
        total = total + np.exp(sinks.reshape(1, -1, 1, 1) - top)
    weight = weight / np.where(total == 0, 1, total)
    return np.einsum("bhij,bjhd->bihd", weight, value)


# ---- cases -------------------------------------------------------------------------------------------------


def compute(cases, directory, by_quire):
    """The wheel's results, and what it printed at the end."""
    name = directory / "cases.json"
    masks = {str(i): mask for i, c in enumerate(cases) if (mask := mask_of(c)) is not None}
    name.write_text(json.dumps(cases))
    np.savez(f"{name}.npz", **masks)
    program = __file__.replace("test_llama_operator", "ggml_program")
    results = directory / ("quire.npz" if by_quire else "ggml.npz")
    _, errors = run([program, name, results], by_quire=by_quire)
    return dict(np.load(results)), errors


def errors_of(found, wanted):
    difference = found - wanted
    scale = np.sqrt((wanted**2).mean()) or 1.0
    return np.abs(difference).max() / scale, np.sqrt((difference**2).mean()) / scale


def check(cases, directory):
    """Every case is computed by quire, and no worse than ggml does it."""
    cases = [case(**c) for c in cases]
    ggml, printed = compute(cases, directory, by_quire=False)
    assert "quire" not in printed
    quire, printed = compute(cases, directory, by_quire=True)
    by_quire, by_ggml = counts(printed)
    assert (by_quire, by_ggml) == (len(cases), FIRST_CALL), printed
    for i, c in enumerate(cases):
        shape = (c["streams"], c["keys"], c["Hk"], c["D"])
        key = decoded(c["key_type"], quire[f"key{i}"], shape)
        if c["value_in_key"]:
            value = key[..., : c["Dv"]]
        else:
            value = decoded(c["value_type"], quire[f"value{i}"], (*shape[:-1], c["Dv"]))
        wanted = definition(c, key, value, mask_of(c))
        assert np.array_equal(quire[f"key{i}"], ggml[f"key{i}"])
        ours, theirs = errors_of(quire[f"output{i}"], wanted), errors_of(ggml[f"output{i}"], wanted)
        # Both are float32 where ggml rounds nothing: then they differ by chance.
        assert ours[0] <= max(theirs[0], 2e-5) and ours[1] <= max(theirs[1], 1e-6), (c, ours, theirs)


@needs_llama
@pytest.mark.parametrize("value_type", TYPES)
def test_every_pair_of_types(tmp_path, value_type):
    tokens = [1, 3, 40]
    check(
        [{"key_type": k, "value_type": value_type, "tokens": n, "seed": n} for k in TYPES for n in tokens],
        tmp_path,
    )


@needs_llama
@pytest.mark.parametrize("key_type", ["f16", "q8_0", "q4_0"])
def test_head_sizes_and_groups(tmp_path, key_type):
    sizes = [(64, 9, 3), (80, 8, 8), (96, 6, 2), (128, 8, 1), (128, 32, 8), (192, 4, 2), (256, 4, 1)]
    check(
        [
            {"D": D, "H": H, "Hk": Hk, "tokens": n, "keys": 300, "key_type": key_type, "seed": D + n}
            for D, H, Hk in sizes
            for n in (1, 5, 70)
            if D % 32 == 0 or key_type == "f16"
        ],
        tmp_path,
    )


@needs_llama
@pytest.mark.parametrize("key_type", ["f16", "bf16", "q8_0", "q4_0"])
def test_values_within_keys(tmp_path, key_type):
    mla = {"D": 576, "Dv": 512, "H": 16, "Hk": 1, "value_in_key": True, "key_type": key_type, "keys": 200}
    check([mla | {"tokens": n, "seed": n} for n in (1, 2, 30)], tmp_path)


@needs_llama
@pytest.mark.parametrize("key_type", ["f16", "q8_0"])
def test_lengths(tmp_path, key_type):
    lengths = [
        (1, 1),
        (1, 31),
        (1, 1000),
        (2, 700),
        (8, 129),
        (9, 1500),
        (33, 512),
        (127, 256),
        (200, 1111),
        (600, 900),
    ]
    check(
        [
            {
                "tokens": n,
                "keys": max(n, m),
                "key_type": key_type,
                "H": 6,
                "Hk": 2,
                "threads": threads,
                "seed": n,
            }
            for n, m in lengths
            for threads in (1, 2, 3)
        ],
        tmp_path,
    )


@needs_llama
@pytest.mark.parametrize(
    "mask", [None, "causal", "window", "slots", "slopes", "numbers", "heads", "blind rows"]
)
def test_masks(tmp_path, mask):
    check(
        [
            {
                "mask": mask, "tokens": n, "keys": 700, "key_type": key_type, "seed": n, "H": 6, "Hk": 3,
                "max_bias": 8.0 if mask == "slopes" else 0.0,
            }
            for n in (1, 4, 24, 150)
            for key_type in ("f16", "q8_0", "q4_0")
        ],
        tmp_path,
    )  # fmt: skip


@needs_llama
def test_soft_cap_sinks_and_streams(tmp_path):
    options = [
        {"soft_cap": 5.0},
        {"sinks": True},
        {"sinks": True, "soft_cap": 30.0, "mask": "window"},
        {"sinks": True, "mask": "blind rows"},
        {"streams": 3},
        {"streams": 3, "mask": "window", "sinks": True},
        {"streams": 2, "mask": None, "scale": 0.3},
    ]
    check(
        [
            o | {"tokens": n, "key_type": key_type, "keys": 500, "seed": n}
            for o in options
            for n in (1, 6, 90)
            for key_type in ("f16", "q8_0")
        ],
        tmp_path,
    )


@needs_llama
def test_what_is_not_taken_over_is_counted(tmp_path):
    """K and V of a type that quire does not know go to ggml, and give what ggml gives."""
    cases = [case(value_type="q8_0"), case(scale=1e-30), case(soft_cap=-1.0)]
    ggml, _ = compute(cases, tmp_path, by_quire=False)
    quire, printed = compute(cases, tmp_path, by_quire=True)
    by_quire, by_ggml = counts(printed)
    assert (by_quire, by_ggml) == (2, FIRST_CALL | {"its soft cap is negative or not finite": 1})
    np.testing.assert_array_equal(quire["output2"], ggml["output2"])
