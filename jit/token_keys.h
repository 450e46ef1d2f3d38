// Where QK with tokens in the lanes (jit/token_qk.cc) has its keys from: blocks of tokens as they lie in the
// cache, or plain rows, which are brought into the order of a block.
#pragma once
#include <memory>

#include "jit/emitter.h"
#include "jit/kernel_key.h"

namespace quire::jit {

// A turn is kBlockTokens keys: codes as uint32_t [D / N][kBlockTokens], and a scale for each group and token.
class TokenKeys {
public:
    // parts: of a turn, in each of which it asks for a share of the next block.
    static std::unique_ptr<TokenKeys> make(Emitter& e, const RowKey& key, int parts);
    virtual ~TokenKeys() = default;

    virtual void set() = 0;  // from the arguments
    virtual void begin_turn() = 0;
    virtual void ask(int step, int steps) = 0;  // of a part
    virtual void end_turn() = 0;
    // Addresses of the turn's codes, and of the scales of its first group.
    virtual void codes(const Gpr& to) = 0;
    virtual int chunk_bytes() const = 0;  // from one dword of all tokens to the next
    // From there to the same, shifted left by four.
    virtual int raised() const { return 0; }
    virtual void scales(const Gpr& to) = 0;
    virtual int scale_bytes() const = 0;
    // Scales of lanes() tokens of a group, where none is Inf.
    virtual void load_scales(const Vec& v, const RegExp& at) = 0;
};

// Whether QK of these rows turns them into the order of a block first.
bool turns_keys(const RowKey& key);
// Whether QK takes codes at the upper end of a dword: numbers 2^24 or 2^28 times as large, for one operation
// instead of two. The query is as much smaller.
bool takes_tops(const RowKey& key);
std::unique_ptr<TokenKeys> make_turned_keys(Emitter& e, const RowKey& key, int parts);

}  // namespace quire::jit
