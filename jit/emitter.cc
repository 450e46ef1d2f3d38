#include "jit/emitter.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "jit/notes.h"
#include "src/half.h"

namespace quire::jit {
namespace {

// Larger than any kernel (D 1024, 8 rows: about 100 KB). Untouched pages cost nothing.
constexpr size_t kCapacity = 1 << 20;

// Caller-saved first; rax is scratch, rdi is args().
const int kGprOrder[] = {6, 2, 1, 8, 9, 10, 11, 3, 5, 12, 13, 14, 15};
const int kCalleeSaved[] = {3, 5, 12, 13, 14, 15};

}  // namespace

Emitter::Emitter(const Target& target)
    // DontSetProtectRWE: the private buffer never becomes executable.
    : CodeGenerator(kCapacity, Xbyak::DontSetProtectRWE), target_(target) {
    vec_names_.resize(size_t(target.num_vecs()));
    gpr_names_.resize(16);
    setDefaultJmpNEAR(true);
}

Vec Emitter::of_kind(int index) const {
    return Vec(is_512() ? Xbyak::Operand::ZMM : Xbyak::Operand::YMM, index);
}

Vec Emitter::vec(const std::string& name) {
    for (size_t i = 0; i < vec_names_.size(); ++i)
        if (vec_names_[i].empty()) return take(of_kind(int(i)), name);
    std::string live;
    for (const std::string& other : vec_names_) live += " " + other;
    throw std::runtime_error("no vector register for " + name + "; live:" + live);
}

Vec Emitter::take(const Vec& r, const std::string& name) {
    vec_names_[size_t(r.getIdx())] = name;
    CollectNotes::add(getSize(), Note::vector_register, r.getIdx(), name);
    return r;
}

std::vector<Vec> Emitter::vecs(const std::string& name, int count) {
    std::vector<Vec> list;
    for (int i = 0; i < count; ++i) list.push_back(vec(name + std::to_string(i)));
    return list;
}

Gpr Emitter::gpr(const std::string& name) {
    for (int index : kGprOrder) {
        if (!gpr_names_[size_t(index)].empty()) continue;
        gpr_names_[size_t(index)] = name;
        CollectNotes::add(getSize(), Note::general_register, index, name);
        return Gpr(index);
    }
    throw std::runtime_error("no general register for " + name);
}

void Emitter::free(const Vec& v) {
    vec_names_[size_t(v.getIdx())].clear();
    CollectNotes::add(getSize(), Note::vector_register, v.getIdx(), "");
}
void Emitter::free(const std::vector<Vec>& list) {
    for (const Vec& v : list) free(v);
}
void Emitter::free(const Gpr& r) {
    gpr_names_[size_t(r.getIdx())].clear();
    CollectNotes::add(getSize(), Note::general_register, r.getIdx(), "");
}

int Emitter::free_vecs() const { return int(std::count(vec_names_.begin(), vec_names_.end(), "")); }

void Emitter::move(std::vector<Vec>* v, const std::vector<Vec>& to) {
    const auto holds = [&](const Vec& r) {
        return std::any_of(v->begin(), v->end(), [&](const Vec& x) { return x.getIdx() == r.getIdx(); });
    };
    const auto move_one = [&](size_t i, const Vec& r) {
        Vec& x = (*v)[i];
        take(r, vec_names_[size_t(x.getIdx())]);
        vmovaps(r, x);
        free(x);
        x = r;
    };
    for (;;) {
        size_t left = v->size(), next = v->size();
        for (size_t i = 0; i < v->size(); ++i) {
            if ((*v)[i].getIdx() == to[i].getIdx()) continue;
            left = i;
            if (!holds(to[i])) next = i;
        }
        if (left == v->size()) return;
        if (next < v->size()) {
            move_one(next, to[next]);
        } else {  // a circle
            const Vec beside = vec("beside");
            free(beside);
            move_one(left, beside);
        }
    }
}

void Emitter::stage(const std::string& text) { CollectNotes::add(getSize(), Note::stage, 0, text); }

void Emitter::begin() {
    CollectNotes::add(getSize(), Note::general_register, args().getIdx(), "args");
    for (int index : kCalleeSaved) push(Gpr(index));
}

void Emitter::end() {
    stage("end");
    for (int i = int(std::size(kCalleeSaved)) - 1; i >= 0; --i) pop(Gpr(kCalleeSaved[i]));
    vzeroupper();
    ret();
}

Status Emitter::finish(std::vector<uint8_t>* bytes) {
    align(64);
    if (!pool_.empty()) CollectNotes::add(getSize(), Note::data, 0, "");
    for (auto& [words, label] : pool_) {
        L(label);
        for (uint32_t bits : words) dd(bits);
    }
    bytes->assign(getCode(), getCode() + getSize());
    return {};
}

Address Emitter::constant(const std::vector<uint32_t>& words) { return ptr[rip + pool_[words]]; }
Address Emitter::splat_bits(uint32_t bits) { return constant(std::vector<uint32_t>(size_t(lanes()), bits)); }
Address Emitter::splat(float value) { return splat_bits(float_bits(value)); }

Temp::Temp(Emitter& e, const char* name) : e_(e), v_(e.vec(name)) {}
Temp::~Temp() { e_.free(v_); }

}  // namespace quire::jit
