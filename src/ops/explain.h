// quire_plan_explain as JSON.
#pragma once
#include <string>

namespace quire {

// `text`: lines "key: value", as plans have them.
std::string explain_as_json(const std::string& text);

}  // namespace quire
