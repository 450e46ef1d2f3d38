"""Runs golden cases of DirectML's DML_MULTIHEAD_ATTENTION1."""

import re

import quire


def _python_name(field):
    """StackedQueryKeyValueTensor -> stacked_query_key_value."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", field.removesuffix("Tensor")).lower()


def run(case, inputs, context):
    arrays = {_python_name(name): array for name, array in inputs.items()}
    output, present_key, present_value = quire.directml.multihead_attention1(
        **arrays, **case.entry["attributes"], context=context
    )
    for result in (output, present_key, present_value):
        assert all(result.dtype == array.dtype for name, array in arrays.items() if name != "mask")
    return {
        "OutputTensor": output,
        "OutputPresentKeyTensor": present_key,
        "OutputPresentValueTensor": present_value,
    }
