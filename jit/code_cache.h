// key -> published code. A key is generated once however many threads ask at the same time, outside the lock;
// a generation that failed can be tried again; least recently used code that no plan holds is dropped when
// the cache is over its limit.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "jit/code_memory.h"
#include "jit/notes.h"
#include "src/status.h"

namespace quire::jit {

struct Code {
    std::string name;
    CodeMemory memory;
    size_t code_size = 0;  // bytes that were generated
    template <typename Function>
    Function as() const {
        return reinterpret_cast<Function>(reinterpret_cast<uintptr_t>(memory.entry()));
    }
};

class CodeCache {
public:
    using Generator = std::function<Status(std::vector<uint8_t>* bytes)>;

    // Sees every kernel once, when it has been published; from any thread.
    using Watcher = std::function<void(const std::shared_ptr<const Code>& code, const Notes& notes)>;

    explicit CodeCache(size_t limit, Watcher watcher = nullptr)
        : watcher_(std::move(watcher)), limit_(limit) {}

    // `name` spells all that the code depends on. On failure the generator's status, and nothing is kept.
    Status get(const std::string& name, const Generator& generate, std::shared_ptr<const Code>* code);

    size_t bytes() const;  // mapped by code that the cache holds
    size_t size() const;

private:
    struct Entry {
        std::shared_ptr<const Code> code;  // null while it is being generated
        std::list<std::string>::iterator used;
    };
    class Making;
    Status make(const std::string& name, const Generator& generate, std::shared_ptr<const Code>* code) const;
    void touch(Entry& entry);
    void evict();

    const Watcher watcher_;
    const size_t limit_;
    mutable std::mutex mutex_;
    std::condition_variable generated_;
    std::map<std::string, Entry> entries_;
    std::list<std::string> order_;  // least recently used first
    size_t bytes_ = 0;
};

}  // namespace quire::jit
