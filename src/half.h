// Scalar conversions of float16 and bfloat16: plain C++, correctly rounded (ties to even), any x86-64.
#pragma once
#include <cstdint>
#include <cstring>

namespace quire {

inline uint32_t float_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline float float_from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline float half_to_float(uint16_t h) {
    const uint32_t sign = uint32_t(h & 0x8000) << 16;
    const uint32_t rest = h & 0x7fff;
    // Moving the fields up by 13 gives the value times 2^-112, exact for subnormals too; of Inf and NaN only
    // the exponent is wrong. No branch, nor what compilers make one of: loops over this become vectors.
    const uint32_t finite = float_bits(float_from_bits(rest << 13) * 0x1p112f);
    const uint32_t is_not = 0u - uint32_t(rest >= 0x7c00);
    return float_from_bits(sign | finite | (is_not & 0x7f800000));
}

inline uint16_t float_to_half(float x) {
    const uint32_t bits = float_bits(x);
    const uint16_t sign = uint16_t((bits >> 16) & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);   // NaN
    if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);  // rounds to 65536 or more
    if (magnitude < 0x38800000) {                                 // below 2^-14: a multiple of 2^-24
        // Adding 0.5 aligns the last bit kept with the float's own, which rounds to even.
        const float aligned = float_from_bits(magnitude) + 0.5f;
        return uint16_t(sign | (float_bits(aligned) - float_bits(0.5f)));
    }
    const uint32_t odd = (magnitude >> 13) & 1;
    return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

inline float bfloat_to_float(uint16_t b) { return float_from_bits(uint32_t(b) << 16); }

inline uint16_t float_to_bfloat(float x) {
    const uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t((bits >> 16) | 0x40);  // quiet NaN
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace quire
