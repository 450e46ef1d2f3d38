#include "src/select.h"

namespace quire {

Status select_target(const char* what, const Target& best, const std::function<Status(const Target&)>& make,
                     std::string* notes) {
    int count = 0;
    const Target* table = target_table(&count);
    for (const Target* candidate = table + count - 1; candidate >= table; --candidate) {
        if (candidate > &best) {
            *notes += std::string(what) + ": " + candidate->name + " declined: above the target in use, " +
                      best.name + "\n";
            continue;
        }
        Status status = make(*candidate);
        if (status.ok()) {
            *notes += std::string(what) + ": " + candidate->name + "\n";
            return {};
        }
        if (status.code() != QUIRE_UNSUPPORTED) return status;
        *notes += std::string(what) + ": " + candidate->name + " declined: " + status.message() + "\n";
    }
    return Status(QUIRE_INTERNAL, std::string(what) + ": portable declined");
}

}  // namespace quire
