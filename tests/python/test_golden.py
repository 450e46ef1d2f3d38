"""Golden cases through the Python binding, on every target and in every way to use threads."""

import contexts
import golden
import numpy as np
import pytest
import quire
import reference

# Families of operators that are not built yet. A family in neither this set nor RUNNERS fails.
NOT_YET = {
    "dml_mha",
    "mindspore_mha",
    "onnx_attention",
    "pmx_dynamic_kvcache",
    "pmx_dynamic_mha",
    "pmx_static_kvcache",
    "pmx_static_mha",
    "pmx_static_mhca",
}


def run_multi_head_cache_attention(case, inputs, context):
    attributes = dict(case.entry["attributes"])
    softmax_scale = attributes.pop("scale", None)  # only the extensions have it; the input is another thing
    int4 = attributes["quant_bit"] == 4
    if int4:
        inputs["cache"] = quire.pack_int4(golden.wrap_int4(inputs["cache"]))
    before = {name: inputs[name].copy() for name in ("cache", "scale") if name in inputs}
    output, lse = quire.pmx.dynamic_batching.multi_head_cache_attention(
        **inputs, **attributes, softmax_scale=softmax_scale, return_lse=True, context=context
    )
    rows = reference.written_rows(
        inputs["seqstarts"],
        inputs["start_pos"],
        inputs["cachestarts"],
        cache_mode=attributes["cache_mode"],
        page_size=attributes["page_size"],
    )
    for name, tensor in before.items():
        place = (attributes["cache_layout"], attributes["layer_idx"])
        golden.assert_untouched(f"{case.id}: {name}", tensor, inputs[name], rows, *place)
    results = {"attn_output": output, "lse": lse, "cache": inputs["cache"], "scale": inputs.get("scale")}
    if int4:
        results["cache"] = quire.unpack_int4(inputs["cache"])
    return results


def run_attention(case, inputs, context):
    attributes = dict(case.entry["attributes"])
    assert attributes.pop("num_heads") == inputs["query"].shape[1]
    assert attributes.pop("num_kv_heads") == inputs["key"].shape[1]
    output, lse = quire.attention(**inputs, **attributes, return_lse=True, context=context)
    return {"attn_output": output, "lse": lse}


def run_merge_states(case, inputs, context):
    output, lse = quire.merge_states(**inputs, context=context)
    return {"attn_output": output, "lse": lse}


RUNNERS = {
    "features_attention": run_attention,
    "features_dynamic_mhca": run_multi_head_cache_attention,
    "features_merge_states": run_merge_states,
    "pmx_dynamic_mhca": run_multi_head_cache_attention,
}


def test_the_full_set_is_there():
    if not golden.full_set_is_there():
        pytest.skip(
            f"GOLDEN CASES MISSING: only the bundled ones run; set QUIRE_GOLDEN_DIR ({golden.FULL} has none)"
        )
    assert {case.family for case in golden.cases()} <= RUNNERS.keys() | NOT_YET


@pytest.mark.parametrize("family", sorted({case.family for case in golden.cases()} - RUNNERS.keys()))
def test_family_without_a_runner(family):
    assert family in NOT_YET, f"no runner for the golden family {family}"
    pytest.skip(f"NOT_YET: {len(golden.cases_of(family))} golden cases of {family}")


@pytest.mark.parametrize("threading", contexts.THREADINGS)
@pytest.mark.parametrize("target", contexts.TARGETS)
@pytest.mark.parametrize("case", golden.cases_of(*RUNNERS), ids=lambda case: case.id)
def test_golden(case, target, threading):
    context = contexts.context(target, threading)
    inputs = case.load()["in"]
    unchanged = {name: array.copy() for name, array in inputs.items() if name not in ("cache", "scale")}
    results = RUNNERS[case.family](case, inputs, context)
    activations = inputs["query"] if "query" in inputs else inputs["output_a"]
    assert results["attn_output"].dtype == activations.dtype and results["lse"].dtype == np.float32
    golden.check(case, results)
    for name, array in unchanged.items():
        assert array.tobytes() == inputs[name].tobytes(), f"{case.id}: the input {name} was changed"
