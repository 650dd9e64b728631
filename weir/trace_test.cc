// SPDX-License-Identifier: Apache-2.0
//
// The spans of a request through every role, composed as `weir serve` does, at a collector on a real
// port: their shape, their links and who made them.
#include <gtest/gtest.h>

#include <map>

#include "base/net/http_client.h"
#include "base/net/mem_channel.h"
#include "base/obs/span_collector_for_test.h"
#include "base/runtime/clock.h"
#include "engine/model/load_model.h"
#include "router/router_service.h"
#include "weir/engine_role.h"
#include "weir/settings.h"

namespace weir {
namespace {

using Json = nlohmann::json;
constexpr Duration kLimit = std::chrono::seconds(20);
constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kClientSpan[] = "b7ad6b7169203331";

class Roles {
 public:
  explicit Roles(const std::string& collector) {
    v1::TraceConfig trace;
    trace.set_otlp_endpoint(collector);
    spans_ = *MakeSpanSink(trace, &metrics_);
    model_ = *engine::LoadModel("deploy/models/hash", {});
    arenas_ = *MakeKvArenas(model_->info().layout, 64, 32, /*shared=*/false);
    router::RouterServiceOptions options;
    options.config.set_http_address("127.0.0.1:0");
    options.model = *router::LoadServedModel({.directory = "deploy/models/hash"});
    options.make_channel = Hub();
    options.listen_address = "mem:router";
    options.instance = InstanceId(DrawId());
    options.metrics = &metrics_;
    options.watch = &watch_;
    options.spans = spans_.get();
    router_ = *router::RouterService::Create(std::move(options));
    prefill_ = Engine(Role::kPrefill, "");
    decode_ = Engine(Role::kDecode, "mem:decode");
    router_->Start();
    decode_->Start();
    prefill_->Start();
    for (const Instant end = Now() + kLimit; !router_->ready() && Now() < end;) {
      std::this_thread::yield();
    }
  }
  // What is queued is sent on the way out.
  ~Roles() {
    router_->Stop();
    prefill_->Stop();
    decode_->Stop();
  }

  HttpAnswer Post(const std::string& body, HttpHeaders headers) {
    HttpCall call;
    call.method = "POST";
    call.url = "http://127.0.0.1:" + std::to_string(router_->http_port()) + "/v1/completions";
    call.body = body;
    call.headers = std::move(headers);
    const auto answer = HttpFetch(call);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? *answer : HttpAnswer{};
  }

 private:
  ChannelFactory Hub() {
    return [this](Channel::Options channel, Channel::Handler* handler) {
      return hub_.Create(std::move(channel), handler);
    };
  }
  std::unique_ptr<engine::EngineService> Engine(Role role, const char* name) {
    EngineRoleOptions options;
    options.role = role;
    options.config.set_peer_address(name);
    options.config.add_routers("mem:router");
    options.config.set_chunk_rows(8);
    options.config.set_queue_max(16);
    options.config.set_lease_ms(30000);
    options.config.set_retain_max(4);
    options.model_name = "hash";
    options.model = model_;
    options.arenas = arenas_.get();
    options.share = role == Role::kPrefill ? 0 : 1;
    options.shares = 2;
    options.arena = 1;
    options.sizes = {.slots = 8, .states = 16, .pages = 32};
    options.transfers = false;
    options.make_channel = Hub();
    options.spans = spans_.get();
    return *MakeEngine(std::move(options));
  }

  Metrics metrics_;
  ProgressWatch watch_;
  std::unique_ptr<SpanSink> spans_;
  MemHub hub_;
  std::shared_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<KvArenas> arenas_;
  std::unique_ptr<router::RouterService> router_;
  std::unique_ptr<engine::EngineService> prefill_;
  std::unique_ptr<engine::EngineService> decode_;
};

int64_t Nanos(const Json& span, const char* key) {
  return std::stoll(span.at(key).get<std::string>());
}

int64_t Number(const Json& span, std::string_view key) {
  for (const Json& attribute : span.at("attributes")) {
    if (attribute.at("key") == key) return std::stoll(attribute.at("value").at("intValue").get<std::string>());
  }
  return -1;
}

std::string ServiceOf(const Json& span) {
  for (const Json& attribute : span.at("resource")) {
    if (attribute.at("key") == "service.name") return attribute.at("value").at("stringValue");
  }
  return {};
}

TEST(Trace, SpansOfARequestLinkThroughAllRoles) {
  SpanCollector collector;
  {
    Roles roles(collector.url());
    const std::string traceparent = std::string("00-") + kTrace + "-" + kClientSpan + "-01";
    EXPECT_EQ(roles.Post(R"({"prompt":[5,6,7,8],"max_tokens":9,"temperature":0})",
                         {{"traceparent", traceparent}, {"x-request-id", "mine"}})
                  .status,
              200);
  }
  const std::vector<Json> spans = collector.WaitSpans(6);
  ASSERT_EQ(spans.size(), 6u);
  std::map<std::string, Json> by_name;
  for (const Json& span : spans) {
    EXPECT_EQ(span.at("traceId"), kTrace);
    EXPECT_EQ(span.at("status"), Json::object()) << span;
    by_name[span.at("name")] = span;
  }
  const auto check = [&](const char* name, const char* service, int kind, const Json& parent) {
    ASSERT_TRUE(by_name.contains(name)) << name;
    const Json& span = by_name[name];
    EXPECT_EQ(ServiceOf(span), service) << name;
    EXPECT_EQ(span.at("kind"), kind) << name;
    EXPECT_LE(Nanos(span, "startTimeUnixNano"), Nanos(span, "endTimeUnixNano")) << name;
    if (parent.is_string()) {
      EXPECT_EQ(span.at("parentSpanId"), parent) << name;
      return;
    }
    EXPECT_EQ(span.at("parentSpanId"), parent.at("spanId")) << name;
    EXPECT_GE(Nanos(span, "startTimeUnixNano"), Nanos(parent, "startTimeUnixNano")) << name;
    EXPECT_LE(Nanos(span, "endTimeUnixNano"), Nanos(parent, "endTimeUnixNano")) << name;
  };
  check("POST /v1/completions", "weir-router", 2, kClientSpan);
  const Json root = by_name["POST /v1/completions"];
  check("prefill attempt", "weir-router", 3, root);
  check("decode attempt", "weir-router", 3, root);
  check("prefill", "weir-prefill", 1, by_name["prefill attempt"]);
  check("hand-over", "weir-decode", 1, by_name["decode attempt"]);
  check("decode", "weir-decode", 1, by_name["decode attempt"]);
  EXPECT_EQ(Number(root, "weir.prompt_tokens"), 4);
  EXPECT_EQ(Number(root, "weir.answer_tokens"), 9);
  EXPECT_EQ(root.at("events")[0].at("name"), "first token");
  EXPECT_NE(root.dump().find("\"mine\""), std::string::npos);
  EXPECT_EQ(Number(by_name["prefill"], "weir.rows"), 4);
  EXPECT_EQ(Number(by_name["decode"], "weir.tokens"), 9);
  EXPECT_EQ(Number(by_name["decode attempt"], "weir.attempt"), 1);
}

TEST(Trace, EachChoiceHasSpansAndUnsampledRequestsHaveNone) {
  SpanCollector collector;
  {
    Roles roles(collector.url());
    const std::string unsampled = std::string("00-") + kTrace + "-" + kClientSpan + "-00";
    EXPECT_EQ(roles.Post(R"({"prompt":[5],"max_tokens":2})", {{"traceparent", unsampled}}).status,
              200);
    EXPECT_EQ(roles.Post(R"({"prompt":[5],"max_tokens":2,"n":2})", {}).status, 200);
    EXPECT_EQ(roles.Post(R"({"prompt":[5],"max_tokens":-2})", {}).status, 400);
  }
  const std::vector<Json> spans = collector.WaitSpans(12);
  ASSERT_EQ(spans.size(), 12u);
  std::map<std::string, int> names;
  std::map<std::string, int> ids;
  int errors = 0;
  for (const Json& span : spans) {
    EXPECT_NE(span.at("traceId"), kTrace);
    ++names[span.at("name")];
    ++ids[span.at("spanId")];
    errors += span.at("status").contains("code") ? 1 : 0;
    if (span.at("name") == "POST /v1/completions") EXPECT_FALSE(span.contains("parentSpanId"));
  }
  EXPECT_EQ(ids.size(), 12u);
  EXPECT_EQ(names["POST /v1/completions"], 2);
  EXPECT_EQ(names["decode"], 2);
  EXPECT_EQ(names["prefill attempt"], 2);
  EXPECT_EQ(errors, 1);
}

}  // namespace
}  // namespace weir
