#include "tests/support/property.h"

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <sstream>

namespace quire::test {
namespace {

constexpr uint64_t kSeed = 20;

// Under the thread sanitizer, for which oneTBB is not built (tests/tsan.supp): the tests' own threads, which
// run the same code, and a tenth of the cases, each being slow.
#ifdef __SANITIZE_THREAD__
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

template <typename T>
T one_of(std::initializer_list<T> values) {
    return *rc::gen::elementOf(std::vector<T>(values));
}
// Shrinks to false: what a case can fail without is left out.
bool chance(int of_100) { return *rc::gen::inRange(0, 100) >= 100 - of_100; }
// Both included, of any size of the test.
template <typename T>
T between(T low, T high) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high + 1));
}

quire_format draw_format(int dim, bool cached) {
    if (!cached && dim % kBlockValues == 0 && chance(40))
        return plain_format(*rc::gen::elementOf(block_types()));
    if (dim % 8 == 0 && chance(15)) {
        const int group = chance(50) ? 8 : dim % 32 == 0 ? 32 : dim;
        return quantised(*rc::gen::elementOf(token_block_types()), group, QUIRE_F16);
    }
    const auto type =
        one_of({QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_INT8, QUIRE_INT8, QUIRE_INT4, QUIRE_INT4});
    if (type != QUIRE_INT8 && type != QUIRE_INT4) return plain_format(type);
    if (type == QUIRE_INT4 && dim % 2 != 0) return plain_format(QUIRE_F16);
    std::vector<int> groups;
    for (int g = 1; g <= dim; ++g)
        if (dim % g == 0) groups.push_back(g);
    const int group = dim % 8 == 0 && chance(50) ? 8 : *rc::gen::elementOf(groups);
    return quantised(type, group, one_of({QUIRE_F32, QUIRE_F16}));
}

int draw_head_size() {
    if (chance(50)) return one_of({8, 16, 40, 64, 80, 128});
    return chance(70) ? between(1, 96) : between(1, 640);
}

// Around the borders of pages, of tiles and of the ranges that keys are cut into.
int64_t draw_keys(const Draw& draw, int64_t page) {
    if (chance(5)) return 0;
    if (chance(40)) return between<int64_t>(1, 40);
    if (draw.long_sequences && chance(10)) return between<int64_t>(4095, 5000);
    const int64_t border = chance(15) ? 1024 : page * between<int64_t>(1, page > 16 ? 2 : 9);
    return border + between<int64_t>(-1, 1);
}

int64_t draw_queries(const Draw& draw) {
    if (chance(5)) return 0;
    if (chance(50)) return between<int64_t>(1, 4);
    if (draw.long_sequences && chance(20)) return between<int64_t>(100, 320);
    return chance(80) ? between<int64_t>(5, 20) : between<int64_t>(21, 64);
}

void draw_layout(Case* c) {
    c->layout = between(0, kWholePages);
    c->flush = one_of({Flush::end, Flush::begin});
    c->spread = chance(30);
    c->unaligned = chance(20);
    c->order_seed = between<uint64_t>(1, 1000);
}

void draw_options(const Draw& draw, Case* c) {
    c->causal = chance(50);
    c->alibi = chance(25);
    c->has_window = chance(25);
    c->window_left = between(-1, 50);
    c->window_right = between(-1, 5);
    c->soft_cap = chance(25) ? one_of({0.7f, 20.f}) : 0.f;
    c->sinks = chance(25);
    c->scale = chance(30) ? one_of({0.3f, -0.05f}) : 0.f;
    c->lse = chance(75);
    if (!draw.by_token) return;
    c->causal_corner = chance(25);
    c->positions = chance(20);
    c->key_ranges = chance(20);
    c->mask_rank = chance(60) ? 0 : between(2, 3);
    c->mask_shared = chance(30);
    c->mask_type = one_of({QUIRE_F32, QUIRE_F16, QUIRE_BF16, QUIRE_BOOL});
    c->mask_runs = chance(60);
    c->mask_slopes = chance(25);
    // The words of a token's tree depend on its batch mates where there are more than one.
    c->tree = !draw.long_sequences && chance(20);
    c->decoding_batches = between<int64_t>(0, c->B());
}

// Shorter until it takes no more time than allowed.
void shorten(const Draw& draw, Case* c) {
    while (c->multiplications() > draw.most_multiplications) {
        if (c->H > 1) {
            c->H /= c->Hk;
            c->Hk = 1;
            c->H = std::max(1, c->H / 2);
            continue;
        }
        for (Lengths& s : c->sequences) {
            s.keys = draw.cached ? std::max(s.queries / 2, s.keys / 2) : s.keys / 2;
            s.queries /= 2;
        }
    }
}

Case draw_case(const Draw& draw) {
    Case c;
    c.type = one_of({QUIRE_F32, QUIRE_F32, QUIRE_F16, QUIRE_BF16});
    c.D = draw_head_size();
    c.Dv = chance(60) ? c.D : draw_head_size();
    c.key_format = draw_format(c.D, draw.cached);
    c.value_format = draw_format(c.Dv, draw.cached);
    c.Hk = between(1, 3);
    c.H = c.Hk * one_of({1, 2, 3, 4, 8});
    c.placement = draw.cached || chance(70) ? one_of({Placement::offsets, Placement::pages, Placement::pages})
                                            : Placement::dense;
    c.page_size = one_of({1, 3, 16, 128});
    const int64_t border = c.placement == Placement::pages ? c.page_size : 16;
    for (int i = between(chance(5) ? 0 : 1, draw.most_sequences); i > 0; --i) {
        Lengths s{draw_queries(draw), draw_keys(draw, border), c.sequences.size() + 1};
        if (draw.cached) s.keys = std::max(s.keys, s.queries);
        c.sequences.push_back(s);
    }
    shorten(draw, &c);
    c.fit_to_blocks();
    if (chance(35)) c.precision = one_of({QUIRE_PRECISION_HIGH, QUIRE_PRECISION_MEDIUM});
    draw_layout(&c);
    c.seed = between<uint64_t>(1, 1000);
    if (draw.options) draw_options(draw, &c);
    return c;
}

}  // namespace

void check_property(void (*property)(), int cases) {
    using namespace rc::detail;
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    TestMetadata metadata;
    metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
    metadata.description = info->name();
    TestParams params = configuration().testParams;
    if (std::getenv("RC_PARAMS") == nullptr) {
        params.maxSuccess = kThreadSanitizer ? cases / 10 : cases;
        if (std::getenv("QUIRE_RANDOM_TESTS") == nullptr) params.seed = kSeed;
    }
    const TestResult result = checkTestable(property, metadata, params);
    if (result.is<SuccessResult>()) return;
    std::ostringstream text;
    printResultMessage(result, text);
    FAIL() << text.str() << "\nrapidcheck seed " << params.seed;
}

void hold(const testing::AssertionResult& result) {
    if (!result) RC_FAIL(std::string(result.message()));
}

rc::Gen<Case> cases(const Draw& draw) {
    return rc::gen::exec([draw] { return draw_case(draw); });
}

rc::Gen<Way> ways() {
    return rc::gen::exec([] {
        Way way;
        std::vector<std::string> names;
        for (const Target* target : targets()) names.push_back(target->name);
        way.target = *rc::gen::elementOf(names);
        way.threads = kThreadSanitizer || chance(60) ? 1 : between(2, 3);
        way.slices = way.threads == 1 && chance(40) ? between(1, 3) : 0;
        return way;
    });
}

void move_in_memory(Case* c) {
    c->placement = one_of({Placement::dense, Placement::offsets, Placement::pages, Placement::pages});
    c->page_size = one_of({1, 3, 7, 16, 128});
    c->fit_to_blocks();
    draw_layout(c);
}

std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name(); }

}  // namespace quire::test
