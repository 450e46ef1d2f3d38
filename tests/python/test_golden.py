"""Golden cases through the Python binding, on every target and in every way to use threads."""

import re

import contexts
import golden
import golden_directml
import golden_mindspore
import golden_onnx
import numpy as np
import pytest
import quire
import reference


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


def run_pmx_attention(case, inputs, context):
    operator = quire.pmx if "static" in case.family else quire.pmx.dynamic_batching
    output, lse = operator.multi_head_attention(
        **inputs, **case.entry["attributes"], return_lse=True, context=context
    )
    return {"attn_output": output, "lse": lse}


def run_pmx_with_cache(case, inputs, context):
    """The operators of the static document, and both KeyValueCache."""
    attributes = case.entry["attributes"]
    int4 = attributes["quant_bit"] == 4
    if int4:
        inputs["cache"] = quire.pack_int4(golden.wrap_int4(inputs["cache"]))
    operators = quire.pmx if "static" in case.family else quire.pmx.dynamic_batching
    if "kvcache" in case.family:
        key, value = operators.key_value_cache(**inputs, **attributes, context=context)
        results = {"key": key, "value": value}
    else:
        output, lse = operators.multi_head_cache_attention(
            **inputs, **attributes, return_lse=True, context=context
        )
        results = {"attn_output": output, "lse": lse}
    results["cache"] = quire.unpack_int4(inputs["cache"]) if int4 else inputs["cache"]
    return {**results, "scale": inputs.get("scale")}


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
    "dml_mha": golden_directml.run,
    "onnx_attention": golden_onnx.run,
    "features_attention": run_attention,
    "features_dynamic_mhca": run_multi_head_cache_attention,
    "features_merge_states": run_merge_states,
    "mindspore_mha": golden_mindspore.run,
    "pmx_dynamic_kvcache": run_pmx_with_cache,
    "pmx_dynamic_mha": run_pmx_attention,
    "pmx_dynamic_mhca": run_multi_head_cache_attention,
    "pmx_static_kvcache": run_pmx_with_cache,
    "pmx_static_mha": run_pmx_attention,
    "pmx_static_mhca": run_pmx_with_cache,
}

FAMILIES = {case.family for case in golden.cases()}

# Names of outputs and, where it is not that of the inputs, their type.
OUTPUT_TYPES = {"attn_output": None, "key": None, "value": None, "lse": np.float32}


def assert_output_types(inputs, results):
    activations = [inputs[name] for name in ("query", "current_key", "output_a") if name in inputs]
    for name in OUTPUT_TYPES.keys() & results.keys():
        assert results[name].dtype == (OUTPUT_TYPES[name] or activations[0].dtype)


def test_the_full_set_is_there():
    if not golden.full_set_is_there():
        pytest.skip("GOLDEN CASES MISSING: only the bundled ones run; QUIRE_GOLDEN_DIR names the full set")


def test_every_family_is_known():
    assert {case.family for case in golden.cases()} <= RUNNERS.keys()


def test_there_are_cases():
    assert golden.cases(), f"no cases in {golden.folder()}"
    assert len({case.id for case in golden.cases()}) == len(golden.cases()), "two cases of one name"


@pytest.mark.parametrize("threading", contexts.THREADINGS)
@pytest.mark.parametrize("target", contexts.TARGETS)
@pytest.mark.parametrize("case", golden.cases(), ids=lambda c: c.id)
def test_golden(case, target, threading):
    assert case.family in RUNNERS, f"{case.id}: nothing here can run a case of the family {case.family}"
    context = contexts.context(target, threading)
    inputs = case.load()["in"]
    unchanged = {name: array.copy() for name, array in inputs.items() if name not in ("cache", "scale")}
    results = RUNNERS[case.family](case, inputs, context)
    assert_output_types(inputs, results)
    golden.check(case, results)
    for name, array in unchanged.items():
        assert array.tobytes() == inputs[name].tobytes(), f"{case.id}: the input {name} was changed"


# Merging has no plan; a layer holds its own, and test_mindspore.py asks it.
@pytest.mark.parametrize("target", contexts.TARGETS)
@pytest.mark.parametrize(
    "family", sorted(FAMILIES & RUNNERS.keys() - {"features_merge_states", "mindspore_mha"})
)
def test_every_stage_runs_on_the_target(family, target):
    """Generated code where the target has it, and not the fallback."""
    for case in golden.cases_of(family):
        context = quire.Context(target, num_threads=1)
        RUNNERS[case.family](case, case.load()["in"], context)
        texts = context.explain()
        stages = re.findall(r"^(?:attention|append|read): (\w+)$", "\n".join(texts), flags=re.MULTILINE)
        assert texts and set(stages) == {target}, f"{case.id}: {texts}"
