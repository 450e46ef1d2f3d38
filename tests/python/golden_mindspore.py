"""Runs golden cases of MindSpore's MultiHeadAttention."""

import numpy as np
import quire


def run(case, inputs, context):
    attributes = dict(case.entry["attributes"])
    first = attributes.pop("is_first_iteration")
    layer = quire.mindspore.MultiHeadAttention(**attributes, context=context)
    layer.is_first_iteration = first
    tensors = {}
    for name, array in inputs.items():
        if "." in name:
            dense, part = name.split(".")
            setattr(getattr(layer, dense), part, array)
        else:
            tensors[name] = array
    output, (key_present, value_present) = layer(**tensors)
    assert output.dtype == inputs["query_tensor"].dtype
    for present in (key_present, value_present):
        assert present.dtype == np.dtype(attributes["compute_dtype"])
    return {"output": output, "layer_present_0": key_present, "layer_present_1": value_present}
