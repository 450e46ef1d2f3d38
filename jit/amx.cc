#include "jit/amx.h"

#include "jit/emitter.h"

namespace quire::jit {
namespace {

class Tiles : public Emitter {
public:
    Tiles(const Target& target, bool begins) : Emitter(target) {
        begin();
        begins ? ldtilecfg(constant(standard_tiles())) : tilerelease();
        end();
    }
};

}  // namespace

Status generate_tiles_begin(const Target& target, std::vector<uint8_t>* code) {
    return Tiles(target, true).finish(code);
}
Status generate_tiles_end(const Target& target, std::vector<uint8_t>* code) {
    return Tiles(target, false).finish(code);
}

}  // namespace quire::jit
