// SPDX-License-Identifier: Apache-2.0
#include "base/obs/log.h"

#include <atomic>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "absl/strings/str_cat.h"
#include "base/obs/json_text.h"
#include "base/stdx/bytes.h"

namespace weir {
namespace {

constexpr size_t kFieldBytesMax = 1024;

std::atomic<bool> g_json{false};

spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger("weir", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %L %v");
    return made;  // never destroyed: threads may log during exit
  }();
  return *logger;
}

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarn: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

bool NeedsQuotes(std::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ' || c == '"' || c == '=' || byte < 0x20 || byte >= 0x7f) return true;
  }
  return false;
}

}  // namespace

LogField::LogField(std::string_view k, const absl::Status& status)
    : key(k),
      value(status.ok() ? std::string("ok")
                        : absl::StrCat(AbslView(InfoOf(ReasonOf(status)).name), ": ",
                                       AbslView(Bounded(StdView(status.message()))))) {}

std::string LogField::Bounded(std::string_view text) {
  if (text.size() <= kFieldBytesMax) return std::string(text);
  size_t end = kFieldBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not in a character
  return std::string(text.substr(0, end)) + "... (" + std::to_string(text.size()) + " bytes)";
}

absl::Status ConfigureLog(std::string_view level, std::string_view format) {
  spdlog::level::level_enum chosen = spdlog::level::info;
  if (level == "debug") {
    chosen = spdlog::level::debug;
  } else if (level == "warn") {
    chosen = spdlog::level::warn;
  } else if (level == "error") {
    chosen = spdlog::level::err;
  } else if (!level.empty() && level != "info") {
    return Error(Reason::kBadField, "log.level must be debug, info, warn or error", "log.level");
  }
  if (!format.empty() && format != "text" && format != "json") {
    return Error(Reason::kBadField, "log.format must be text or json", "log.format");
  }
  const bool json = format == "json";
  g_json.store(json, std::memory_order_relaxed);
  Logger().set_level(chosen);
  Logger().set_pattern(json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}"
                            : "%Y-%m-%dT%H:%M:%S.%e%z %L %v");
  return absl::OkStatus();
}

bool LogEnabled(LogLevel level) { return Logger().should_log(LevelOf(level)); }

void Log(LogLevel level, std::string_view message, std::initializer_list<LogField> fields) {
  if (!LogEnabled(level)) return;
  const bool json = g_json.load(std::memory_order_relaxed);
  std::string line;
  if (json) {
    line = "\"message\":";
    line += JsonString(message);
  } else {
    line = std::string(message);
  }
  for (const LogField& field : fields) {
    if (json) {
      line += ',';
      line += JsonString(field.key);
      line += ':';
    } else {
      line += ' ';
      line += field.key;
      line += '=';
    }
    if (json ? !field.number : NeedsQuotes(field.value)) {
      line += JsonString(field.value);
    } else {
      line += field.value;
    }
  }
  Logger().log(LevelOf(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace weir
