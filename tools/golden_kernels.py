"""Which kernels tools/golden.py keeps listings of."""

TARGETS = "avx2", "avx512_vnni"
# As small as shows every part: two vectors a row (one on AVX-512), two groups, two query rows.
SHAPE = "--heads 4 --kv-heads 2 --head-dim 16 --group 8".split()
# Targets, options of quire_dump, and names of kernels that such a plan has, without their target.
KERNELS = (
    (
        TARGETS,
        "--cache int8",
        """scales_d16_int8_gr8_f16 decode_qk_d16_r2_int8_gr8_f16 decode_softmax
        decode_pv_d16_r2_int8_gr8_f16 append_d16_f32_int8_gr8_f16 merge_d16 pack_values_d16_int8_gr8_f16
        tile_qk_d16_stride16_w1 tile_softmax_w1_masked tile_pv_d16_stride16_w1
        tile_rows_d16_f32 tile_columns_d16_f32""",
    ),
    (
        TARGETS,
        "--cache int8",
        """scales_d16_int8_gr8_f16_adjacent decode_qk_d16_r2_int8_gr8_f16_adjacent
        decode_pv_d16_r2_int8_gr8_f16_adjacent""",
    ),
    (TARGETS, "--cache int4", "decode_qk_d16_r2_int4_gr8_f16 decode_pv_d16_r2_int4_gr8_f16"),
    (
        TARGETS,
        "--cache int8 --precision high --heads 8 --head-dim 128 --group 32",
        "decode_weights_d128_r4_int8_gr32_f16_words",
    ),
    (
        ("avx2",),
        "--cache int8 --precision high --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int8_gr32_f16_words",
    ),
    (
        ("avx2",),
        "--cache int8 --precision medium --heads 8 --head-dim 128 --group 32",
        "decode_pv_d128_r4_int8_gr32_f16_bytes decode_weights_of_d128_r4_int8_gr32_f16_bytes",
    ),
    (
        ("avx2",),
        "--cache int4 --head-dim 64 --group 32",
        """decode_qk_d64_r2_int4_gr32_f16 decode_qk_d64_r2_int4_gr32_f16_adjacent
        decode_pv_d64_r2_int4_gr32_f16""",
    ),
    (
        ("avx2",),
        "--cache int4 --precision medium --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int4_gr32_f16_bytes decode_pv_d128_r4_int4_gr32_f16_bytes"
        " decode_weights_of_d128_r4_int4_gr32_f16_bytes",
    ),
    (
        ("avx2",),
        "--cache int4_b16 --precision medium --heads 8 --head-dim 128 --group 32",
        "token_pv_d128_r4_int4_b16_gr32_f16_bytes token_weights_of_d128_r4_int4_b16_gr32_f16_bytes",
    ),
    (
        ("avx2", "avx2_vnni"),
        "--cache int8 --precision medium --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int8_gr32_f16_bytes",
    ),
    (
        ("avx2_vnni",),
        "--cache int8 --precision high --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int8_gr32_f16_two_bytes",
    ),
    (
        ("avx512_vnni",),
        "--cache int4 --precision high --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int4_gr32_f16_two_bytes query_fours_d128_int4_gr32_f16_two_bytes",
    ),
    (
        ("avx512_vnni",),
        "--cache int8 --precision high --heads 8 --head-dim 128 --group 32 --page-size 16",
        """scales_d128_int8_gr32_f16_two_bytes_runs decode_qk_d128_r4_int8_gr32_f16_two_bytes_runs
        decode_pv_d128_r4_int8_gr32_f16_words_runs""",
    ),
    (
        ("avx512_vnni",),
        "--cache int4 --precision medium --heads 8 --head-dim 128 --group 32",
        "decode_qk_d128_r4_int4_gr32_f16_bytes query_fours_d128_int4_gr32_f16_bytes",
    ),
    (
        ("avx512_vnni",),
        "--cache int8 --precision medium --heads 8 --head-dim 128 --group 32",
        """decode_qk_d128_r4_int8_gr32_f16_bytes query_fours_d128_int8_gr32_f16_bytes
        decode_weights_d128_r4_int8_gr32_f16_bytes""",
    ),
    (
        ("avx512_vnni",),
        "--cache int8 --precision high --head-dim 64",
        "decode_pv_d64_r2_int8_gr8_f16_words",
    ),
    (("avx512_vnni",), "--cache int4 --head-dim 64", "decode_pv_d64_r2_int4_gr8_f16"),
    (
        ("avx512_vnni_bf16",),
        "--cache int8 --head-dim 32 --group 32",
        "decode_pv_d32_r2_int8_gr32_f16_three_bytes decode_weights_d32_r2_int8_gr32_f16_three_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int4 --head-dim 32 --group 32",
        "decode_pv_d32_r2_int4_gr32_f16_three_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int8 --precision medium --heads 8 --head-dim 64 --group 32",
        "decode_pv_d64_r4_int8_gr32_f16_bytes decode_weights_of_d64_r4_int8_gr32_f16_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int4 --precision medium --heads 8 --head-dim 64 --group 32",
        "decode_pv_d64_r4_int4_gr32_f16_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int4_b16 --heads 6 --head-dim 32 --group 32",
        "token_pv_d32_r3_int4_b16_gr32_f16_three_bytes token_weights_d32_r3_int4_b16_gr32_f16_three_bytes",
    ),
    # Whole groups in registers, and all scores.
    (("avx512_vnni",), "--cache int8_b16", "token_qk_d16_r2_int8_b16_gr8_f16_three_bytes"),
    (
        ("avx512_vnni",),
        "--cache int4_b16 --precision medium --group 16",
        "token_qk_d16_r2_int4_b16_gr16_f16_bytes",
    ),
    # Bytes weighed as words, which VNNI sums.
    (
        ("avx2_vnni",),
        "--cache int4 --precision medium --heads 4 --kv-heads 2 --head-dim 64 --group 32",
        "decode_qk_d64_r2_int4_gr32_f16_bytes",
    ),
    (
        ("avx2_vnni",),
        "--cache int4_b16 --precision medium --heads 2 --head-dim 64 --group 32",
        "token_qk_d64_r1_int4_b16_gr32_f16_bytes",
    ),
    # Lines of four places of the next blocks.
    (
        ("avx512_vnni",),
        "--cache int8_b16 --heads 2 --head-dim 128 --group 32",
        "token_qk_d128_r1_int8_b16_gr32_f16_three_bytes token_pv_d128_r1_int8_b16_gr32_f16_three_bytes",
    ),
    # Scales as the cache has them.
    (
        ("avx512_vnni",),
        "--cache int8 --precision high --head-dim 32",
        "decode_weights_d32_r2_int8_gr8_f16_words_adjacent",
    ),
    (
        ("avx512_vnni",),
        "--cache int8 --precision high --head-dim 40",
        "decode_weights_d40_r2_int8_gr8_f16_words_adjacent",
    ),
    # Two groups of weights by two loads; rows that are a half chunk.
    (
        ("avx512_vnni",),
        "--cache int8 --precision high --head-dim 32 --group 16",
        "decode_pv_d32_r2_int8_gr16_f16_words decode_qk_d32_r2_int8_gr16_f16_two_bytes",
    ),
    # Query rows of blocks of tokens, and rows of numbers.
    (
        ("avx2", "avx512_vnni"),
        "--cache int8_b16 --precision medium --type f16",
        "query_tokens_d16_int8_b16_gr8_f16_bytes scale_row_d16_f16_f32 scale_row_d16_f32_f16",
    ),
    (
        ("avx512_vnni",),
        "--cache int8_b16 --group 16",
        "query_tokens_d16_int8_b16_gr16_f16_three_bytes",
    ),
    # Two groups in a vector, whose weights take turns; values that are scaled themselves.
    (
        ("avx512_vnni_bf16",),
        "--cache int8_b16 --precision high --heads 8",
        "token_pv_d16_r4_int8_b16_gr8_f16_words token_weights_d16_r4_int8_b16_gr8_f16_words",
    ),
    (
        ("avx2", "avx512_vnni_bf16"),
        "--cache int8_b16 --precision medium --heads 8",
        "token_pv_d16_r4_int8_b16_gr8_f16_scaled token_weights_d16_r4_int8_b16_gr8_f16_scaled",
    ),
    (
        TARGETS,
        "--cache int8 --precision medium --heads 8 --head-dim 32",
        "decode_pv_d32_r4_int8_gr8_f16_scaled decode_weights_d32_r4_int8_gr8_f16_scaled",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int8_b16 --precision medium --heads 6 --head-dim 32 --group 8",
        "token_pv_d32_r3_int8_b16_gr8_f16_bytes token_weights_of_d32_r3_int8_b16_gr8_f16_bytes",
    ),
    (
        TARGETS,
        "--cache int8 --precision high --head-dim 32 --group 16",
        """pack_keys_d32_int8_gr16_f16_words pack_values_d32_int8_gr16_f16_words
        tile_qk_d32_r1_int8_gr16_f16_words tile_weights_d32_r1_int8_gr16_f16_words
        tile_pv_d32_r1_int8_gr16_f16_words tile_query_d32_int8_gr16_f16_words""",
    ),
    (
        ("avx2",),
        "--cache int4 --precision medium --head-dim 32 --group 16",
        """pack_values_d32_int4_gr16_f16_bytes tile_qk_d32_r1_int4_gr16_f16_bytes
        tile_weights_d32_r1_int4_gr16_f16_bytes tile_pv_d32_r1_int4_gr16_f16_bytes
        tile_query_d32_int4_gr16_f16_bytes""",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int8 --precision high --head-dim 32 --group 32",
        """tile_qk_d32_r1_int8_gr32_f16_two_bytes tile_query_d32_int8_gr32_f16_two_bytes
        tile_pv_rows_d32_r16_int8_gr32_f16_words""",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int8 --precision medium --head-dim 32 --group 8",
        """pack_keys_d32_int8_gr8_f16_bfloats pack_values_d32_int8_gr8_f16_bfloats
        tile_qk_d32_stride16_w1_a32_bfloats tile_softmax_w1_bfloats
        tile_pv_d32_stride16_w1_a32_bfloats
        tile_query_d32_int8_gr8_f16_bfloats""",
    ),
    (("avx512_vnni_bf16",), "--cache f32", "tile_qk_softmax_d16_stride16_w2_a32"),
    (
        ("avx512_vnni_bf16",),
        "--cache bf16 --precision medium --head-dim 32",
        "tile_qk_softmax_pairs_d32_stride16_w2_a32_bfloats",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int8 --precision medium --head-dim 40 --group 8",
        """pack_values_d40_int8_gr8_f16_bfloats tile_qk_d40_stride32_w1_bfloats
        tile_pv_d40_stride32_w1_bfloats""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int8 --heads 16 --kv-heads 1 --head-dim 64 --group 64",
        """tiles_begin tiles_end query_amx_d64_r16_int8_gr64_f16_three_digit_tiles
        decode_qk_d64_r16_int8_gr64_f16_three_digit_tiles_adjacent
        decode_weights_d64_r16_int8_gr64_f16_three_digit_tiles
        decode_pv_d64_r16_int8_gr64_f16_three_digit_tiles_adjacent""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int4 --precision high --heads 16 --kv-heads 1 --head-dim 64 --group 32",
        """decode_qk_d64_r16_int4_gr32_f16_two_digit_tiles
        decode_weights_d64_r16_int4_gr32_f16_two_digit_tiles
        decode_pv_d64_r16_int4_gr32_f16_two_digit_tiles""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int4 --heads 4 --kv-heads 1 --head-dim 64 --group 32",
        """query_amx_d64_r4_int4_gr32_f16_three_digit_tiles
        decode_qk_d64_r4_int4_gr32_f16_three_digit_tiles_adjacent""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int4_b16 --heads 4 --kv-heads 1 --head-dim 80 --group 80",
        """query_token_amx_d80_r4_int4_b16_gr80_f16_three_digit_tiles
        token_qk_d80_r4_int4_b16_gr80_f16_three_digit_tiles
        token_weights_d80_r4_int4_b16_gr80_f16_three_digit_tiles
        token_pv_d80_r4_int4_b16_gr80_f16_three_digit_tiles""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int8_b16 --precision high --heads 16 --kv-heads 1 --head-dim 64 --group 32",
        """token_qk_d64_r16_int8_b16_gr32_f16_two_digit_tiles
        token_pv_d64_r16_int8_b16_gr32_f16_two_digit_tiles""",
    ),
    (
        ("avx512_vnni_bf16_amx",),
        "--cache int8 --precision high --heads 16 --kv-heads 1 --head-dim 64 --group 8",
        """decode_qk_d64_r16_int8_gr8_f16_scaled_tiles_adjacent
        decode_weights_d64_r16_int8_gr8_f16_scaled_tiles
        decode_pv_d64_r16_int8_gr8_f16_scaled_tiles_adjacent""",
    ),
    (
        ("avx512_vnni",),
        "--cache int8 --precision medium --heads 4 --head-dim 128 --group 32 --page-size 128",
        "decode_qk_d128_r2_int8_gr32_f16_bytes_adjacent decode_pv_d128_r2_int8_gr32_f16_words_adjacent",
    ),
    (
        ("avx512_vnni",),
        "--cache q8_0 --precision medium --heads 4 --head-dim 128 --page-size 128",
        "decode_qk_d128_r2_q8_0_bytes_adjacent",
    ),
    (
        ("avx512_vnni_vbmi",),
        "--cache q4_0 --heads 4 --head-dim 64",
        "decode_pv_d64_r2_q4_0_three_bytes decode_weights_d64_r2_q4_0_three_bytes",
    ),
    (
        ("avx2", "avx512_vnni"),
        "--cache iq4_nl --precision high --heads 4 --head-dim 32",
        "decode_pv_d32_r2_iq4_nl_words",
    ),
    (
        ("avx2", "avx512_vnni"),
        "--cache q5_0 --precision high --heads 4 --head-dim 64",
        "decode_pv_d64_r2_q5_0_words",
    ),
    (
        ("avx512_vnni",),
        "--cache q5_0 --precision high --heads 4 --head-dim 64",
        "decode_qk_d64_r2_q5_0_two_bytes",
    ),
    (
        ("avx512_vnni_vbmi",),
        "--cache q5_0 --heads 4 --head-dim 32",
        "decode_pv_d32_r2_q5_0_three_bytes",
    ),
    (
        ("avx2",),
        "--cache q5_0 --precision high --heads 4 --head-dim 64",
        "decode_qk_d64_r2_q5_0_words",
    ),
    (
        ("avx2", "avx512_vnni"),
        "--cache q4_1 --precision medium --heads 4 --head-dim 64",
        "decode_minima_d64_r2_q4_1_words scales_d64_q4_1_words",
    ),
    (
        ("avx512_vnni",),
        "--cache q4_1 --precision medium --heads 4 --head-dim 64",
        "decode_qk_d64_r2_q4_1_two_bytes",
    ),
    (
        ("avx2",),
        "--cache q5_0 --precision medium --heads 4 --head-dim 64",
        "decode_qk_d64_r2_q5_0_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache iq4_nl --precision medium --heads 8 --head-dim 128",
        "decode_qk_d128_r4_iq4_nl_bytes",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int4 --precision medium --head-dim 32 --group 32",
        """pack_keys_d32_int4_gr32_f16_bytes tile_qk_d32_r1_int4_gr32_f16_bytes
        tile_query_d32_int4_gr32_f16_bytes pack_values_d32_int4_gr32_f16_bytes
        tile_scales_d32_int4_gr32_f16_bytes tile_weights_d32_r1_int4_gr32_f16_bytes
        tile_softmax_w1_bfloats tile_pv_d32_r1_int4_gr32_f16_bytes""",
    ),
    (
        ("avx512_vnni_bf16",),
        "--cache int8 --precision medium --head-dim 32 --group 32",
        """tile_qk_d32_r1_int8_gr32_f16_bytes tile_qk_rows_d32_r1_int8_gr32_f16_bytes
        tile_query_d32_int8_gr32_f16_bytes tile_pv_rows_d32_r16_int8_gr32_f16_bytes
        tile_pv_lists_d32_r16_int8_gr32_f16_bytes""",
    ),
)
