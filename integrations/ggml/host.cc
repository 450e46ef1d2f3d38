#include "host.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "problem.h"
#include "stats.h"

extern "C" void ggml_compute_forward_flash_attn_ext(const quire_ggml::ComputeParams*, quire_ggml::Tensor*,
                                                    void*, void*, void*, void*);

namespace quire_ggml {
namespace {

constexpr char kName[] = "ggml_compute_forward_flash_attn_ext";

// A handle of the object of that file, and its function of that name where it is not this library's.
Compute find_original(void* handle) {
    void* found = handle == nullptr ? nullptr : dlsym(handle, kName);
    const auto function = reinterpret_cast<Compute>(found);
    return function == &ggml_compute_forward_flash_attn_ext ? nullptr : function;
}

std::string file_of(const void* address) {
    Dl_info info;
    return dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// The caller's own object first: a process may hold several copies of ggml. Most load theirs without making
// its names known to others, where RTLD_NEXT does not look.
void open_host(const void* caller, Host* host) {
    void* handle = dlopen(file_of(caller).c_str(), RTLD_LAZY | RTLD_NOLOAD);
    host->original = find_original(handle);
    if (host->original == nullptr) host->original = reinterpret_cast<Compute>(dlsym(RTLD_NEXT, kName));
    if (host->original == nullptr) {
        say("%s has no %s of its own", file_of(caller).c_str(), kName);
        std::abort();
    }
    const Proof proof = prove(handle);
    host->op = proof.op;
    host->has_use_ref = proof.has_use_ref;
    const char* difference = proof.difference;
    if (difference == nullptr) difference = context_failure().text;
    host->proved = difference == nullptr;
    if (!host->proved)
        say("not used, attention is computed by ggml's own function: %s (%s)", difference,
            file_of(caller).c_str());
}

}  // namespace

Host& host_of(const void* caller) {
    thread_local const void* last_caller = nullptr;
    thread_local Host* last_host = nullptr;
    if (caller == last_caller) return *last_host;
    static std::mutex& mutex = *new std::mutex;
    static auto& hosts = *new std::map<const void*, Host>;  // by where their object is loaded
    std::lock_guard<std::mutex> lock(mutex);
    Dl_info info = {};
    dladdr(caller, &info);
    const bool known = hosts.count(info.dli_fbase) > 0;
    Host& host = hosts[info.dli_fbase];
    if (!known) open_host(caller, &host);
    last_caller = caller;
    last_host = &host;
    return host;
}

}  // namespace quire_ggml
