"""Runs golden cases of ONNX Attention."""

import quire

OUTPUTS = ("Y", "present_key", "present_value", "qk_matmul_output")


def run(case, inputs, context):
    attributes = dict(case.entry["attributes"])
    wanted = case.entry["outputs"]
    if "qk_matmul_output" in wanted:
        attributes.setdefault("qk_matmul_output_mode", 0)
    results = quire.onnx.attention(**inputs, **attributes, present="present_key" in wanted, context=context)
    results = dict(zip(OUTPUTS, results))
    assert results["Y"].dtype == inputs["Q"].dtype
    assert all((results[name] is not None) == (name in wanted) for name in OUTPUTS)
    return results
