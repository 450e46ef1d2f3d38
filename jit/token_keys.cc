#include "jit/token_keys.h"

#include <cstddef>

#include "jit/args.h"
#include "src/token_blocks.h"

namespace quire::jit {
namespace {

class BlockKeys : public TokenKeys {
public:
    BlockKeys(Emitter& e, const RowKey& key, int parts)
        : e_(e),
          codes_(token_block_info(key.format.type)->code_bytes(key.dim)),
          bytes_(block_bytes(key.format, key.dim)),
          parts_(parts) {}

    void set() override {
        e_.mov(blocks_, e_.ptr[e_.args() + offsetof(QkArgs, rows)]);
        e_.mov(next_blocks_, e_.ptr[e_.args() + offsetof(QkArgs, next) + offsetof(NextRows, rows)]);
    }
    void begin_turn() override {
        e_.mov(next_, e_.ptr[next_blocks_]);
        e_.lea(next_end_, e_.ptr[next_ + bytes_]);
    }
    // Lines of the next block that is read here, as many a part as give them all.
    void ask(int step, int) override {
        if (step > 0) return;
        constexpr int kLine = 64;
        const int lines = (bytes_ + kLine - 1) / kLine, share = (lines + parts_ - 1) / parts_;
        Label done;
        e_.cmp(next_, next_end_);
        e_.jae(done);
        for (int i = 0; i < share; ++i) e_.prefetcht1(e_.ptr[next_ + i * kLine]);
        e_.add(next_, share * kLine);
        e_.L(done);
    }
    void end_turn() override {
        e_.add(blocks_, 8 * kBlockTokens);
        e_.add(next_blocks_, 8 * kBlockTokens);
    }
    void codes(const Gpr& to) override { e_.mov(to, e_.ptr[blocks_]); }
    int chunk_bytes() const override { return kBlockTokens * 4; }
    void scales(const Gpr& to) override {
        e_.mov(to, e_.ptr[blocks_]);
        e_.add(to, codes_);
    }
    int scale_bytes() const override { return 2; }
    void load_scales(const Vec& v, const RegExp& at) override {
        e_.vcvtph2ps(v, e_.ptr[at]);
        e_.inf_to_nan(v);
    }

private:
    Emitter& e_;
    const int codes_, bytes_, parts_;
    const Gpr blocks_ = e_.gpr("blocks"), next_blocks_ = e_.gpr("next blocks"), next_ = e_.gpr("next block"),
              next_end_ = e_.gpr("its end");
};

}  // namespace

std::unique_ptr<TokenKeys> TokenKeys::make(Emitter& e, const RowKey& key, int parts) {
    if (!token_block_info(key.format.type)) return make_turned_keys(e, key, parts);
    return std::make_unique<BlockKeys>(e, key, parts);
}

}  // namespace quire::jit
