// Where decode takes tiles of AMX for integer digits. What these take is counted in cycles of Granite Rapids.
#pragma once
#include "jit/kernel_key.h"
#include "src/problem.h"

namespace quire {

// Up to so many rows decode is as quick as what most_few_rows() is for, or as tiles of AMX.
constexpr int kRowsBesideFew = 12;

// Of both sides: codes as the cache has them, or codes with their scales (jit/scaled_amx.h).
bool pays_by_amx(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision);
bool pays_by_scaled(const jit::RowKey& keys, const jit::RowKey& values, quire_precision precision);

}  // namespace quire
