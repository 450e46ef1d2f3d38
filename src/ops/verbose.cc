#include "src/ops/verbose.h"

#include <cstdio>

#include "src/ops/kernel_names.h"

namespace quire {
namespace {

constexpr char kBegin[] = "quire_verbose," QUIRE_VERBOSE_VERSION ",";
constexpr char kColumns[] =
    "quire_verbose,version,call,op,target,problem,kernels,bytes,flops,prepare_us,run_us";

// "name=low..high", or "name=value"
class Extent {
public:
    void add(int64_t value) {
        low_ = any_ ? std::min(low_, value) : value;
        high_ = any_ ? std::max(high_, value) : value;
        any_ = true;
    }
    std::string text(const char* name) const {
        std::string text = std::string(" ") + name + "=" + std::to_string(low_);
        return high_ > low_ ? text + ".." + std::to_string(high_) : text;
    }

private:
    bool any_ = false;
    int64_t low_ = 0, high_ = 0;
};

std::string number(const char* name, int64_t value) {
    return std::string(" ") + name + "=" + std::to_string(value);
}
std::string word(const char* name, const std::string& value) { return std::string(" ") + name + "=" + value; }

std::string cache_text(const CacheSpec& spec) {
    std::string text = number("Hk", spec.Hk) + number("D", spec.D) + number("Dv", spec.Dv) +
                       word("key", format_name(spec.key_format)) +
                       word("value", format_name(spec.value_format));
    return spec.page_size ? text + number("page_size", spec.page_size) : text;
}

std::string problem_text(const AttentionProblem& p) {
    const AttentionSpec& spec = *p.spec;
    Extent queries, keys;
    for (int64_t b = 0; b < p.B; ++b) {
        queries.add(p.queries(b));
        keys.add(p.keys(b));
    }
    std::string text = " attention" + number("B", p.B) + queries.text("S") + keys.text("T") +
                       number("H", spec.H) + cache_text(spec) + word("type", type_name(spec.type));
    if (spec.causal) text += " causal";
    if (spec.alibi) text += " alibi";
    if (spec.window_left >= 0) text += number("window_left", spec.window_left);
    if (spec.window_right >= 0) text += number("window_right", spec.window_right);
    if (spec.soft_cap > 0) text += " soft_cap";
    if (p.num_terms) text += number("masks", p.num_terms);
    if (p.sinks) text += " sinks";
    if (p.lse.base != nullptr) text += " lse";
    if (p.dropout) text += " dropout";
    return text;
}

std::string rotation_text(const char* name, const Rotation& rotation) {
    return rotation ? word(name, rotation.name().substr(1)) : "";
}

std::string problem_text(const AppendProblem& p) {
    const AppendSpec& spec = *p.spec;
    const std::string type = word("type", type_name(spec.type));
    if (spec.Dv == 0)  // quire_rotate
        return " rotate" + number("B", p.B) + number("n", p.n) + number("H", spec.Hk) + number("D", spec.D) +
               type + rotation_text("rotation", spec.key_rotation);
    return " append" + number("B", p.B) + number("n", p.n) + cache_text(spec) + type +
           rotation_text("key_rotation", spec.key_rotation) +
           rotation_text("value_rotation", spec.value_rotation);
}

std::string problem_text(const ReadProblem& p) {
    Extent keys;
    for (int64_t b = 0; b < p.B; ++b) keys.add(p.keys(b));
    return " read" + number("B", p.B) + keys.text("T") + cache_text(*p.spec) +
           number("repeat", p.spec->repeat) + word("type", type_name(p.spec->type));
}

// With a map of the mask a block takes either set of kernels.
void add_decode_kernels(const AttentionPlan& plan, const AttentionProblem& p, int64_t rows,
                        KernelNames* names) {
    names->add(plan.query_numbers);
    if (p.num_terms) names->add(plan.decode_bias[rows], p.cache.adjacent);
    if (!p.num_terms || p.mask_map) names->add(plan.decode[rows], p.cache.adjacent);
    names->add(plan.output_numbers);
}

// Of what attend_rows and attend_tiles take for this call; with a mask, a panel takes either softmax. Rows of
// numbers are added to scores before softmax.
void add_kernels(const AttentionPlan& plan, const AttentionProblem& p, KernelNames* names) {
    for (int64_t b = 0; b < p.B; ++b) {
        const int64_t all = p.queries(b) * plan.spec.group(), rows = plan.first_rows(all);
        if (all == 0) continue;
        if (rows < all) add_decode_kernels(plan, p, all - rows, names);
        if (rows <= plan.decode_rows) {
            add_decode_kernels(plan, p, rows, names);
            continue;
        }
        const bool few = plan.takes_few(rows);
        names->add(few ? plan.few_pack : plan.pack);
        names->add(few ? plan.few_panel : plan.panel, !few);
        const bool of_numbers = p.num_terms == 1 && numbers_of(p, p.terms[0], b, 0, 0, 0);
        if (of_numbers) names->add(plan.mask_rows.of(p.terms[0].type));
        const int64_t left = rows % plan.panel_rows(), lanes = plan.target->lanes();
        const bool with_bias = p.num_terms && (!of_numbers || plan.spec.soft_cap > 0);
        for (const bool bias : {true, false}) {
            if (bias ? !with_bias : with_bias && !p.mask_map) continue;
            if (few) {
                names->add(bias ? plan.few_bias[rows] : plan.few[rows]);
                names->add(plan.output_numbers);
                continue;
            }
            const jit::TileKernels* const tile = bias ? plan.tile_bias : plan.tile;
            if (rows >= plan.panel_rows()) names->add(tile[plan.panel_vecs]);
            if (left > 0) names->add(tile[(left + lanes - 1) / lanes]);
        }
    }
}

std::string kernels_text(const Run& run) {
    KernelNames names;
    if (const AppendPlan* plan = run.append_plan()) names.add(*plan);
    if (const ReadPlan* plan = run.read_plan()) names.add(*plan);
    if (const AttentionPlan* plan = run.attention_plan(); plan != nullptr && plan->target->jit()) {
        add_kernels(*plan, run.attention, &names);
        if (run.merges() > 0) names.add(plan->merge), names.add(plan->output_numbers);
    }
    return names.text();
}

const Target& target_of(const Run& run) {
    if (run.attention_plan()) return *run.attention_plan()->target;
    return run.read_plan() ? *run.read_plan()->target : *run.append_plan()->target;
}

// A field of CSV that may hold commas and quotes.
std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}

}  // namespace

Cost cost_of_run(const Run& run) {
    Cost cost;
    if (run.append_plan()) cost.add(cost_of(run.append));
    if (run.read_plan()) cost.add(cost_of(run.read));
    if (run.attention_plan()) cost.add(cost_of(run.attention));
    for (const RowCopy& copy : run.copies) cost.add(cost_of(copy));
    for (const Projection& p : run.inputs) cost.add(cost_of(p));
    for (const Projection& p : run.outputs) cost.add(cost_of(p));
    return cost;
}

void say_plan(const quire_plan& plan) {
    const std::string begin = std::string(kBegin) + "plan," + operator_name(plan.op) + ",";
    for (size_t at = 0; at < plan.explain.size();) {
        const size_t end = plan.explain.find('\n', at);
        plan.context->say((begin + quoted(plan.explain.substr(at, end - at))).c_str());
        at = end == std::string::npos ? end : end + 1;
    }
}

Status predict_run(const Run& run, const quire_limits* limits, quire_prediction* prediction) {
    quire_limits given = {};
    if (limits != nullptr) QUIRE_TRY(copy_in("limits", limits, &given));
    quire_prediction result = {};
    QUIRE_TRY(copy_in("prediction", prediction, &result));
    for (const auto& [name, value] : {std::pair{"bytes_per_second", given.bytes_per_second},
                                      std::pair{"flops_per_second", given.flops_per_second}})
        if (!(value >= 0)) return invalid("limits.%s is %g: must be at least 0", name, value);
    const Cost cost = cost_of_run(run);
    const Prediction predicted = predict(cost, given.bytes_per_second, given.flops_per_second);
    result.bytes = cost.bytes;
    result.flops = cost.flops;
    result.bound = predicted.bound;
    result.seconds = predicted.seconds;
    std::memcpy(static_cast<void*>(prediction), &result, std::min(result.struct_size, sizeof result));
    return {};
}

void describe_call(const quire_plan& plan, int64_t begin, Run* run) {
    const int64_t prepared_in = CallReport::now() - begin;
    plan.context->say_once(kColumns);
    std::string problem;
    if (run->append_plan()) problem += problem_text(run->append);
    if (run->read_plan()) problem += problem_text(run->read);
    if (run->attention_plan()) problem += problem_text(run->attention);
    for (const RowCopy& copy : run->copies)
        if (copy.items() > 0) problem += number("copied_rows", copy.B * copy.rows);
    for (const auto* list : {&run->inputs, &run->outputs})
        for (const Projection& p : *list) problem += number("projected_rows", p.rows);
    const std::string kernels = kernels_text(*run);
    const Cost cost = cost_of_run(*run);
    char numbers[80];
    std::snprintf(numbers, sizeof numbers, "%.0f,%.0f", cost.bytes, cost.flops);
    run->report.begin(std::string(kBegin) + "call," + operator_name(plan.op) + "," + target_of(*run).name +
                          "," + problem.substr(problem.empty() ? 0 : 1) + "," + kernels + "," + numbers,
                      prepared_in);
}

void say_call(Run* run) noexcept { run->context().say(run->report.end()); }

}  // namespace quire
