// Environment variables for the length of a scope.
#pragma once
#include <cstdlib>
#include <string>

namespace quire::test {

class Variable {
public:
    // value null: not set.
    Variable(const char* name, const char* value) : name_(name) {
        const char* old = std::getenv(name);
        had_ = old != nullptr;
        if (had_) old_ = old;
        set(value);
    }
    ~Variable() { set(had_ ? old_.c_str() : nullptr); }
    Variable(const Variable&) = delete;

private:
    void set(const char* value) { value ? setenv(name_, value, 1) : unsetenv(name_); }

    const char* name_;
    std::string old_;
    bool had_;
};

}  // namespace quire::test
