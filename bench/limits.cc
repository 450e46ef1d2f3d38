#include "bench/limits.h"

#include <sys/mman.h>
#include <unistd.h>
#include <xbyak/xbyak.h>
#include <xbyak/xbyak_util.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

namespace bench {
namespace {

constexpr size_t kReadSlice = size_t(64) << 20;  // bytes a sample, all threads together
constexpr uint64_t kFmaRounds = 40000;           // about 0.3 ms
constexpr int kFmaBursts = 3;

constexpr size_t kHugePage = size_t(2) << 20;

using Clock = std::chrono::steady_clock;

size_t whole_huge_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// Runs work(index) on `threads` threads; seconds from the common start to the last end.
double time_together(int threads, const std::function<void(int)>& work) {
    std::atomic<int> waiting{threads};
    std::vector<Clock::time_point> starts(threads), ends(threads);
    auto body = [&](int index) {
        waiting.fetch_sub(1);
        while (waiting.load() > 0) std::this_thread::yield();
        starts[index] = Clock::now();
        work(index);
        ends[index] = Clock::now();
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(body, i);
    body(0);
    for (std::thread& t : others) t.join();
    const auto first = *std::min_element(starts.begin(), starts.end());
    return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - first).count();
}

// Sums 64-bit words in eight chains: baseline SIMD, and far faster than DRAM.
uint64_t read_all(const uint64_t* words, size_t count) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= count; i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// Successive samples walk through the buffer, so that what is read was last read a buffer's length ago.
double read_bytes_per_s(int threads) {
    static const size_t total = beyond_caches() / kReadSlice * kReadSlice;
    static const char* buffer = static_cast<const char*>(allocate_huge(total));
    static size_t position = 0;
    static std::atomic<uint64_t> sink{0};

    const char* slice = buffer + position;
    position = (position + kReadSlice) % total;
    const size_t words = kReadSlice / threads / 64 * 8;
    const double seconds = time_together(threads, [&](int index) {
        sink += read_all(reinterpret_cast<const uint64_t*>(slice) + words * index, words);
    });
    return double(words) * 8 * threads / seconds;
}

// rounds x num_accumulators independent vector FMAs, in the widest vectors of the machine.
class FmaLoop : public Xbyak::CodeGenerator {
public:
    static const FmaLoop* get() {
        const Xbyak::util::Cpu cpu;  // asks XCR0 as well as CPUID
        if (!cpu.has(Xbyak::util::Cpu::tFMA)) return nullptr;
        static const FmaLoop loop(cpu.has(Xbyak::util::Cpu::tAVX512F));
        return &loop;
    }
    void run(uint64_t rounds) const { getCode<void (*)(uint64_t)>()(rounds); }
    double flops(uint64_t rounds) const { return double(rounds) * num_accumulators_ * lanes_ * 2; }

private:
    explicit FmaLoop(bool has_zmm)
        : CodeGenerator(4096, Xbyak::DontSetProtectRWE),
          num_accumulators_(has_zmm ? 24 : 12),
          lanes_(has_zmm ? 16 : 8) {
        auto vector = [&](int i) { return has_zmm ? Xbyak::Xmm(Xbyak::Zmm(i)) : Xbyak::Xmm(Xbyak::Ymm(i)); };
        const Xbyak::Xmm a = vector(num_accumulators_), b = vector(num_accumulators_ + 1);
        Xbyak::Label constants, loop;
        vbroadcastss(a, ptr[rip + constants]);
        vbroadcastss(b, ptr[rip + constants + 4]);
        for (int i = 0; i < num_accumulators_; ++i) vmovaps(vector(i), a);
        L(loop);
        for (int i = 0; i < num_accumulators_; ++i) vfmadd231ps(vector(i), a, b);
        sub(rdi, 1);
        jnz(loop);
        vzeroupper();
        ret();
        align(4);
        L(constants);
        dd(0x3f7fbe77);  // 0.999
        dd(0x3a83126f);  // 0.001
        setProtectModeRE();
    }

    int num_accumulators_, lanes_;
};

double fma_flops_per_s(int threads) {
    const FmaLoop* loop = FmaLoop::get();
    if (!loop) return 0;
    // The best of a few: a burst is so short that one interruption would count several times over.
    double seconds = 1e9;
    for (int burst = 0; burst < kFmaBursts; ++burst) {
        seconds = std::min(seconds, time_together(threads, [&](int) { loop->run(kFmaRounds); }));
    }
    return loop->flops(kFmaRounds) * threads / seconds;
}

}  // namespace

Limits sample_limits(int threads) { return {read_bytes_per_s(threads), fma_flops_per_s(threads)}; }

void LimitSamples::add(const Limits& sample) {
    read_.push_back(sample.read_bytes_per_s);
    fma_.push_back(sample.fma_flops_per_s);
}

Limits LimitSamples::median() const { return {median_of(read_), median_of(fma_)}; }

void* allocate_huge(size_t bytes) {
    bytes = whole_huge_pages(bytes);
    // One page more, of which the unaligned ends are given back.
    void* mapped =
        mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
        std::fprintf(stderr, "quire_bench: no memory for %zu MiB\n", bytes >> 20);
        std::exit(1);
    }
    char* begin = static_cast<char*>(mapped);
    char* memory = begin + (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    if (memory > begin) munmap(begin, size_t(memory - begin));
    munmap(memory + bytes, kHugePage - size_t(memory - begin));
    (void)madvise(memory, bytes, MADV_HUGEPAGE);  // a wish
    // Written once: pages that were never written are all the same zero page, which the caches hold.
    std::fill_n(reinterpret_cast<uint64_t*>(memory), bytes / 8, 1);
    return memory;
}

void free_huge(void* memory, size_t bytes) {
    if (memory) munmap(memory, whole_huge_pages(bytes));
}

size_t beyond_caches() {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::max(size_t(256) << 20, size_t(std::max(0L, last_level)) * 4);
}

double median_of(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + values.size() / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

}  // namespace bench
