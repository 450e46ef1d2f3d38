// A context of the environment that a test has set, with what it logs; and what it takes to read its files.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/api_call.h"
#include "tests/api_environment.h"

namespace quire::test {

class LoggedContext {
public:
    explicit LoggedContext(int threads = 1, const char* target = nullptr, bool quiet = false) {
        quire_context_options options = {};
        options.struct_size = sizeof options;
        options.num_threads = threads;
        options.target = target;
        options.quiet = quiet;
        options.log = [](void* user, const char* line) {
            static_cast<LoggedContext*>(user)->lines.push_back(line);
        };
        options.log_user = this;
        EXPECT_EQ(quire_context_create(&options, &context), QUIRE_OK) << quire_last_error();
    }
    ~LoggedContext() { quire_context_destroy(context); }
    LoggedContext(const LoggedContext&) = delete;

    quire_context* context = nullptr;
    std::vector<std::string> lines;
};

// A directory for the length of a scope.
class TemporaryDirectory {
public:
    TemporaryDirectory() {
        std::string name = (std::filesystem::temp_directory_path() / "quire-test-XXXXXX").string();
        path = mkdtemp(&name[0]) == nullptr ? "" : name;
        EXPECT_NE(path, "");
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        if (!path.empty()) std::filesystem::remove_all(path, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;

    std::string path;
};

inline std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return file ? text.str() : "";
}

// Regular files below a directory, those whose path ends so.
inline std::vector<std::string> files_below(const std::string& directory, const std::string& end = "") {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
        const std::string path = entry.path().string();
        if (entry.is_regular_file() && path.size() >= end.size() &&
            path.compare(path.size() - end.size(), end.size(), end) == 0)
            found.push_back(path);
    }
    return found;
}

// Making a context fails with this message.
inline void expect_no_context(const std::string& message) {
    quire_context* context = nullptr;
    EXPECT_EQ(quire_context_create(nullptr, &context), QUIRE_INVALID_ARGUMENT);
    EXPECT_EQ(quire_last_error(), message);
    EXPECT_EQ(context, nullptr);
}

// `use` in a child of this process, which must end with its true.
template <typename Use>
void expect_true_in_child(const Use& use) {
    std::fflush(nullptr);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(60);
        _exit(use() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

inline bool generates_code() { return std::string(quire_target_name(inline_context())) != "portable"; }

}  // namespace quire::test
