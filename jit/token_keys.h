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
    // parts: of a turn, at the beginning of each of which it asks for a share of the next block.
    static std::unique_ptr<TokenKeys> make(Emitter& e, const RowKey& key, int parts);
    virtual ~TokenKeys() = default;

    virtual void set() = 0;  // from the arguments
    virtual void begin_turn() = 0;
    virtual void begin_part() = 0;
    virtual void end_turn() = 0;
    // Addresses of the turn's codes, and of the scales of its first group.
    virtual void codes(const Gpr& to) = 0;
    virtual void scales(const Gpr& to) = 0;
    virtual int scale_bytes() const = 0;
    // Scales of lanes() tokens of a group, where none is Inf.
    virtual void load_scales(const Vec& v, const RegExp& at) = 0;
};

// Whether QK of these rows turns them into the order of a block first.
bool turns_keys(const RowKey& key);
std::unique_ptr<TokenKeys> make_turned_keys(Emitter& e, const RowKey& key, int parts);

}  // namespace quire::jit
