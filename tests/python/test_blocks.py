"""Keys and values in ggml's block formats, in place, against the same numbers as float32."""

import re

import numpy as np
import pytest
import quire
from blocks import BYTES, decode, random_rows


@pytest.mark.parametrize("value_format", [None, *BYTES])
@pytest.mark.parametrize("key_format", [None, *BYTES])
def test_rows_of_blocks(key_format, value_format):
    generator = np.random.default_rng(5)
    query = generator.normal(size=(5, 4, 64)).astype(np.float32)
    rows = []
    for name, dim in ((key_format, 64), (value_format, 96)):
        if name is None:
            stored = generator.normal(size=(40, 2, dim)).astype(np.float32)
        else:  # as llama.cpp keeps them, token by token, within something larger
            stored = random_rows(generator, name, 40, 4, dim)[:, 1:3]
        rows.append((stored, stored if name is None else decode(name, stored)))
    (key, key_numbers), (value, value_numbers) = rows
    output, lse = quire.attention(
        query, key, value, key_format=key_format, value_format=value_format, is_causal=True, return_lse=True
    )
    wanted, wanted_lse = quire.attention(query, key_numbers, value_numbers, is_causal=True, return_lse=True)
    np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(lse, wanted_lse, rtol=1e-5, atol=1e-5)


def test_errors():
    query = np.zeros((1, 1, 64), np.float32)
    rows = np.zeros((3, 1, 68), np.uint8)
    numbers = np.zeros((3, 1, 64), np.float32)

    def wrong(message, key=rows, value=numbers, **options):
        with pytest.raises(quire.Error, match=re.escape(message)):
            quire.attention(query, key, value, **options)

    wrong(
        "key_format is 'q8_1': must be None or one of 'q8_0', 'q4_0', 'q4_1', 'q5_0', 'q5_1', 'iq4_nl'",
        key_format="q8_1",
    )
    wrong("value_format is 4: must be None or one of", key_format="q8_0", value_format=4)
    wrong("key has type float32: must be uint8, the bytes of q8_0", key=numbers, key_format="q8_0")
    wrong(
        "key has a last dimension of 68: must be a multiple of 18, the bytes of a block of q4_0",
        key_format="q4_0",
    )
    wrong(
        "key has in dimension 0 a stride of 70: must be a multiple of 34, the bytes of a block of q8_0",
        key=np.zeros((3, 1, 70), np.uint8)[:, :, :68],
        key_format="q8_0",
    )
    wrong(
        "key_scale is given, but key is q8_0, which holds its scales",
        key_format="q8_0",
        key_scale=np.ones((3, 1, 2), np.float32),
    )
