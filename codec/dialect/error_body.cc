// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/error_body.h"

#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

constexpr uint64_t kRetryAfterMs = 1000;

// The `code` of OpenAI bodies, which client libraries switch on.
std::string_view CodeOf(Reason reason, std::string_view param) {
  switch (reason) {
    case Reason::kTooLong:
      return "context_length_exceeded";
    case Reason::kNoKey:
      return "invalid_api_key";
    case Reason::kUnknownModel:
      return param.empty() ? "not_found" : "model_not_found";
    case Reason::kTenantRate:
      return "rate_limit_exceeded";
    case Reason::kDeadline:
      return "timeout";
    default:
      return InfoOf(reason).openai_type;
  }
}

void AppendOpenAi(const absl::Status& status, std::string_view request_id, std::string* out) {
  const Reason reason = ReasonOf(status);
  *out += R"({"error":{"message":)";
  AppendJsonString(ClientMessageOf(status, request_id), out);
  *out += R"(,"type":)";
  AppendJsonString(InfoOf(reason).openai_type, out);
  *out += R"(,"param":)";
  const std::string param = ParamOf(status);
  if (param.empty()) {
    *out += "null";
  } else {
    AppendJsonString(param, out);
  }
  *out += R"(,"code":)";
  AppendJsonString(CodeOf(reason, param), out);
  *out += "}}";
}

void AppendAnthropic(const absl::Status& status, std::string_view request_id, std::string* out) {
  *out += R"({"type":"error","error":{"type":)";
  AppendJsonString(InfoOf(ReasonOf(status)).anthropic_type, out);
  *out += R"(,"message":)";
  AppendJsonString(ClientMessageOf(status, request_id), out);
  *out += R"(},"request_id":)";
  AppendJsonString(request_id, out);
  *out += "}";
}

}  // namespace

std::string ClientMessageOf(const absl::Status& status, std::string_view request_id) {
  const Reason reason = ReasonOf(status);
  if (reason != Reason::kBug && reason != Reason::kCorrupt) {
    return std::string(StdView(status.message()));
  }
  std::string message = "an internal error occurred";
  if (!request_id.empty()) message += "; report it with request id " + std::string(request_id);
  return message;
}

void AppendErrorBody(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                     std::string* out) {
  if (shape == ErrorShape::kOpenAi) {
    AppendOpenAi(status, request_id, out);
  } else {
    AppendAnthropic(status, request_id, out);
  }
}

void AppendErrorEvent(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                      std::string* out) {
  if (shape == ErrorShape::kAnthropic) *out += "event: error\n";
  *out += "data: ";
  AppendErrorBody(status, shape, request_id, out);
  *out += "\n\n";
}

ErrorReply MakeErrorReply(const absl::Status& status, ErrorShape shape, std::string_view request_id,
                          std::optional<uint64_t> retry_after_ms) {
  const ReasonInfo& info = InfoOf(ReasonOf(status));
  ErrorReply reply;
  // Anthropic's clients know being overloaded by a status of its own.
  constexpr int kOverloaded = 529;
  const bool overloaded = info.http == 503 && info.anthropic_type == "overloaded_error";
  reply.http = shape == ErrorShape::kAnthropic && overloaded ? kOverloaded : info.http;
  reply.headers.emplace_back("content-type", "application/json");
  if (info.retry_by_client) {
    // Both notations, since some clients understand only one of them.
    const uint64_t ms = retry_after_ms.value_or(kRetryAfterMs);
    reply.headers.emplace_back("retry-after", std::to_string((ms + 999) / 1000));
    reply.headers.emplace_back("retry-after-ms", std::to_string(ms));
  }
  AppendErrorBody(status, shape, request_id, &reply.body);
  return reply;
}

}  // namespace weir::codec
