#include "tests/support/added_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/precision.h"
#include "tests/support/reference.h"

namespace quire::test {

Case usual_case(const quire_format& format, int head_size, int64_t queries) {
    Case c;
    c.H = 8;
    c.Hk = 2;
    c.D = c.Dv = head_size;
    c.key_format = c.value_format = format;
    c.placement = Placement::pages;
    c.page_size = 128;
    c.sequences = {{queries, 700}, {queries, 1500}};
    return c;
}

namespace {

// One of 64 channels ten times larger; of values that are views of keys, of those as well.
void enlarge(const Case& c, Data data, Tensors* tensors) {
    if (data == Data::large_query_channels) {
        for (int64_t token = 0; token < c.n(); ++token)
            for (int h = 0; h < c.H; ++h)
                for (int d = 3; d < c.D; d += 64) {
                    const char* at = element(tensors->query_view, token, h);
                    store_number(c.type, const_cast<char*>(at), d, 10 * load_number(c.type, at, d));
                }
        return;
    }
    Random random(77);
    for (int64_t b = 0; data == Data::large_value_channels && b < c.B(); ++b)
        for (int64_t t = 0; t < c.sequences[size_t(b)].keys; ++t)
            for (int head = 0; head < c.Hk; ++head) {
                std::vector<float> row(size_t(c.Dv));
                for (float& x : row) x = random.normal();
                for (int d = 3; d < c.Dv; d += 64) row[size_t(d)] *= 10;
                tensors->value.store(tensors->slot(b, t), head, row);
            }
}

// RMS of the differences from what is exact, of the RMS of that.
struct RelativeError {
    double squares = 0, all = 0;

    void add(const std::vector<float>& got, const std::vector<double>& exact) {
        if (got.size() != exact.size()) squares = INFINITY;  // not run
        for (size_t i = 0; i < std::min(got.size(), exact.size()); ++i) {
            squares += (double(got[i]) - exact[i]) * (double(got[i]) - exact[i]);
            all += exact[i] * exact[i];
        }
    }
    double value() const { return std::sqrt(squares / all); }
};

// With dot products of bfloat16 tiles of any format are of them, but for keys that are of bytes: rows that
// decode does not take.
bool has_bfloats(const Case& c, const Target& target) {
    quire_attention_desc desc = desc_of(c);
    desc.precision = QUIRE_PRECISION_MEDIUM;
    AttentionSpec spec;
    EXPECT_TRUE(check_attention_desc(desc, &spec).ok());
    const int decoded = most_decode_rows(spec, target) + most_rest_rows(spec, target).of_decode;
    return target.bf16 && c.sequences[0].queries * c.group() > decoded;
}

}  // namespace

// A query row with a large element sees hardly more than one key: few rows would not tell the RMS of many.
Errors errors_of(Case c, Data data, const std::vector<const Target*>& on,
                 const std::vector<quire_precision>& precisions) {
    RelativeError plain;
    std::vector<RelativeError> own[3];
    for (std::vector<RelativeError>& of : own) of.resize(on.size());
    const bool needs_plain = std::count(precisions.begin(), precisions.end(), QUIRE_PRECISION_HIGHEST) > 0;
    for (c.seed = 1; c.seed <= 3; ++c.seed) {
        Tensors tensors(c);
        enlarge(c, data, &tensors);
        const std::vector<double> exact = plain_attention<double>(tensors).output;
        if (needs_plain) plain.add(plain_attention<float>(tensors).output, exact);
        for (const quire_precision precision : precisions) {
            tensors.spec.precision = precision;
            for (size_t i = 0; i < on.size(); ++i) {
                Way way;
                way.target = on[i]->name;
                own[precision][i].add(run(tensors, way).output, exact);
            }
        }
    }
    Errors errors;
    errors.plain = plain.value();
    for (const quire_precision precision : precisions)
        for (const RelativeError& error : own[precision]) errors.of[precision].push_back(error.value());
    return errors;
}

void Seen::add(Data data, const double (&errors)[3]) {
    for (int precision = 0; precision < 3; ++precision) {
        double& most = largest[precision][int(data)];
        most = std::max(most, errors[precision]);
    }
    high += errors[QUIRE_PRECISION_HIGH] > 3e-6;
    medium += errors[QUIRE_PRECISION_MEDIUM] > 3e-4;
}

void Seen::print() const {
    const char* const names[] = {"normal", "large channels of the query", "of the values"};
    for (int data = 0; data < 3; ++data)
        std::printf(
            "largest error, %s: highest %.2f times a plain float32 attention's, high %.2e, medium %.2e\n",
            names[data], largest[QUIRE_PRECISION_HIGHEST][data], largest[QUIRE_PRECISION_HIGH][data],
            largest[QUIRE_PRECISION_MEDIUM][data]);
}

void check_promises(const Case& c, const std::vector<const Target*>& on, Seen* seen) {
    const quire_type type = c.key_format.type;
    const bool is_int4 = type == QUIRE_INT4 || type == QUIRE_Q4_0 || type == QUIRE_INT4_B16;
    for (const Data data : kData) {
        const Errors errors =
            errors_of(c, data, on, {QUIRE_PRECISION_HIGHEST, QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM});
        for (size_t i = 0; i < on.size(); ++i) {
            SCOPED_TRACE(testing::Message() << c << " on " << on[i]->name << ", data " << int(data));
            const double high = errors.of[QUIRE_PRECISION_HIGH][i],
                         medium = errors.of[QUIRE_PRECISION_MEDIUM][i];
            EXPECT_LT(errors.of_plain(i), 2);
            EXPECT_LT(high, data == Data::normal ? 1e-4 : 2.5e-4);
            EXPECT_LT(medium, data == Data::normal ? (is_int4 ? 0.016 : 0.007) : 0.015);
            if (has_bfloats(c, *on[i])) {
                EXPECT_GT(medium, 5e-4) << "not of bfloat16";
            }
            seen->add(data, {errors.of_plain(i), high, medium});
        }
    }
}

}  // namespace quire::test
