"""The float64 definition against the golden cases: what test_properties trusts."""

import golden
import numpy as np
import pytest
import reference


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
