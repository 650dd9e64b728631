// SPDX-License-Identifier: Apache-2.0
//
// What fuzzers read of streams: the data of each event. An event is `event: NAME` (in some
// dialects), `data: JSON` and an empty line, and nothing else; what is not aborts. Pure, any
// thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/stdx/check.h"

namespace weir {

// Without [DONE].
inline std::vector<nlohmann::json> DataOfEvents(std::string_view out) {
  std::vector<nlohmann::json> data;
  while (!out.empty()) {
    const size_t end = out.find("\n\n");
    WEIR_CHECK(end != std::string_view::npos);
    std::string_view event = out.substr(0, end);
    out.remove_prefix(end + 2);
    std::string_view name;
    if (event.substr(0, 7) == "event: ") {
      name = event.substr(7, event.find('\n') - 7);
      event.remove_prefix(event.find('\n') + 1);
    }
    WEIR_CHECK(event.substr(0, 6) == "data: ");
    event.remove_prefix(6);
    if (event == "[DONE]") {
      WEIR_CHECK(out.empty());
      break;
    }
    data.push_back(nlohmann::json::parse(event, nullptr, /*allow_exceptions=*/false));
    WEIR_CHECK(data.back().is_object());
    if (!name.empty()) WEIR_CHECK(data.back().value("type", "") == name);
  }
  return data;
}

}  // namespace weir
