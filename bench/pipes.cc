#include "bench/pipes.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace bench {
namespace {

bool begins_with(const std::string& text, const char* begin) { return text.rfind(begin, 0) == 0; }

const PipeRule* rule_of(const Processor& processor, const std::string& name) {
    const PipeRule* found = nullptr;
    for (const PipeRule& rule : processor.rules)
        if (begins_with(name, rule.begin) && (!found || std::strlen(rule.begin) > std::strlen(found->begin)))
            found = &rule;
    return found;
}

// Of the widest register that the text has.
int register_bits(const std::string& text) {
    if (text.find("zmm") != std::string::npos) return 512;
    return text.find("ymm") != std::string::npos ? 256 : 128;
}

// Where the operand in memory has its size written, that.
int memory_bits(const std::string& text) {
    const size_t at = text.find("word ptr");
    if (at == std::string::npos) return register_bits(text);
    if (at >= 3 && text.compare(at - 3, 3, "zmm") == 0) return 512;
    return at >= 3 && text.compare(at - 3, 3, "ymm") == 0 ? 256 : 128;
}

std::string pipes_of(int set) {
    std::string name = __builtin_popcount(unsigned(set)) > 1 ? "pipes" : "pipe";
    for (int pipe = 0; pipe < 4; ++pipe)
        if (set & 1 << pipe) name += " " + std::to_string(pipe);
    return name;
}

constexpr double kRows = 16;  // of a tile, of 64 bytes each, which all of quire's have

double turns(int bits, int of_a_turn) { return double((bits + of_a_turn - 1) / of_a_turn); }

}  // namespace

void Work::add_tile(const std::string& name, double times) {
    instructions_ += times;
    if (begins_with(name, "tdp")) tiles_ += times;
    if (begins_with(name, "tileload")) loads_ += times, vector_loads_ += kRows * times;
    if (begins_with(name, "tilestore")) stores_ += times, store_turns_ += kRows * times;
}

void Work::add(const std::string& text, double times) {
    const std::string name = text.substr(0, text.find(' '));
    if (begins_with(name, "tdp") || begins_with(name, "tile")) return add_tile(name, times);
    const bool is_vector = name[0] == 'v';
    const size_t memory = text.find('['), comma = text.find(',');
    const bool touches = memory != std::string::npos && name != "lea" && name != "nop";
    const bool first = touches && (comma == std::string::npos || memory < comma);
    const bool only_reads = begins_with(name, "prefetch") || name == "cmp" || name == "test";
    const bool stores = (first && !only_reads) || name == "push";
    const bool loads = (touches && (!first || only_reads || (!is_vector && name != "mov"))) || name == "pop";
    const bool is_narrow = processor_.narrow && register_bits(text) <= processor_.narrow->pipe_bits;
    const Processor& of_bits = is_narrow ? *processor_.narrow : processor_;
    instructions_ += times;
    if (loads) {
        loads_ += times;
        if (is_vector)
            vector_loads_ += times * turns(memory_bits(text), processor_.memory_bits) *
                             processor_.vector_loads / of_bits.vector_loads;
    }
    if (stores) {
        stores_ += times;
        store_turns_ += times * (is_vector ? turns(memory_bits(text), processor_.memory_bits) : 1);
    }
    const PipeRule* rule = is_vector ? rule_of(of_bits, name) : nullptr;
    if (rule)
        add_uops(touches && rule->of_memory ? rule->of_memory : rule->pipes,
                 times * turns(register_bits(text), processor_.pipe_bits));
}

void Work::add_uops(const char* pipes, double times) {
    int set = 0;
    for (const char* at = pipes;; ++at) {
        if (*at >= '0' && *at <= '3') {
            set |= 1 << (*at - '0');
            continue;
        }
        if (set) of_set_[set] += times;
        set = 0;
        if (*at == '\0') return;
    }
}

double Work::bound(std::string* by) const {
    double longest = 0;
    const auto consider = [&](double cycles, const std::string& what) {
        if (cycles <= longest) return;
        longest = cycles;
        if (by) *by = what;
    };
    // Pipes that only some µops can take are as busy as the sum of all that no other pipe takes.
    for (int set = 1; set < kSets; ++set) {
        double uops = 0;
        for (int other = 1; other <= set; ++other)
            if ((other & ~set) == 0) uops += of_set_[other];
        consider(uops / double(__builtin_popcount(unsigned(set))), pipes_of(set));
    }
    consider(tiles_ * kRows, "tiles");
    consider(vector_loads_ / processor_.vector_loads, "loads");
    consider(store_turns_ / processor_.stores, "stores");
    consider((loads_ + stores_) / processor_.memory_operations, "loads, stores");
    consider(instructions_ / processor_.instructions, "instructions");
    return longest;
}

std::string Work::started() const {
    std::string all;
    const auto add = [&](double of, const std::string& what) {
        char text[64];
        if (of < 0.05) return;
        std::snprintf(text, sizeof text, "%s%.1f %s", all.empty() ? "" : ", ", of, what.c_str());
        all += text;
    };
    for (int set = kSets - 1; set > 0; --set) add(of_set_[set], pipes_of(set));
    add(tiles_, "tiles");
    return all;
}

std::string Work::bound_by() const {
    std::string by = "-";
    bound(&by);
    return by;
}

}  // namespace bench
