// SPDX-License-Identifier: Apache-2.0
#include "base/obs/otlp_exporter.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/time/time.h"
#include "base/net/http_client.h"
#include "base/obs/json_text.h"
#include "base/obs/log.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

constexpr std::string_view kPath = "/v1/traces";
// Small disagreements of the clocks are left alone, so that the spans of one request fit together.
constexpr int64_t kOffsetStepNs = 10'000'000;

std::string EndpointUrl(std::string_view endpoint) {
  while (!endpoint.empty() && endpoint.back() == '/') endpoint.remove_suffix(1);
  std::string url(endpoint);
  const bool whole = endpoint.size() >= kPath.size() &&
                     endpoint.substr(endpoint.size() - kPath.size()) == kPath;
  if (!whole) url += kPath;
  return url;
}

void AppendHex(uint64_t value, std::string* out) {
  char text[20];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  out->append(text);
}

// 64-bit integers are strings in Protobuf's JSON.
void AppendNanos(std::string_view key, Instant at, int64_t offset_ns, std::string* out) {
  out->append(key).append("\"").append(std::to_string(at.time_since_epoch().count() + offset_ns));
  out->append("\"");
}

void AppendText(std::string_view key, std::string_view value, std::string* out) {
  out->append("{\"key\":").append(JsonString(key)).append(",\"value\":{\"stringValue\":");
  out->append(JsonString(value)).append("}}");
}

void AppendAttributes(const Span& span, std::string* out) {
  out->append(",\"attributes\":[");
  bool first = true;
  const auto comma = [&] {
    if (!std::exchange(first, false)) out->append(",");
  };
  for (const Span::Attribute& attribute : span.attributes) {
    if (attribute.key == nullptr) continue;
    comma();
    out->append("{\"key\":").append(JsonString(attribute.key)).append(",\"value\":{\"intValue\":\"");
    out->append(std::to_string(attribute.value)).append("\"}}");
  }
  if (!span.request_id.empty()) {
    comma();
    AppendText("weir.request_id", span.request_id, out);
  }
  if (span.reason != Reason::kOk) {
    comma();
    AppendText("weir.reason", InfoOf(span.reason).name, out);
  }
  out->append("]");
}

void AppendSpan(const Span& span, int64_t offset_ns, std::string* out) {
  out->append("{\"traceId\":\"");
  AppendHex(span.context.trace_hi, out);
  AppendHex(span.context.trace_lo, out);
  out->append("\",\"spanId\":\"");
  AppendHex(span.context.span, out);
  if (span.parent != 0) {
    out->append("\",\"parentSpanId\":\"");
    AppendHex(span.parent, out);
  }
  out->append("\",\"name\":").append(JsonString(span.name));
  out->append(",\"kind\":").append(std::to_string(static_cast<int>(span.kind)));
  AppendNanos(",\"startTimeUnixNano\":", span.begin, offset_ns, out);
  AppendNanos(",\"endTimeUnixNano\":", span.end, offset_ns, out);
  AppendAttributes(span, out);
  if (span.first_token != Instant{}) {
    AppendNanos(",\"events\":[{\"timeUnixNano\":", span.first_token, offset_ns, out);
    out->append(",\"name\":\"first token\"}]");
  }
  // A client that leaves is no error; unset is the status of what went as it should.
  const bool error = span.reason != Reason::kOk && span.reason != Reason::kCancelled;
  out->append(error ? ",\"status\":{\"code\":2}}" : ",\"status\":{}}");
}

bool Retryable(int status) {
  return status == 429 || status == 502 || status == 503 || status == 504;
}

}  // namespace

void AppendOtlpJson(std::span<const Span> spans, int64_t wall_offset_ns, const std::string& version,
                    std::string* out) {
  std::vector<const Span*> order;
  order.reserve(spans.size());
  for (const Span& span : spans) order.push_back(&span);
  const auto whose = [](const Span& s) { return std::pair(std::string_view(s.service), s.instance); };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Span* a, const Span* b) { return whose(*a) < whose(*b); });
  out->append("{\"resourceSpans\":[");
  for (size_t i = 0; i < order.size(); ++i) {
    const Span& span = *order[i];
    if (i == 0 || whose(*order[i - 1]) != whose(span)) {
      out->append(i == 0 ? "" : "]}]},").append("{\"resource\":{\"attributes\":[");
      AppendText("service.namespace", "weir", out);
      AppendText("service.name", "weir-" + std::string(span.service), &out->append(","));
      AppendText("service.version", version, &out->append(","));
      std::string instance;
      AppendHex(span.instance, &instance);
      AppendText("service.instance.id", instance, &out->append(","));
      out->append("]},\"scopeSpans\":[{\"scope\":{\"name\":\"weir\"},\"spans\":[");
    } else {
      out->append(",");
    }
    AppendSpan(span, wall_offset_ns, out);
  }
  out->append(order.empty() ? "]}" : "]}]}]}");
}

absl::StatusOr<std::unique_ptr<OtlpExporter>> OtlpExporter::Create(Options options) {
  const std::string_view endpoint = options.endpoint;
  const size_t scheme = endpoint.find("://");
  const bool known = endpoint.substr(0, scheme) == "http" || endpoint.substr(0, scheme) == "https";
  if (scheme == std::string_view::npos || !known || endpoint.size() <= scheme + 3) {
    return Error(Reason::kBadField,
                 "trace.otlp_endpoint must be http(s)://host:port, not '" + options.endpoint + "'",
                 "trace.otlp_endpoint");
  }
  options.endpoint = EndpointUrl(endpoint);
  return std::unique_ptr<OtlpExporter>(new OtlpExporter(std::move(options)));
}

OtlpExporter::OtlpExporter(Options options)
    : options_(std::move(options)), queue_(options_.queue_max) {
  WEIR_CHECK(writer_.TryRun([this] { Write(); }));
}

OtlpExporter::~OtlpExporter() {
  queue_.Close();
  closing_.Notify();
  written_.WaitForNotificationWithTimeout(absl::Nanoseconds(options_.flush_limit.count()));
  cancel_ = true;
  writer_.Close();
}

void OtlpExporter::Record(Span span) {
  if (!queue_.TryPush(std::move(span))) dropped_.fetch_add(1, std::memory_order_relaxed);
}

void OtlpExporter::AddMetrics(Metrics* metrics) {
  const auto outcome = [metrics](const char* name) {
    return metrics->AddCounter("weir_trace_spans_total", "Spans by what became of them",
                               {{"outcome", name}});
  };
  metrics->OnScrape([this, sent = outcome("sent"), dropped = outcome("dropped"),
                     failed = outcome("failed")]() mutable {
    sent.MoveTo(static_cast<double>(this->sent()));
    dropped.MoveTo(static_cast<double>(this->dropped()));
    failed.MoveTo(static_cast<double>(this->failed()));
  });
}

void OtlpExporter::Write() {
  std::vector<Span> batch;
  while (Collect(&batch)) Send(batch);
  written_.Notify();
}

// Answers false once the queue is closed and empty.
bool OtlpExporter::Collect(std::vector<Span>* batch) {
  batch->clear();
  while (batch->empty()) {
    if (queue_.WaitSome(options_.batch_max, std::chrono::seconds(60), batch) > 0) break;
    // What was pushed between the wait and the close is still there.
    if (queue_.closed()) return queue_.PopSome(options_.batch_max, batch) > 0;
  }
  if (batch->size() < options_.batch_max) {
    closing_.WaitForNotificationWithTimeout(absl::Nanoseconds(options_.batch_wait.count()));
    queue_.PopSome(options_.batch_max - batch->size(), batch);
  }
  return true;
}

void OtlpExporter::Send(std::span<const Span> batch) {
  const int64_t offset = WallMicros() * 1000 - Now().time_since_epoch().count();
  if (std::abs(offset - wall_offset_ns_) > kOffsetStepNs) wall_offset_ns_ = offset;
  body_.clear();
  AppendOtlpJson(batch, wall_offset_ns_, options_.version, &body_);
  bool accepted = false;
  Duration pause = options_.backoff;
  for (int attempt = 1; Post(body_, &accepted) && attempt < options_.attempts_max; ++attempt) {
    if (cancel_) break;
    closing_.WaitForNotificationWithTimeout(absl::Nanoseconds(pause.count()));
    pause *= 2;
  }
  (accepted ? sent_ : failed_).fetch_add(batch.size(), std::memory_order_relaxed);
}

bool OtlpExporter::Post(const std::string& body, bool* accepted) {
  HttpCall call;
  call.method = "POST";
  call.url = options_.endpoint;
  call.headers = options_.headers;
  call.headers.push_back({"content-type", "application/json"});
  call.body = body;
  call.connect_timeout = std::min<Duration>(options_.post_limit, call.connect_timeout);
  call.idle_timeout = options_.post_limit;
  call.body_bytes_max = 64 * 1024;
  call.cancel = &cancel_;
  const absl::StatusOr<HttpAnswer> answer = HttpFetch(call);
  *accepted = answer.ok() && answer->status >= 200 && answer->status < 300;
  if (*accepted) {
    complained_ = false;
    return false;
  }
  // Once for a row of failures: a collector may be away for long.
  if (!std::exchange(complained_, true)) {
    Log(LogLevel::kWarn, "spans could not be sent",
        {{"endpoint", options_.endpoint},
         {"why", answer.ok() ? "HTTP status " + std::to_string(answer->status)
                             : std::string(answer.status().message())}});
  }
  return !answer.ok() || Retryable(answer->status);
}

}  // namespace weir
