// Zeroed memory in 2 MiB pages, where the system has them.
#pragma once
#include <cstddef>

#include "src/status.h"

namespace quire {

constexpr size_t kHugePage = size_t(2) << 20;

Status allocate_cache_memory(size_t bytes, void** memory);
Status free_cache_memory(void* memory, size_t bytes);

}  // namespace quire
