#include "bench/pieces.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "bench/limits.h"

namespace bench {
namespace {

constexpr size_t kLine = 64;
constexpr int64_t kBlockKeys = 128;
// Lines asked for before one is loaded, and that into the second level: on Zen 4 64 lines into the first read
// at little more than half the speed, on Zen 5 64 to 4096 into either are the same. (Inlined always: GCC
// drops calls of a function that only prefetches.)
constexpr size_t kAhead = 256;
[[gnu::always_inline]] inline void ask_for(const char* line) { __builtin_prefetch(line, 0, 2); }

// Keys that a head, or as many heads as are together, has before the next: where a page holds all heads as
// many as a work item of decode, where a row does a block.
int64_t keys_in_turn(const Workload& w) {
    constexpr int64_t kItems = 128, kLeast = 512, kMost = 4096;
    if (w.layout < 3) return kBlockKeys;
    if (w.layout != kWholePages) return w.kv_len;
    return std::clamp(w.kv_len * w.kv_heads / kItems / kLeast * kLeast, kLeast, kMost);
}

class Pieces {
public:
    void add(const quire_tensor& rows, int64_t row, int64_t head) {
        if (!rows.data) return;
        const char* const at = static_cast<const char*>(rows.data) +
                               quire_bytes_of(rows.type, row * rows.strides[0] + head * rows.strides[1]);
        const size_t bytes = size_t(quire_bytes_of(rows.type, rows.shape[2]));
        Piece* const last = all_.empty() ? nullptr : &all_.back();
        if (last && last->at + last->bytes == at)
            last->bytes += bytes;
        else
            all_.push_back({at, bytes});
    }
    std::vector<Piece> take() { return std::move(all_); }

private:
    std::vector<Piece> all_;
};

// A position in the lines of pieces.
class Lines {
public:
    Lines(const Piece* begin, const Piece* end) : piece_(begin), end_(end) {}
    const char* next() {  // NULL behind the last one
        if (piece_ == end_) return nullptr;
        const char* const line = piece_->at + at_;
        at_ += kLine;
        if (at_ >= piece_->bytes) ++piece_, at_ = 0;
        return line;
    }

private:
    const Piece *piece_, *const end_;
    size_t at_ = 0;
};

uint64_t load_all(const Piece* begin, const Piece* end) {
    Lines asked(begin, end), loaded(begin, end);
    for (size_t i = 0; i < kAhead; ++i)
        if (const char* line = asked.next()) ask_for(line);
    uint64_t sum = 0;
    while (const char* line = loaded.next()) {
        if (const char* ahead = asked.next()) ask_for(ahead);
        sum += uint8_t(*line);
    }
    return sum;
}

size_t bytes_of(const std::vector<Piece>& pieces) {
    size_t bytes = 0;
    for (const Piece& piece : pieces) bytes += piece.bytes;
    return bytes;
}

// Where the share of each thread ends, of about as many bytes each.
std::vector<size_t> shares_of(int threads, const std::vector<Piece>& pieces) {
    const double share = double(bytes_of(pieces)) / threads;
    std::vector<size_t> ends;
    double passed = 0;
    for (size_t i = 0; i < pieces.size(); ++i) {
        passed += double(pieces[i].bytes);
        if (passed >= share * double(ends.size() + 1) && int(ends.size()) + 1 < threads)
            ends.push_back(i + 1);
    }
    ends.resize(size_t(threads), pieces.size());
    return ends;
}

}  // namespace

std::vector<Piece> pieces_of(const PagedCache& cache, const Workload& w, int64_t layer) {
    std::vector<quire_tensor> planes = {cache.key(layer), cache.key_scale(layer)};
    if (!w.value_view) planes.insert(planes.end(), {cache.value(layer), cache.value_scale(layer)});
    const quire_tensor table = cache.page_table();
    const int64_t unit = w.in_blocks() ? kBlockTokens : 1, rows = (w.kv_len + unit - 1) / unit;
    const int64_t page = (w.page_size ? w.page_size : rows * unit) / unit;
    const int64_t pages = table.rank == 2 ? table.shape[1] : 1;
    const int64_t block = kBlockKeys / unit, turn = (keys_in_turn(w) + unit - 1) / unit;
    const int64_t together = w.layout < 3 ? w.kv_heads : 1;  // heads
    Pieces pieces;
    const auto add_block = [&](int64_t b, int64_t first, int64_t heads) {
        const int64_t* const firsts = static_cast<const int64_t*>(table.data) + b * pages;
        for (const quire_tensor& of : planes)
            for (int64_t row = first; row < std::min(first + block, rows); ++row)
                for (int64_t head = heads; head < heads + together; ++head)
                    pieces.add(of, firsts[row / page] / unit + row % page, head);
    };
    const auto add_turn = [&](int64_t b, int64_t begin, int64_t heads) {
        for (int64_t first = begin; first < std::min(begin + turn, rows); first += block)
            add_block(b, first, heads);
    };
    if (turn == rows) {  // sequences, too, before the next head
        for (int64_t head = 0; head < w.kv_heads; head += together)
            for (int64_t b = 0; b < w.batch; ++b) add_turn(b, 0, head);
        return pieces.take();
    }
    for (int64_t b = 0; b < w.batch; ++b)
        for (int64_t begin = 0; begin < rows; begin += turn)
            for (int64_t head = 0; head < w.kv_heads; head += together) add_turn(b, begin, head);
    return pieces.take();
}

double read_pieces_per_s(int threads, const std::vector<Piece>& pieces) {
    static std::atomic<uint64_t> sink{0};
    const std::vector<size_t> ends = shares_of(threads, pieces);
    const double seconds = seconds_together(threads, [&](int index) {
        const size_t begin = index ? ends[size_t(index) - 1] : 0;
        sink += load_all(pieces.data() + begin, pieces.data() + ends[size_t(index)]);
    });
    return double(bytes_of(pieces)) / seconds;
}

}  // namespace bench
