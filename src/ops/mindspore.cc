// mindspore.nn.transformer.MultiHeadAttention: a layer -> projections, copies and the attention problem of
// the common path.
#include "src/ops/mindspore.h"

#include "src/ops/workspace.h"

namespace quire {
namespace {

using namespace mindspore;
using Desc = quire_mindspore_multi_head_attention_desc;

// ---- the layer ----

Status check_rate(const char* name, float rate) {
    if (rate >= 0 && rate < 1) return {};
    return invalid("%s is %g: must be at least 0 and less than 1", name, double(rate));
}

Status check_float_type(const char* name, quire_type type) {
    if (type == QUIRE_F32 || type == QUIRE_F16) return {};
    return invalid("%s is %s: must be f32 or f16", name, type_text(type).c_str());
}

Status check_layer(const Desc& desc) {
    constexpr int kMost = 1 << 20;
    QUIRE_TRY(check_range("batch_size", desc.batch_size, 1, kMost));
    QUIRE_TRY(check_range("src_seq_length", desc.src_seq_length, 1, kMost));
    QUIRE_TRY(check_range("tgt_seq_length", desc.tgt_seq_length, 1, kMost));
    QUIRE_TRY(check_range("hidden_size", desc.hidden_size, 1, kMost));
    QUIRE_TRY(check_range("num_heads", desc.num_heads, 1, kMost));
    if (desc.hidden_size % desc.num_heads != 0)
        return invalid("num_heads is %d: must divide hidden_size, %d", desc.num_heads, desc.hidden_size);
    if (desc.hidden_size / desc.num_heads > kMostHeadDim)
        return invalid("num_heads is %d: must leave heads of at most %d of hidden_size, %d", desc.num_heads,
                       kMostHeadDim, desc.hidden_size);
    QUIRE_TRY(check_rate("hidden_dropout_rate", desc.hidden_dropout_rate));
    QUIRE_TRY(check_rate("attention_dropout_rate", desc.attention_dropout_rate));
    QUIRE_TRY(check_float_type("compute_dtype", desc.compute_dtype));
    QUIRE_TRY(check_float_type("softmax_compute_type", desc.softmax_compute_type));
    QUIRE_TRY(check_float_type("param_init_type", desc.param_init_type));
    QUIRE_TRY(check_range("use_past", desc.use_past, 0, 1));
    if (desc.use_past && desc.src_seq_length != desc.tgt_seq_length)
        return invalid("tgt_seq_length is %d: must be src_seq_length, %d, where use_past is 1",
                       desc.tgt_seq_length, desc.src_seq_length);
    QUIRE_TRY(check_range("parallel_config", desc.parallel_config, 0, kMaxSlices));
    const int64_t elements = int64_t(desc.batch_size) * std::max(desc.src_seq_length, desc.tgt_seq_length);
    if (elements > (int64_t(1) << 42) / desc.hidden_size)
        return invalid("batch_size is %d: with %d tokens of hidden_size %d there are more than 2^42 elements",
                       desc.batch_size, std::max(desc.src_seq_length, desc.tgt_seq_length), desc.hidden_size);
    return {};
}

struct Parameter {
    const char *weight_name, *bias_name, *letters;
    const quire_tensor *weight, *bias;
    bool transposed;  // [in, out]
};

Status check_parameter(const Desc& desc, const Parameter& p) {
    QUIRE_TRY(check_tensor(p.weight_name, p.weight, desc.param_init_type, p.letters,
                           {desc.hidden_size, desc.hidden_size}));
    return check_tensor(p.bias_name, p.bias, desc.param_init_type, "[hidden_size]", {desc.hidden_size});
}

// Element [i, j] as the products use it.
float element(const Desc& desc, const quire_tensor& t, int64_t i, int64_t j) {
    const int64_t at =
        (t.shape[0] > 1 ? i * t.strides[0] : 0) + (t.rank > 1 && t.shape[1] > 1 ? j * t.strides[1] : 0);
    return round_to(desc.compute_dtype, load_number(t.type, t.data, at));
}

std::shared_ptr<const DenseWeights> pack(const Desc& desc, const Parameter& p, bool plain) {
    const int size = desc.hidden_size;
    std::vector<float> weight(size_t(size) * size_t(size)), bias(static_cast<size_t>(size));
    for (int out = 0; out < size; ++out) {
        bias[size_t(out)] = element(desc, *p.bias, out, 0);
        for (int in = 0; in < size; ++in)
            weight[size_t(out) * size_t(size) + size_t(in)] =
                p.transposed ? element(desc, *p.weight, in, out) : element(desc, *p.weight, out, in);
    }
    return DenseWeights::pack(size, size, weight.data(), bias.data(), plain);
}

// ---- one call ----

// Rows [B, tokens, heads, size], one after the other.
struct Rows {
    char* data;
    int64_t tokens;
};

class Call {
public:
    Call(const quire_plan& plan, const Tensors& tensors, const Args& args, Run* run)
        : layer_(plan.mindspore), spec_(plan.attention.spec), t_(tensors), args_(args), run_(*run) {}
    Status prepare();

private:
    int64_t bytes_of_tokens(int64_t tokens) const {
        return bytes_of(spec_.type, layer_.B * tokens * layer_.hidden);
    }
    size_t workspace_bytes() const;
    void set_lengths(int64_t* memory);
    quire_tensor tensor(const Rows& rows) const;
    RowView view(const Rows& rows) const { return row_view(tensor(rows), true); }
    void project(int which, int64_t tokens, const ProjectedRows& from, const ProjectedRows& to,
                 std::vector<Projection>* list) const;
    ProjectedRows projected(const Rows& rows) const;
    RowCopy copy(const RowView& from, const RowView& to, int64_t rows) const;
    void add_presents(const Rows& key, const Rows& value);
    void add_joined(const Rows& key, const Rows& value, const Rows& all_keys, const Rows& all_values);

    const MindsporeSpec& layer_;
    const AttentionSpec& spec_;
    const Tensors& t_;
    const Args& args_;
    Run& run_;
    static constexpr int kLengths = 4;
    IndexView valid_, end_, rest_;  // batch_valid_length, the position after it, positions from there on
    IndexView unused_;              // positions from batch_valid_length on
};

size_t Call::workspace_bytes() const {
    const size_t joined = t_.incremental ? 2 * up_to_64(size_t(bytes_of_tokens(layer_.T))) : 0;
    return up_to_64(size_t(layer_.B) * kLengths * sizeof(int64_t)) +
           2 * up_to_64(size_t(bytes_of_tokens(t_.S))) + 2 * up_to_64(size_t(bytes_of_tokens(t_.added))) +
           joined;
}

void Call::set_lengths(int64_t* memory) {
    if (t_.valid_length == nullptr) return;
    const int64_t B = layer_.B;
    for (int64_t b = 0; b < B; ++b) {
        const int64_t length = valid_length(t_, b);
        memory[b] = length;
        memory[B + b] = length + 1;
        memory[2 * B + b] = layer_.T - length - 1;
        memory[3 * B + b] = layer_.T - length;
    }
    valid_ = {memory, 1, 0};
    end_ = {memory + B, 1, 0};
    rest_ = {memory + 2 * B, 1, 0};
    unused_ = {memory + 3 * B, 1, 0};
}

quire_tensor Call::tensor(const Rows& rows) const {
    const int64_t shape[] = {layer_.B, rows.tokens, spec_.H, spec_.D};
    return quire_tensor_of(rows.data, spec_.type, 4, shape);
}

ProjectedRows Call::projected(const Rows& rows) const {
    return {rows.data, spec_.type, layer_.B * rows.tokens, 0, bytes_of(spec_.type, layer_.hidden)};
}

void Call::project(int which, int64_t tokens, const ProjectedRows& from, const ProjectedRows& to,
                   std::vector<Projection>* list) const {
    Projection p;
    p.weights = layer_.dense[which].get();
    p.rows = layer_.B * tokens;
    p.from = from;
    p.to = to;
    p.compute_type = spec_.type;
    list->push_back(p);
}

RowCopy Call::copy(const RowView& from, const RowView& to, int64_t rows) const {
    RowCopy c;
    c.B = layer_.B;
    c.rows = rows;
    c.heads = spec_.H;
    c.dim = spec_.D;
    c.type = spec_.type;
    c.from = from;
    c.to = to;
    return c;
}

// [B, H, D, T] or [B, H, T, D] as rows of heads; *step: bytes between the elements of a row.
RowView heads_first(const quire_tensor& t, bool transposed, int64_t* step) {
    const auto stride = [&](int i) { return t.shape[i] > 1 ? bytes_of(t.type, t.strides[i]) : 0; };
    const int within = transposed ? 2 : 3;
    *step = t.shape[within] > 1 ? stride(within) : bytes_of(t.type, 1);
    return {static_cast<char*>(t.data), stride(transposed ? 3 : 2), stride(1), stride(0)};
}

// Without a past, or in its first iteration: the presents are keys and values, cut at batch_valid_length.
void Call::add_presents(const Rows& key, const Rows& value) {
    const auto add = [&](const Rows& rows, const quire_tensor* present, bool transposed) {
        if (present == nullptr) return;
        int64_t step;
        const RowView to = heads_first(*present, transposed, &step);
        RowCopy kept = copy(view(rows), to, layer_.T);
        kept.to_step = step;
        kept.counts = valid_;
        run_.copies.push_back(kept);
        if (!valid_) return;
        RowCopy cleared = copy({}, to, layer_.T);
        cleared.to_step = step;
        cleared.begin = valid_;
        cleared.counts = unused_;
        run_.copies.push_back(cleared);
    };
    add(key, t_.key_present, true);
    add(value, t_.value_present, false);
}

// Past positions and the new one, to where attention reads them and to the presents.
void Call::add_joined(const Rows& key, const Rows& value, const Rows& all_keys, const Rows& all_values) {
    const auto add = [&](const Rows& rows, const quire_tensor& past, const RowView& to, int64_t to_step,
                         bool transposed, bool with_rest) {
        int64_t step;
        RowCopy old = copy(heads_first(past, transposed, &step), to, layer_.T);
        old.from_type = past.type;
        old.from_step = step;
        old.to_step = to_step;
        old.counts = valid_;
        run_.copies.push_back(old);
        if (with_rest) {
            old.begin = old.from_begin = end_;
            old.counts = rest_;
            run_.copies.push_back(old);
        }
        RowCopy added = copy(view(rows), to, 1);
        added.to_step = to_step;
        added.begin = valid_;
        run_.copies.push_back(added);
    };
    const auto add_all = [&](const Rows& rows, const quire_tensor& past, const Rows& all,
                             const quire_tensor* present, bool transposed) {
        add(rows, past, view(all), bytes_of(spec_.type, 1), transposed, false);
        if (present == nullptr) return;
        int64_t step;
        const RowView to = heads_first(*present, transposed, &step);
        add(rows, past, to, step, transposed, true);
    };
    add_all(key, *t_.key_past, all_keys, t_.key_present, true);
    add_all(value, *t_.value_past, all_values, t_.value_present, false);
}

Status Call::prepare() {
    Workspace workspace(&run_.workspace, workspace_bytes());
    set_lengths(reinterpret_cast<int64_t*>(workspace.take(size_t(layer_.B) * kLengths * sizeof(int64_t))));
    const auto take = [&](int64_t tokens) {
        return Rows{workspace.take(size_t(bytes_of_tokens(tokens))), tokens};
    };
    const Rows query = take(t_.S), attended = take(t_.S), key = take(t_.added), value = take(t_.added);
    project(MindsporeSpec::kQuery, t_.S, t_.query, projected(query), &run_.inputs);
    project(MindsporeSpec::kKey, t_.added, t_.key, projected(key), &run_.inputs);
    project(MindsporeSpec::kValue, t_.added, t_.value, projected(value), &run_.inputs);
    project(MindsporeSpec::kOutput, t_.S, projected(attended), t_.output, &run_.outputs);
    Rows keys = key, values = value;
    if (t_.incremental) {
        keys = take(layer_.T);
        values = take(layer_.T);
        add_joined(key, value, keys, values);
    } else {
        add_presents(key, value);
    }
    const quire_tensor q = tensor(query), k = tensor(keys), v = tensor(values), o = tensor(attended);
    quire_attention_args attention = {};
    attention.query = &q;
    attention.key = &k;
    attention.value = &v;
    attention.output = &o;
    QUIRE_TRY(make_attention_problem(spec_, attention, &run_.attention));
    if (t_.incremental) run_.attention.key_end = end_;
    if (t_.mask) run_.attention.add_term(mask_term(*t_.mask));
    const auto seed = uint64_t(args_.dropout_seed);
    const auto step = uint32_t(args_.dropout_step);
    if (args_.training) {
        run_.attention.dropout = {layer_.attention_dropout, seed, step};
        run_.outputs[0].dropout = {layer_.hidden_dropout, seed, step};
    }
    run_.max_threads = layer_.threads;
    return {};
}

}  // namespace

Status make_mindspore(const Desc& desc, quire_plan* plan) {
    QUIRE_TRY(check_layer(desc));
    const Parameter parameters[] = {
        {"dense1_weight", "dense1_bias", "[hidden_size (out), hidden_size (in)]", desc.dense1_weight,
         desc.dense1_bias, false},
        {"dense2_weight", "dense2_bias", "[hidden_size (out), hidden_size (in)]", desc.dense2_weight,
         desc.dense2_bias, false},
        {"dense3_weight", "dense3_bias", "[hidden_size (out), hidden_size (in)]", desc.dense3_weight,
         desc.dense3_bias, false},
        {"projection_weight", "projection_bias", "[hidden_size (in), hidden_size (out)]",
         desc.projection_weight, desc.projection_bias, true}};
    for (const Parameter& p : parameters) QUIRE_TRY(check_parameter(desc, p));
    quire_attention_desc attention = {};
    attention.num_heads = desc.num_heads;
    attention.head_dim = desc.hidden_size / desc.num_heads;
    attention.type = desc.compute_dtype;
    attention.key_format = attention.value_format = {desc.compute_dtype, 0, QUIRE_NONE};
    attention.precision = desc.precision;
    AttentionSpec spec;
    QUIRE_TRY(check_attention_desc(attention, &spec));
    QUIRE_TRY(plan_attention(spec, plan));
    MindsporeSpec& layer = plan->mindspore;
    layer.B = desc.batch_size;
    layer.S = desc.src_seq_length;
    layer.T = desc.tgt_seq_length;
    layer.hidden = desc.hidden_size;
    layer.hidden_dropout = desc.hidden_dropout_rate;
    layer.attention_dropout = desc.attention_dropout_rate;
    layer.use_past = desc.use_past;
    layer.threads = desc.parallel_config;
    // Where no generated code of quire's may run, none of oneDNN's does.
    const bool plain = !plan->attention.target->jit();
    for (int i = 0; i < MindsporeSpec::kLayers; ++i) layer.dense[i] = pack(desc, parameters[i], plain);
    const std::string& failure = layer.dense[0]->failure();
    if (!failure.empty())
        plan->context->say_once("quire: dense products run on portable, not on oneDNN: " + failure);
    plan->explain += "dense: " + layer.dense[0]->explain() + ", blocks of " +
                     std::to_string(DenseWeights::kRows) + " rows x " +
                     std::to_string(DenseWeights::kColumns) + " columns\n";
    if (desc.softmax_compute_type == QUIRE_F16)
        plan->explain += "softmax: f32, more than the f16 asked for\n";
    return {};
}

Status prepare_mindspore(const quire_plan& plan, const Args& args, Run* run) {
    Tensors tensors;
    QUIRE_TRY(check_tensors(plan.mindspore, plan.attention.spec, args, &tensors));
    Call call(plan, tensors, args, run);
    QUIRE_TRY(call.prepare());
    run->start(plan.context, nullptr, &plan.attention);
    return {};
}

}  // namespace quire
