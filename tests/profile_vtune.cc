// QUIRE_PERF=vtune: VTune's collector is told the name of every kernel, in a library that is built for it.
#include "jit/vtune.h"
#include "tests/profile_context.h"

namespace quire::test {
namespace {

#ifndef QUIRE_FAKE_VTUNE
TEST(VTune, IsAnErrorInALibraryWithoutIt) {
    ASSERT_FALSE(jit::has_vtune());
    const Variable variable("QUIRE_PERF", "vtune");
    expect_no_context(
        "QUIRE_PERF is \"vtune\": must be map or jitdump; vtune needs a library that was configured with "
        "QUIRE_VTUNE");
}
#else
TEST(VTune, CollectorIsToldEveryKernel) {
    ASSERT_TRUE(jit::has_vtune());
    expect_true_in_child([] {
        const std::string log = testing::TempDir() + "vtune-" + std::to_string(getpid());
        const Variable collector("INTEL_JIT_PROFILER64", QUIRE_FAKE_VTUNE),
            file("FAKE_VTUNE_LOG", log.c_str()), variable("QUIRE_PERF", "vtune");
        quire_context* context = nullptr;
        if (quire_context_create(nullptr, &context) != QUIRE_OK) return false;
        AttentionCall().result(context);
        const std::string told = contents(log), target = quire_target_name(context);
        quire_context_destroy(context);
        std::remove(log.c_str());
        for (const char* kernel : {"decode_qk_", "decode_softmax_", "decode_pv_", "merge_"})
            if (told.find(kernel) == std::string::npos) return false;
        return told.find(target + " ") != std::string::npos && told.find(" 0\n") == std::string::npos;
    });
}
#endif

}  // namespace
}  // namespace quire::test
