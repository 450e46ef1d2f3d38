// What an attention would take if nothing but the pipes of its instructions bounded it, or memory alone.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace bench {

// Of a unit (bench/model_counts.h); of a kernel, or of all code that quire did not generate ("library").
struct ModelPart {
    std::string name;
    double instructions, loads, stores;
    double cycles;         // at least
    std::string bound_by;  // "pipes 0 1"
    std::string started;   // by each set of pipes
};

struct Model {
    std::vector<ModelPart> parts;
    double cycles = 0;    // of all parts, one after the other
    std::string why_not;  // there is none; empty: there is
};

// Executes the kernels on a short cache of the workload's kind, step by step, which takes seconds. Each
// workload once: what was found is kept.
std::shared_ptr<const Model> model_of(const Workload& workload);

// Cycles that each core has for a unit while memory is read in decode's order; 0: it is not read.
double memory_cycles(const Result& result);

// What the counts allow: the result as it would be, at the longer of the model's time and of that of reading
// the cache. NULL: no model, or one of another machine.
std::unique_ptr<Result> modelled(const Result& result);

}  // namespace bench
