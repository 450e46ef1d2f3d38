// Decode: QK of keys in fours by a query of two digits or three, where a row of keys is one run: each digit
// has a sum of its own, and two query rows or more are multiplied side by side.
#pragma once
#include <vector>

#include "jit/qk_fours.h"

namespace quire::jit {

bool has_whole_rows(const FoursForm& form);

Status generate_qk_digits(const RowKey& key, std::vector<uint8_t>* code);  // void(const QkArgs*)

}  // namespace quire::jit
