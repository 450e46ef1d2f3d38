// How many cycles the vector operations of a kernel take for one key (tiles: for as many elements), in which
// src/precision.cc compares the products that a plan could have. They are counts of what jit/ emits: loads
// are left out.
#pragma once
#include "jit/kernel_key.h"

namespace quire {

// Of tiles, a vector of rows and two elements: two FMA, or one dot product of words, and what each
// group of elements adds.
struct Shared {
    double multiplications, others;
};

double float_cycles_of_keys(const jit::RowKey& key);
double float_cycles_of_values(const jit::RowKey& key);
double tile_float_cycles(const jit::RowKey& key);
double tile_bfloat_cycles(const jit::RowKey& key);
double tile_word_cycles(const jit::RowKey& key, const Shared& of_group);
double tile_byte_cycles(const jit::RowKey& key);
double tile_byte_cycles_of_values(const jit::RowKey& key);
double tile_three_byte_cycles(const jit::RowKey& key);
double tile_two_byte_cycles(const jit::RowKey& key);
double word_cycles_of_keys(const jit::RowKey& of_floats);
double byte_cycles_of_fours(const jit::RowKey& key);
double word_cycles_of_fours(const jit::RowKey& key);
double number_cycles_of_fours(const jit::RowKey& key);
double word_cycles_of_values(const jit::RowKey& key);
double number_cycles_of_value_fours(const jit::RowKey& key);
double byte_cycles_of_values(const jit::RowKey& key);

}  // namespace quire
