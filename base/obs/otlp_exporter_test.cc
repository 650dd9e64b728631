// SPDX-License-Identifier: Apache-2.0
//
// The exporter against a collector of our own on a real port.
#include "base/obs/otlp_exporter.h"

#include <gtest/gtest.h>

#include <thread>

#include <nlohmann/json.hpp>

#include "base/obs/span_collector_for_test.h"
#include "base/runtime/clock.h"

namespace weir {
namespace {

using Json = nlohmann::json;
constexpr Duration kLimit = std::chrono::seconds(20);

OtlpExporter::Options Quick(const std::string& url) {
  OtlpExporter::Options options;
  options.endpoint = url;
  options.version = "1";
  options.batch_wait = Millis(5);
  options.backoff = Millis(1);
  return options;
}

Span Example(const char* name, const char* service = "router") {
  Span span;
  span.context = {1, 2, 3, true};
  span.parent = 4;
  span.name = name;
  span.service = service;
  span.instance = 9;
  span.begin = Instant(Millis(1000));
  span.end = Instant(Millis(2500));
  return span;
}

TEST(OtlpJson, HasTheShapeOfTheProtocol) {
  Span server = Example("POST /v1/completions");
  server.kind = SpanKind::kServer;
  server.parent = 0;
  server.first_token = Instant(Millis(2000));
  server.request_id = "a\"b";
  server.attributes[0] = {"weir.prompt_tokens", 12};
  Span failed = Example("decode", "decode");
  failed.reason = Reason::kPeerLost;
  const Span spans[] = {failed, server, Example("prefill")};
  std::string text;
  AppendOtlpJson(spans, 7'000'000'000, "1.2", &text);
  const Json body = Json::parse(text);
  const Json& resources = body.at("resourceSpans");
  ASSERT_EQ(resources.size(), 2u);
  EXPECT_EQ(resources[0].at("resource").at("attributes")[1],
            Json::parse(R"({"key":"service.name","value":{"stringValue":"weir-decode"}})"));
  EXPECT_EQ(resources[1].at("scopeSpans")[0].at("spans").size(), 2u);
  EXPECT_EQ(resources[1].at("scopeSpans")[0].at("spans")[0], Json::parse(R"({
    "traceId": "00000000000000010000000000000002", "spanId": "0000000000000003",
    "name": "POST /v1/completions", "kind": 2,
    "startTimeUnixNano": "8000000000", "endTimeUnixNano": "9500000000",
    "attributes": [{"key": "weir.prompt_tokens", "value": {"intValue": "12"}},
                   {"key": "weir.request_id", "value": {"stringValue": "a\"b"}}],
    "events": [{"timeUnixNano": "9000000000", "name": "first token"}], "status": {}})"));
  const Json& decode = resources[0].at("scopeSpans")[0].at("spans")[0];
  EXPECT_EQ(decode.at("parentSpanId"), "0000000000000004");
  EXPECT_EQ(decode.at("status").at("code"), 2);
  EXPECT_EQ(decode.at("attributes")[0].at("value").at("stringValue"), "peer_lost");
  text.clear();
  AppendOtlpJson({}, 0, "1", &text);
  EXPECT_EQ(Json::parse(text).at("resourceSpans").size(), 0u);
}

TEST(OtlpExporter, SendsBatchesAndFlushesOnTheWayOut) {
  SpanCollector collector;
  auto options = Quick(collector.url() + "/");
  options.batch_wait = std::chrono::seconds(60);  // only the end sends
  options.headers = {{"x-key", "secret"}};
  {
    auto exporter = OtlpExporter::Create(options);
    ASSERT_TRUE(exporter.ok()) << exporter.status();
    for (int i = 0; i < 3; ++i) (*exporter)->Record(Example("prefill"));
  }
  EXPECT_EQ(collector.WaitSpans(3).size(), 3u);
  for (const HttpRequest& request : collector.requests()) {
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.path(), "/v1/traces");
    EXPECT_EQ(*FindHeader(request.headers, "content-type"), "application/json");
    EXPECT_EQ(*FindHeader(request.headers, "x-key"), "secret");
  }
  const int64_t begin = std::stoll(collector.WaitSpans(3)[0].at("startTimeUnixNano").get<std::string>());
  const int64_t at = WallMicros() * 1000 - (Now() - Instant(Millis(1000))).count();
  EXPECT_NEAR(static_cast<double>(begin - at), 0, 1e9);
}

TEST(OtlpExporter, TriesAgainWhereThatMayHelp) {
  SpanCollector collector(/*refusals=*/2, 503);
  auto exporter = *OtlpExporter::Create(Quick(collector.url()));
  exporter->Record(Example("prefill"));
  EXPECT_EQ(collector.WaitSpans(1).size(), 1u);
  EXPECT_EQ(collector.posts(), 3);
  exporter.reset();
}

TEST(OtlpExporter, GivesUpAndCounts) {
  SpanCollector collector(/*refusals=*/1, 400);  // nothing to try again
  auto exporter = *OtlpExporter::Create(Quick(collector.url()));
  Metrics metrics;
  exporter->AddMetrics(&metrics);
  exporter->Record(Example("lost"));
  for (const Instant end = Now() + kLimit; exporter->failed() == 0 && Now() < end;) {
    std::this_thread::yield();
  }
  EXPECT_EQ(exporter->failed(), 1u);
  exporter->Record(Example("kept"));
  ASSERT_EQ(collector.WaitSpans(1).size(), 1u);
  EXPECT_EQ(collector.WaitSpans(1)[0].at("name"), "kept");
  EXPECT_EQ(collector.posts(), 2);
  EXPECT_NE(metrics.Text().find("weir_trace_spans_total{outcome=\"failed\"} 1"), std::string::npos);
}

TEST(OtlpExporter, AFullQueueDropsAndADeadCollectorDoesNotHoldTheEndUp) {
  auto options = Quick("http://127.0.0.1:1");  // nobody listens
  options.queue_max = 4;
  options.batch_max = 1;
  options.attempts_max = 1000;
  options.backoff = Millis(50);
  options.flush_limit = Millis(100);
  const Instant begin = Now();
  {
    auto exporter = *OtlpExporter::Create(options);
    for (int i = 0; i < 20; ++i) exporter->Record(Example("x"));
    EXPECT_GE(exporter->dropped(), 15u);
  }
  EXPECT_LT(Now() - begin, kLimit);
}

TEST(OtlpExporter, BadEndpointsAreNamed) {
  for (const char* bad : {"collector:4318", "ftp://x", "http://"}) {
    EXPECT_EQ(ParamOf(OtlpExporter::Create(Quick(bad)).status()), "trace.otlp_endpoint") << bad;
  }
}

}  // namespace
}  // namespace weir
