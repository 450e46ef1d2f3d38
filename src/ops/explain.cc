#include "src/ops/explain.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace quire {
namespace {

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) {
        char escaped[8] = {c};
        if (c == '"' || c == '\\')
            std::snprintf(escaped, sizeof escaped, "\\%c", c);
        else if (static_cast<unsigned char>(c) < 0x20)
            std::snprintf(escaped, sizeof escaped, "\\u%04x", unsigned(c));
        out += escaped;
    }
    return out + "\"";
}

std::string joined(const std::vector<std::string>& list) {
    std::string out;
    for (const std::string& text : list) out += (out.empty() ? "" : ", ") + text;
    return out;
}

std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> found;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        found.push_back(quoted(text.substr(at, end - at)));
        at = end + 1;
    }
    return found;
}

struct Part {  // texts are quoted already
    const char* name;
    std::string target;
    std::vector<std::string> declined, kernels;

    // "attention: avx2", "attention: avx512 declined: reason", "attention kernels: a b"
    bool take(const std::string& key, const std::string& value) {
        static const std::string kDeclined = " declined: ";
        if (key == std::string(name) + " kernels") {
            kernels = words(value);
        } else if (key != name) {
            return false;
        } else if (const size_t at = value.find(kDeclined); at != std::string::npos) {
            declined.push_back("{\"target\": " + quoted(value.substr(0, at)) +
                               ", \"reason\": " + quoted(value.substr(at + kDeclined.size())) + "}");
        } else {
            target = quoted(value);
        }
        return true;
    }
    std::string json() const {
        return quoted(name) + ": {\"target\": " + target + ", \"declined\": [" + joined(declined) +
               "], \"kernels\": [" + joined(kernels) + "]}";
    }
};

}  // namespace

std::string explain_as_json(const std::string& text) {
    Part parts[] = {
        {"attention", "", {}, {}}, {"append", "", {}, {}}, {"read", "", {}, {}}, {"rotate", "", {}, {}}};
    std::string op;
    std::vector<std::string> notes;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        at = end + 1;
        const size_t colon = line.find(": ");
        if (colon == std::string::npos) continue;
        const std::string key = line.substr(0, colon), value = line.substr(colon + 2);
        bool taken = key == "op";
        if (taken) op = value;
        for (Part& part : parts) taken = taken || part.take(key, value);
        if (!taken) notes.push_back(quoted(key) + ": " + quoted(value));
    }
    std::vector<std::string> used;
    for (const Part& part : parts)
        if (!part.target.empty()) used.push_back(part.json());
    return "{\"op\": " + quoted(op) + ", \"parts\": {" + joined(used) + "}, \"notes\": {" + joined(notes) +
           "}}";
}

}  // namespace quire
