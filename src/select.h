// The ordered candidates, best first, `portable` last; says why each declined.
#pragma once
#include <functional>
#include <string>

#include "src/target.h"

namespace quire {

// Tries `make` for each target from `best` down to portable. A candidate declines with QUIRE_UNSUPPORTED (its
// message is kept in *notes); any other failure is the call's. make(portable) must not decline.
Status select_target(const char* what, const Target& best, const std::function<Status(const Target&)>& make,
                     std::string* notes);

}  // namespace quire
