#include "bench/limits.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "bench/limits_loops.h"

namespace bench {
namespace {

constexpr size_t kReadSlice = size_t(64) << 20;  // bytes a sample, all threads together
constexpr size_t kCopySlice = size_t(4) << 20;   // as many bytes as 512 new float32 tokens
constexpr uint64_t kRounds = 40000;              // of a loop, about 0.3 ms
constexpr int kBursts = 3;
constexpr uint64_t kSteadyRounds = 32 * kRounds;  // as long as a workload

constexpr size_t kHugePage = size_t(2) << 20;

using Clock = std::chrono::steady_clock;

size_t whole_huge_pages(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

// What was given back and is large: a virtual machine may take seconds to get a gigabyte again from its host.
constexpr size_t kWorthKeeping = size_t(16) << 20;
struct Memory {
    void* begin;
    size_t bytes;
};
// Never destroyed: caches that are static give theirs back when the process ends.
std::vector<Memory>& kept_memory() {
    static auto* const all = new std::vector<Memory>;
    return *all;
}

// The beginning of one that is large enough, whose end goes to the system; NULL where there is none, and then
// none is kept.
void* take_kept(size_t bytes) {
    if (bytes < kWorthKeeping) return nullptr;
    std::vector<Memory>& all = kept_memory();
    const auto large =
        std::find_if(all.begin(), all.end(), [&](const Memory& m) { return m.bytes >= bytes; });
    if (large == all.end()) {
        for (const Memory& memory : all) munmap(memory.begin, memory.bytes);
        all.clear();
        return nullptr;
    }
    const Memory taken = *large;
    all.erase(large);
    if (taken.bytes > bytes) munmap(static_cast<char*>(taken.begin) + bytes, taken.bytes - bytes);
    return taken.begin;
}

// Keeps a thread on the processor of that index among those that the process may use, as long as it lives. A
// new thread may begin on the processor of the one that waits for it, and both would then do their work one
// after the other: one thread's speed for the limit of two.
class OnProcessor {
public:
    OnProcessor(const cpu_set_t& allowed, int index) : before_(allowed) {
        const int count = CPU_COUNT(&allowed);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE && count > 0; ++cpu)
            if (CPU_ISSET(cpu, &allowed) && seen++ == index % count) CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof one, &one);  // a wish
    }
    ~OnProcessor() { (void)sched_setaffinity(0, sizeof before_, &before_); }
    OnProcessor(const OnProcessor&) = delete;

private:
    const cpu_set_t before_;
};

// Sums 64-bit words in eight chains: baseline SIMD, and far faster than DRAM.
uint64_t read_all(const uint64_t* words, size_t count) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i + 8 <= count; i += 8) {
        for (size_t j = 0; j < 8; ++j) sum[j] += words[i + j];
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

// Successive samples walk through it, so that what is read was last read its length ago.
ReadFrom memory_of_its_own() {
    static const size_t total = beyond_caches() / kReadSlice * kReadSlice;
    static const char* const buffer = static_cast<const char*>(allocate_huge(total));
    static size_t position = 0;
    const ReadFrom from{buffer, total, position};
    position = (position + kReadSlice) % total;
    return from;
}

double read_bytes_per_s(int threads, const ReadFrom& wanted) {
    static std::atomic<uint64_t> sink{0};
    const ReadFrom from = wanted.memory ? wanted : memory_of_its_own();
    const char* const slice = from.memory + std::min(from.at, from.bytes - kReadSlice);
    const size_t words = kReadSlice / threads / 64 * 8;
    const double seconds = seconds_together(threads, [&](int index) {
        sink += read_all(reinterpret_cast<const uint64_t*>(slice) + words * index, words);
    });
    return double(words) * 8 * threads / seconds;
}

double copy_bytes_per_s(int threads) {
    static const size_t total = beyond_caches() / kCopySlice * kCopySlice;
    static const std::vector<char> source(kCopySlice, 1);
    static char* target = static_cast<char*>(allocate_huge(total));
    static size_t position = 0;
    char* to = target + position;
    position = (position + kCopySlice) % total;
    const size_t bytes = kCopySlice / threads;
    const double seconds = seconds_together(
        threads, [&](int index) { std::memcpy(to + bytes * index, source.data() + bytes * index, bytes); });
    return double(bytes) * threads / seconds;
}

// Of the best of so many bursts. A peak is that of a few: a burst is so short that one interruption would
// count several times over.
double loop_rate(LimitLoop loop, int threads, const std::string& target, uint64_t rounds = kRounds,
                 int bursts = kBursts) {
    const LimitCode code = limit_code(loop, target);
    if (code.work == 0) return 0;
    double seconds = 1e9;
    for (int burst = 0; burst < bursts; ++burst)
        seconds = std::min(seconds, seconds_together(threads, [&](int) { code.run(rounds); }));
    return code.work * double(rounds) * threads / seconds;
}

}  // namespace

double seconds_together(int threads, const std::function<void(int)>& work) {
    std::atomic<int> waiting{threads};
    std::vector<Clock::time_point> starts(threads), ends(threads);
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    (void)sched_getaffinity(0, sizeof allowed, &allowed);
    auto body = [&](int index) {
        const OnProcessor pinned(allowed, index);
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

double Limits::peak_of(quire_precision precision) const {
    switch (precision) {
        case QUIRE_PRECISION_MEDIUM: return dot8_flops_per_s;
        case QUIRE_PRECISION_HIGH: return dot16_flops_per_s;
        default: return fma_flops_per_s;
    }
}

Limits sample_limits(int threads, const Wanted& wanted) {
    const auto rate = [&](LimitLoop loop) { return loop_rate(loop, threads, wanted.target); };
    Limits sample;
    sample.read_bytes_per_s = read_bytes_per_s(threads, wanted.read);
    sample.fma_flops_per_s = rate(LimitLoop::fma);
    sample.fma_steady_flops_per_s = loop_rate(LimitLoop::fma, threads, wanted.target, kSteadyRounds, 1);
    sample.cycles_per_s = loop_rate(LimitLoop::cycles, 1, wanted.target);
    if (wanted.copy) sample.copy_bytes_per_s = copy_bytes_per_s(threads);
    if (wanted.dots) sample.dot16_flops_per_s = rate(LimitLoop::dot16);
    if (wanted.dots) sample.dot8_flops_per_s = rate(LimitLoop::dot8);
    if (wanted.dots) sample.bf16_flops_per_s = rate(LimitLoop::bf16);
    return sample;
}

Limits LimitSamples::usual() const {
    Limits usual;
    const auto take = [&](double Limits::*field, double quantile) {
        std::vector<double> known;
        for (const Limits& sample : samples_)
            if (sample.*field > 0) known.push_back(sample.*field);
        usual.*field = quantile_of(known, quantile);
    };
    for (double Limits::*half_of_the_time :
         {&Limits::read_bytes_per_s, &Limits::pages_bytes_per_s, &Limits::copy_bytes_per_s, &Limits::apart,
          &Limits::fma_steady_flops_per_s})
        take(half_of_the_time, 0.5);
    for (double Limits::*at_best :
         {&Limits::fma_flops_per_s, &Limits::dot16_flops_per_s, &Limits::dot8_flops_per_s,
          &Limits::bf16_flops_per_s, &Limits::cycles_per_s})
        take(at_best, 0.9);
    return usual;
}

void* allocate_huge(size_t bytes) {
    bytes = whole_huge_pages(bytes);
    if (void* const kept = take_kept(bytes)) return kept;
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
    if (!memory) return;
    bytes = whole_huge_pages(bytes);
    if (bytes < kWorthKeeping)
        munmap(memory, bytes);
    else
        kept_memory().push_back({memory, bytes});
}

size_t beyond_caches() {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::max(size_t(256) << 20, size_t(std::max(0L, last_level)) * 4);
}

double quantile_of(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    const auto at = values.begin() + int64_t(share * double(values.size() - 1) + 0.5);
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

}  // namespace bench
