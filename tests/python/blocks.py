"""ggml's block formats, decoded by what docs/formats.md says of them."""

import numpy as np

IQ4_NL = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
BYTES = {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "iq4_nl": 18}


def random_rows(generator, name, *shape):
    """uint8 [*shape[:-1], shape[-1] / 32 * bytes]: any codes, scales of either sign."""
    blocks = generator.integers(0, 256, (*shape[:-1], shape[-1] // 32, BYTES[name]), np.uint8)
    numbers = 2 if name in ("q4_1", "q5_1") else 1
    scales = generator.normal(size=(*blocks.shape[:-1], numbers)) / (100 if name in ("q8_0", "iq4_nl") else 8)
    blocks[..., : 2 * numbers] = scales.astype("<f2").view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def decode(name, rows):
    blocks = rows.reshape(*rows.shape[:-1], -1, BYTES[name])
    d = blocks[..., :2].copy().view("<f2").astype(np.float32)
    m = blocks[..., 2:4].copy().view("<f2").astype(np.float32)
    nibbles = np.concatenate([blocks[..., -16:] & 15, blocks[..., -16:] >> 4], -1).astype(int)

    def fifth(at):
        return 16 * np.unpackbits(blocks[..., at : at + 4], -1, bitorder="little").astype(int)

    values = {
        "q8_0": lambda: d * blocks[..., 2:].view(np.int8),
        "q4_0": lambda: d * (nibbles - 8),
        "q4_1": lambda: d * nibbles + m,
        "q5_0": lambda: d * (nibbles + fifth(2) - 16),
        "q5_1": lambda: d * (nibbles + fifth(4)) + m,
        "iq4_nl": lambda: d * IQ4_NL[nibbles],
    }[name]()
    return values.astype(np.float32).reshape(*rows.shape[:-1], -1)
