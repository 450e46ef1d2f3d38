#include "jit/code_cache.h"

#include <exception>
#include <new>

namespace quire::jit {

Status CodeCache::make(const std::string& name, const Generator& generate,
                       std::shared_ptr<const Code>* code) const {
    try {
        std::vector<uint8_t> bytes;
        Notes notes;
        {
            const CollectNotes collect(watcher_ ? &notes : nullptr);
            QUIRE_TRY(generate(&bytes));
        }
        auto made = std::make_shared<Code>();
        made->name = name;
        made->code_size = bytes.size();
        QUIRE_TRY(CodeMemory::publish(bytes.data(), bytes.size(), &made->memory));
        *code = std::move(made);
        if (watcher_) watcher_(*code, notes);
        return {};
    } catch (const std::bad_alloc&) {
        return Status(QUIRE_OUT_OF_MEMORY, "out of memory while generating " + name);
    } catch (const std::exception& error) {
        return Status(QUIRE_INTERNAL, "generating " + name + ": " + error.what());
    } catch (...) {
        return Status(QUIRE_INTERNAL, "generating " + name + ": unknown exception");
    }
}

// The entry of a key that is being generated. Unless it is kept, it goes, and others may try: also where
// memory runs out on the way.
class CodeCache::Making {
public:
    // The lock is held.
    Making(CodeCache& cache, const std::string& name)
        : cache_(cache), entry_(cache.entries_.try_emplace(name).first) {
        try {
            entry_->second.used = cache.order_.insert(cache.order_.end(), name);
        } catch (...) {
            cache.entries_.erase(entry_);
            throw;
        }
    }
    ~Making() {
        std::lock_guard<std::mutex> lock(cache_.mutex_);
        if (!entry_->second.code) {
            cache_.order_.erase(entry_->second.used);
            cache_.entries_.erase(entry_);
        }
        cache_.generated_.notify_all();
    }
    Making(const Making&) = delete;

    void keep(const std::shared_ptr<const Code>& code) {
        std::lock_guard<std::mutex> lock(cache_.mutex_);
        entry_->second.code = code;
        cache_.bytes_ += code->memory.size();
        cache_.touch(entry_->second);
        cache_.evict();
    }

private:
    CodeCache& cache_;
    const std::map<std::string, Entry>::iterator entry_;
};

Status CodeCache::get(const std::string& name, const Generator& generate, std::shared_ptr<const Code>* code) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
        auto found = entries_.find(name);
        if (found == entries_.end()) break;
        if (found->second.code) {
            touch(found->second);
            *code = found->second.code;
            return {};
        }
        generated_.wait(lock);  // another thread is at it; if it fails, its entry is gone and we try
    }
    Making making(*this, name);
    lock.unlock();
    std::shared_ptr<const Code> made;
    QUIRE_TRY(make(name, generate, &made));
    making.keep(made);
    *code = std::move(made);
    return {};
}

void CodeCache::touch(Entry& entry) { order_.splice(order_.end(), order_, entry.used); }

void CodeCache::evict() {
    for (auto it = order_.begin(); it != order_.end() && bytes_ > limit_;) {
        auto found = entries_.find(*it);
        const std::shared_ptr<const Code>& code = found->second.code;
        if (!code || code.use_count() > 1) {  // in the making, or in use by a plan
            ++it;
            continue;
        }
        bytes_ -= code->memory.size();
        it = order_.erase(it);
        entries_.erase(found);
    }
}

size_t CodeCache::bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return bytes_;
}

size_t CodeCache::size() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return entries_.size();
}

}  // namespace quire::jit
