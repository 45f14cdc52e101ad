// Stands in for <format> where the C++ library has none (libstdc++ before 13). mlx-c builds its
// messages with it, and uses nothing but bare `{}` fields.
#pragma once
#include <string>
#include <string_view>

#if !__has_include(<format>)
#include <sstream>

namespace std {

template <class... Args>
string format(string_view pattern, const Args&... args) {
  ostringstream out;
  auto put = [&](const auto& arg) {
    const size_t field = pattern.find("{}");
    out << pattern.substr(0, field);
    if (field == string_view::npos) {
      pattern = {};
      return;
    }
    out << arg;
    pattern.remove_prefix(field + 2);
  };
  (put(args), ...);
  out << pattern;
  return out.str();
}

} // namespace std
#else
#include <format>
#endif
