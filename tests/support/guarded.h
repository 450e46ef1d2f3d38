// Buffers with pages on both sides that no access survives. The data lies flush against one of them: against
// the end guard to catch what goes past the end, against the begin guard for what goes before the beginning.
// The bytes between the data and the other guard are checked when the buffer dies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace quire::test {

enum class Flush { end, begin };

// What bytes hold before a test writes them.
constexpr uint8_t kFillByte = 0xa5;

class GuardedBuffer {
public:
    GuardedBuffer() = default;
    // `bytes` may be 0: data() is then an address at which nothing may be touched.
    explicit GuardedBuffer(size_t bytes, Flush flush = Flush::end);
    GuardedBuffer(GuardedBuffer&& other) noexcept { *this = static_cast<GuardedBuffer&&>(other); }
    GuardedBuffer& operator=(GuardedBuffer&& other) noexcept;
    ~GuardedBuffer();

    template <typename T>
    static GuardedBuffer of(const std::vector<T>& values, Flush flush = Flush::end) {
        static_assert(std::is_trivially_copyable_v<T>);
        GuardedBuffer buffer(values.size() * sizeof(T), flush);
        if (!values.empty()) std::memcpy(buffer.data(), values.data(), buffer.size());
        return buffer;
    }

    void* data() const { return data_; }
    size_t size() const { return size_; }  // bytes
    template <typename T>
    T* as() const {
        return reinterpret_cast<T*>(data_);
    }

    void fill(uint8_t byte) { std::memset(data_, byte, size_); }
    // `pattern` again and again, the last one cut off.
    void fill(const void* pattern, size_t pattern_bytes);
    template <typename T>
    void fill_with(T value) {
        fill(&value, sizeof value);
    }
    std::vector<uint8_t> bytes() const { return {data_, data_ + size_}; }
    // No byte outside the data has changed since it was made.
    bool slack_intact() const;

    // From here on any access (any write) of the whole buffer faults: proof that a call does without.
    void forbid_access();
    void forbid_writes();
    void allow_access();

private:
    void protect(int protection);

    uint8_t *pages_ = nullptr, *data_ = nullptr;
    size_t open_ = 0, size_ = 0;  // bytes: between the guards, of data
    bool protected_ = false;
};

}  // namespace quire::test
