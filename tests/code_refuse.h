// Makes ways of publishing code fail for the length of a scope.
#pragma once
#include "jit/code_memory.h"

namespace quire::test {

class Refuse {
public:
    explicit Refuse(int ways) { jit::refuse_publication(ways); }
    ~Refuse() { jit::refuse_publication(0); }
    Refuse(const Refuse&) = delete;
};

}  // namespace quire::test
