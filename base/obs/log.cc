// SPDX-License-Identifier: Apache-2.0
#include "base/obs/log.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <mutex>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/obs/json_text.h"

namespace weir {
namespace {

struct Sink {
  std::shared_ptr<spdlog::logger> logger;
  bool json = false;
};

std::atomic<int> g_level{static_cast<int>(LogLevel::kInfo)};
std::mutex g_sink_mu;  // a leaf; held to copy the pointer only

std::shared_ptr<Sink> MakeSink(spdlog::sink_ptr sink, bool json) {
  auto made = std::make_shared<Sink>();
  made->logger = std::make_shared<spdlog::logger>("weir", std::move(sink));
  made->json = json;
  // The JSON line carries level and time as members of its own.
  made->logger->set_pattern(json ? "{\"time\":\"%Y-%m-%dT%H:%M:%S.%e%z\",\"level\":\"%l\",%v}"
                                 : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  made->logger->set_level(spdlog::level::trace);
  made->logger->flush_on(spdlog::level::info);
  made->logger->set_error_handler([](const std::string&) {});
  return made;
}

std::shared_ptr<Sink>& SinkSlot() {
  // Never destroyed: threads may log until the very end.
  static auto& slot = *new std::shared_ptr<Sink>(
      MakeSink(std::make_shared<spdlog::sinks::stderr_sink_mt>(), false));
  return slot;
}

std::shared_ptr<Sink> CurrentSink() {
  std::lock_guard lock(g_sink_mu);
  return SinkSlot();
}

std::string ValueText(const LogField& field, bool json) {
  return std::visit(
      [&](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          return value ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double>) {
          if (!std::isfinite(value)) return json ? "null" : "nan";
          char text[32];
          std::snprintf(text, sizeof(text), "%.6g", value);
          return text;
        } else if constexpr (std::is_integral_v<T>) {
          return std::to_string(value);
        } else {
          std::string_view text = value;
          const bool plain = !json && !text.empty() &&
                             text.find_first_of(" =\"\\\n\r\t") == std::string_view::npos;
          return plain ? std::string(text) : JsonString(text);
        }
      },
      field.value);
}

std::string Format(bool json, std::string_view message, LogFields fields) {
  std::string line;
  if (json) {
    line = "\"message\":" + JsonString(message);
    for (const LogField& field : fields) {
      line += "," + JsonString(field.key) + ":" + ValueText(field, true);
    }
    return line;
  }
  line = message;
  for (const LogField& field : fields) {
    line.append(" ").append(field.key).append("=").append(ValueText(field, false));
  }
  // One event is one line, whatever a message carries.
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

}  // namespace

std::string LogField::StatusText(const absl::Status& status) {
  const std::string_view name = InfoOf(ReasonOf(status)).name;
  return std::string(name) + ": " + std::string(status.message());
}

absl::Status InitLog(const LogOptions& options) {
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
  } catch (const std::exception& e) {
    return Error(Reason::kBadField, "cannot log to " + options.file + ": " + e.what(), "log.file");
  }
  g_level.store(static_cast<int>(options.level));
  auto made = MakeSink(std::move(sink), options.json);
  std::lock_guard lock(g_sink_mu);
  SinkSlot() = std::move(made);
  return absl::OkStatus();
}

absl::StatusOr<LogLevel> ParseLogLevel(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (name == kNames[i]) return static_cast<LogLevel>(i);
  }
  return Error(Reason::kBadField,
               "log level \"" + std::string(name) + "\" is not debug, info, warning or error",
               "log.level");
}

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed);
}

void Log(LogLevel level, std::string_view message, LogFields fields) {
  if (!LogEnabled(level)) return;
  constexpr std::array<spdlog::level::level_enum, 4> kLevels = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};
  const auto sink = CurrentSink();
  const std::string line = Format(sink->json, message, fields);
  sink->logger->log(kLevels[static_cast<size_t>(level)], spdlog::string_view_t(line.data(), line.size()));
}

std::string FormatLogForTest(bool json, std::string_view message, LogFields fields) {
  return Format(json, message, fields);
}

}  // namespace weir
