"""The float64 definition against the golden cases: what test_properties trusts."""

import golden
import numpy as np
import pytest
import reference
import reference_mindspore


@pytest.mark.parametrize(
    "case", golden.cases_of("pmx_dynamic_mhca", "features_dynamic_mhca"), ids=lambda case: case.id
)
def test_multi_head_cache_attention(case):
    inputs, attributes = case.load()["in"], dict(case.entry["attributes"])
    softmax_scale = attributes.pop("scale", None)
    output, lse = reference.multi_head_cache_attention(**inputs, **attributes, softmax_scale=softmax_scale)
    results = {"attn_output": output.astype(inputs["query"].dtype), "lse": lse.astype(np.float32)}
    results["cache"] = inputs["cache"]
    if attributes["quant_bit"] == 4:
        results["cache"] = golden.wrap_int4(results["cache"])
    if "scale" in inputs:
        results["scale"] = inputs["scale"]
    golden.check(case, results)


@pytest.mark.parametrize("case", golden.cases_of("features_attention"), ids=lambda case: case.id)
def test_attention(case):
    inputs, attributes = case.load()["in"], dict(case.entry["attributes"])
    del attributes["num_heads"], attributes["num_kv_heads"]
    output, lse = reference.attention(**inputs, **attributes)
    golden.check(case, {"attn_output": output.astype(inputs["query"].dtype), "lse": lse.astype(np.float32)})


@pytest.mark.parametrize("case", golden.cases_of("features_merge_states"), ids=lambda case: case.id)
def test_merge_states(case):
    inputs = case.load()["in"]
    output, lse = reference.merge_states(**inputs)
    golden.check(
        case, {"attn_output": output.astype(inputs["output_a"].dtype), "lse": lse.astype(np.float32)}
    )


@pytest.mark.parametrize("case", golden.cases_of("mindspore_mha"), ids=lambda case: case.id)
def test_mindspore_multi_head_attention(case):
    inputs, attributes = case.load()["in"], case.entry["attributes"]
    weights = {name: inputs.pop(name) for name in list(inputs) if "." in name}
    inputs["B"] = attributes["batch_size"]
    query = inputs["query_tensor"]
    output, *presents = reference_mindspore.multi_head_attention(
        inputs, weights, num_heads=attributes["num_heads"], compute_dtype=attributes["compute_dtype"],
        incremental=attributes["use_past"] and not attributes["is_first_iteration"],
    )  # fmt: skip
    results = {"output": output.reshape(query.shape).astype(query.dtype)}
    for i, present in enumerate(presents):
        results[f"layer_present_{i}"] = present.astype(attributes["compute_dtype"])
    golden.check(case, results)
