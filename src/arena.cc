#include "src/arena.h"

#include <dlfcn.h>
#include <pthread.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "src/ordered.h"

namespace quire {
namespace {

// oneTBB's threads run code of this library and of oneTBB's, and go some time after the last call: once there
// are any, dlclose must unload neither. A handle of its own keeps the library; in a program there is nothing
// to keep.
void stay_loaded() {
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&stay_loaded), &self) != 0 && self.dli_fname != nullptr)
        static_cast<void>(dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
}

}  // namespace

struct Arena::Threads {
    explicit Threads(int count) : arena(count) {}
    tbb::task_arena arena;
};

// All arenas of this copy of the library. It is never destroyed, as arenas may outlive static objects; but it
// has no memory of its own, which dlclose would leave behind.
class ArenaList {
public:
    static ArenaList& get() {
        alignas(ArenaList) static char memory[sizeof(ArenaList)];
        static ArenaList* list = new (memory) ArenaList;
        return *list;
    }

    void add(Arena* arena) {
        std::lock_guard<std::mutex> lock(mutex_);
        arenas_.push_back(arena);
    }

    void remove(Arena* arena) {
        std::lock_guard<std::mutex> lock(mutex_);
        arenas_.erase(std::find(arenas_.begin(), arenas_.end(), arena));
        if (arenas_.empty()) arenas_.shrink_to_fit();
        if (state_ == State::lost)
            static_cast<void>(arena->threads_.release());  // to destroy it is to use it
        arena->threads_.reset();
    }

    tbb::task_arena* enter(Arena& arena) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (state_ == State::lost) return nullptr;
        if (state_ == State::unused) stay_loaded();
        state_ = State::used;
        if (!arena.threads_) arena.threads_ = std::make_unique<Arena::Threads>(arena.count_);
        ++arena.users_;
        return &arena.threads_->arena;
    }

    void leave(Arena& arena) {
        std::lock_guard<std::mutex> lock(mutex_);
        --arena.users_;
    }

private:
    enum class State { unused, used, lost };

    ArenaList() {
        pthread_atfork([] { get().before_fork(); }, [] { get().mutex_.unlock(); }, [] { get().in_child(); });
    }

    // Also where others keep oneTBB alive, this takes the calling thread out of it: at its exit the child
    // would do so, and might wait for ever for a lock.
    void before_fork() {
        mutex_.lock();
        if (state_ != State::used) return;
        for (const Arena* arena : arenas_)
            if (arena->users_ > 0) return;
        tbb::task_scheduler_handle scheduler{tbb::attach{}};
        for (Arena* arena : arenas_) arena->threads_.reset();
        if (tbb::finalize(scheduler, std::nothrow)) state_ = State::unused;
    }

    void in_child() {
        if (state_ == State::used) state_ = State::lost;
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::vector<Arena*> arenas_;
    State state_ = State::unused;
};

struct Arena::Use {
    explicit Use(Arena& a) : owner(a), arena(ArenaList::get().enter(a)) {}
    ~Use() {
        if (arena != nullptr) ArenaList::get().leave(owner);
    }
    Arena& owner;
    tbb::task_arena* arena;
};

Arena::Arena(int threads) : count_(threads) { ArenaList::get().add(this); }
Arena::~Arena() { ArenaList::get().remove(this); }

bool Arena::execute(const std::function<void()>& body) {
    Use use(*this);
    if (use.arena == nullptr) return false;
    const Ordered work([&] { body(); });  // a thread of oneTBB's may run it
    use.arena->execute(work);
    work.done();
    return true;
}

}  // namespace quire
