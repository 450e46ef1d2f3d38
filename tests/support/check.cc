#include "tests/support/check.h"

namespace quire::test {

void check(Tensors& tensors, const std::vector<const Target*>& on, ErrorRatio* ratio) {
    const Expected expected = expect(tensors);
    for (const Target* target : on) {
        Way way;
        way.target = target->name;
        const Outcome got = run(tensors, way);
        EXPECT_TRUE(accurate(tensors.spec, expected, got)) << "on " << target->name;
        if (ratio) ratio->add(tensors.spec, expected, got);
    }
}

void check(const Case& c, const std::vector<const Target*>& on, ErrorRatio* ratio) {
    Tensors tensors(c);
    check(tensors, on, ratio);
}

double check_all(const std::vector<Case>& cases, const std::vector<const Target*>& on) {
    ErrorRatio ratio;
    for (const Case& c : cases) check(c, on, &ratio);
    testing::Test::RecordProperty("error_ratio", std::to_string(ratio.value()));
    return ratio.value();
}

}  // namespace quire::test
