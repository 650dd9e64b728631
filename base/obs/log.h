// SPDX-License-Identifier: Apache-2.0
//
// The log: one line per event on stderr, a sentence and named fields, as text or JSON. Any thread;
// writing a line takes a leaf lock and may wait for the terminal, so nothing is logged per token or
// per step. Configure once at start; before that, info and up as text. What is returned as a Status
// is not logged as well.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/stdx/status.h"

namespace weir {

enum class LogLevel : uint8_t { kDebug = 0, kInfo = 1, kWarn = 2, kError = 3 };

struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(Bounded(v)) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(Bounded(v)) {}
  LogField(std::string_view k, const char* v) : key(k), value(Bounded(v)) {}
  LogField(std::string_view k, uint64_t v) : key(k), value(std::to_string(v)), number(true) {}
  LogField(std::string_view k, int64_t v) : key(k), value(std::to_string(v)), number(true) {}
  LogField(std::string_view k, int v) : key(k), value(std::to_string(v)), number(true) {}
  LogField(std::string_view k, uint32_t v) : key(k), value(std::to_string(v)), number(true) {}
  LogField(std::string_view k, double v) : key(k), value(std::to_string(v)), number(true) {}
  // The message of a status, and its reason's name.
  LogField(std::string_view k, const absl::Status& status);

  // What a log line says of `text`, which a peer or client may have sent: its first kilobyte.
  static std::string Bounded(std::string_view text);

  std::string_view key;
  std::string value;
  bool number = false;
};

// `level` is debug, info, warn or error; `format` is text or json; empty means the default.
// kBadField names the one that is neither.
absl::Status ConfigureLog(std::string_view level, std::string_view format);

bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace weir
