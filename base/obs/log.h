// SPDX-License-Identifier: Apache-2.0
//
// The structured log: one line per event, a sentence and key=value fields (or one JSON object). Any
// thread; a line is formatted by the caller and written under the sink's lock, so nothing that runs
// per token logs. Before InitLog lines go to standard error as text from info on. Cannot fail: what
// the sink cannot write is lost.
//
//   LogInfo("request finished", {{"request", id}, {"tokens", 12}});
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "base/stdx/status.h"

namespace weir {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  bool json = false;
  std::string file;  // empty for standard error; appended to, and opened anew by InitLog
};

// Once at start, before threads; again on reload.
absl::Status InitLog(const LogOptions& options);
// "debug", "info", "warning" or "error".
absl::StatusOr<LogLevel> ParseLogLevel(std::string_view name);

// Borrowed views; lives for one call only. "request" is the key of a request's id everywhere.
class LogField {
 public:
  LogField(std::string_view key, std::string_view value) : key(key), value(value) {}
  LogField(std::string_view key, const char* value) : key(key), value(std::string_view(value)) {}
  LogField(std::string_view key, const std::string& value)
      : key(key), value(std::string_view(value)) {}
  LogField(std::string_view key, bool value) : key(key), value(value) {}
  LogField(std::string_view key, std::floating_point auto value)
      : key(key), value(static_cast<double>(value)) {}
  LogField(std::string_view key, std::signed_integral auto value)
      : key(key), value(static_cast<int64_t>(value)) {}
  LogField(std::string_view key, std::unsigned_integral auto value)
      : key(key), value(static_cast<uint64_t>(value)) {}
  LogField(std::string_view key, const absl::Status& status)
      : key(key), value(StatusText(status)) {}

  std::string_view key;
  std::variant<std::string_view, bool, double, int64_t, uint64_t, std::string> value;

 private:
  static std::string StatusText(const absl::Status& status);
};
using LogFields = std::initializer_list<LogField>;

bool LogEnabled(LogLevel level);
void Log(LogLevel level, std::string_view message, LogFields fields = {});

inline void LogDebug(std::string_view message, LogFields fields = {}) {
  if (LogEnabled(LogLevel::kDebug)) Log(LogLevel::kDebug, message, fields);
}
inline void LogInfo(std::string_view message, LogFields fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarning(std::string_view message, LogFields fields = {}) {
  Log(LogLevel::kWarning, message, fields);
}
inline void LogError(std::string_view message, LogFields fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// The line without its time and level, for tests: text or the JSON members.
std::string FormatLogForTest(bool json, std::string_view message, LogFields fields);

}  // namespace weir
