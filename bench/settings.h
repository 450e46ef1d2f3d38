// The sizes of a workload by name, as options and sweeps set them.
#pragma once
#include <string>
#include <vector>

#include "bench/workload.h"

namespace bench {

struct Setting {
    const char* name;  // "kv-len"; the option is --kv-len
    const char* help;
    // Sets it from one value's text; what must be, where the text is none ("" where all is well).
    std::string (*set)(Workload* workload, const std::string& text);
};
const std::vector<Setting>& settings();

// Sets of values for settings: the outer product is run.
struct Sweep {
    const Setting* setting;
    std::vector<std::string> values;
};

// "kv-len=1k..64k" (doubled), "threads=1..4+1" (in steps), "cache=int8,int4" (listed).
// Throws std::invalid_argument with a message for the user.
Sweep parse_sweep(const std::string& text);
Sweep make_sweep(const Setting& setting, const std::string& values);

// Each of `base` with each combination of values, without those that come up twice.
// Throws std::invalid_argument.
std::vector<Workload> combined(const std::vector<Workload>& base, const std::vector<Sweep>& sweeps);

}  // namespace bench
