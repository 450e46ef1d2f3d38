// What a core can start in a cycle, and how long counted instructions take at least.
#pragma once
#include <string>
#include <vector>

namespace bench {

// µops of a vector instruction whose name begins so: "01" is one that pipe 0 or 1 takes, "01+2" two µops, ""
// none (a load, or a move that is only a name). Of several beginnings the longest counts.
struct PipeRule {
    const char *begin, *pipes;
    const char* of_memory;  // where an operand is in memory, beside the load itself; NULL: the same
};

struct Processor {
    const char *name, *option;   // of --pipes
    int pipe_bits, memory_bits;  // a wider vector takes its pipe, or the load or store, twice
    double vector_loads, memory_operations, stores, instructions;  // a cycle, at most
    std::vector<PipeRule> rules;
    const Processor* narrow = nullptr;  // what else it is with vectors of up to 256 bits; NULL: the same
};

// The one that --pipes names, or of this machine; NULL: one that is not known.
const Processor* processor_of_model();
bool is_of_this_machine();
bool take_pipes_of(const std::string& option);  // false: there is none of that name
std::string known_pipes();                      // zen3, zen4, ...

class Work {
public:
    explicit Work(const Processor& processor) : processor_(processor) {}
    // In Intel's syntax, as listings have it.
    void add(const std::string& instruction, double times);
    // Of which nothing but its number is known.
    void add_unknown(double times) { instructions_ += times; }

    double instructions() const { return instructions_; }
    double loads() const { return loads_; }
    double stores() const { return stores_; }
    // What starts last if nothing but this is in the way: no latencies, no misses.
    double cycles() const { return bound(nullptr); }
    std::string bound_by() const;
    // What each set of pipes starts: "32.0 pipes 0 1, 4.2 pipe 0".
    std::string started() const;

private:
    double bound(std::string* by) const;
    void add_tile(const std::string& name, double times);
    void add_uops(const char* pipes, double times);

    static constexpr int kSets = 16;  // of four pipes
    const Processor& processor_;
    double of_set_[kSets] = {};  // µops that any pipe of the set can take, and no other
    double tiles_ = 0;           // products of them
    double instructions_ = 0, loads_ = 0, vector_loads_ = 0, stores_ = 0, store_turns_ = 0;
};

}  // namespace bench
