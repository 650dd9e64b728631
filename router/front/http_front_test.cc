// SPDX-License-Identifier: Apache-2.0
//
// The public API over a backend played by the test: what clients send and what they read.
#include "router/front/http_front.h"

#include <gtest/gtest.h>

#include <deque>
#include <future>

#include <nlohmann/json.hpp>

#include "codec/token/tokenizer.h"
#include "proto/front.pb.h"
#include "router/front/memory_responder.h"
#include "router/front/native_response.h"

namespace weir::router {
namespace {

using Json = nlohmann::json;

class Backend final : public FrontBackend {
 public:
  void Ask(Submit submit) override { asked.push_back(std::move(submit)); }
  void Leave(Withdraw withdraw) override { left.push_back(withdraw); }
  const FleetCore& fleet() const override { return fleet_; }

  std::vector<Submit> asked;
  std::vector<Withdraw> left;

 private:
  FleetCore fleet_;
};

class HttpFrontTest : public ::testing::Test {
 protected:
  HttpFrontTest() : loop_({.name = "test"}) { Open({}); }

  void Open(std::vector<std::string> keys, Pool* pool = nullptr, size_t pooled_bytes_max = 0) {
    HttpFront::Options options;
    options.model.name = "toy";
    options.model.created = 1700000000;
    options.model.positions_max = 4096;
    options.model.renderer = renderer_;
    options.model.stop_tokens = {1};
    options.api_keys = std::move(keys);
    options.pool = pool;
    options.pooled_bytes_max = pooled_bytes_max;
    options.backend = &backend_;
    front_ = std::make_unique<HttpFront>(std::move(options));
  }

  std::shared_ptr<MemoryResponder> Send(std::string method, std::string target, std::string body,
                                        HttpHeaders headers = {}) {
    HttpRequest request;
    request.method = std::move(method);
    request.target = std::move(target);
    request.body = std::move(body);
    request.headers = std::move(headers);
    request.id = "req-1";
    auto responder = std::make_shared<MemoryResponder>(&loop_);
    front_->Handle(std::move(request), responder);
    return responder;
  }
  std::shared_ptr<MemoryResponder> Complete(const std::string& fields) {
    return Send("POST", "/v1/completions", R"({"model":"toy","prompt":[5,6,7])" + fields + "}");
  }
  void Deliver(size_t request, uint32_t first, std::vector<TokenId> ids) {
    RouterActions::Deliver delivery;
    delivery.request = backend_.asked.at(request).request;
    delivery.first = first;
    delivery.ids = std::move(ids);
    front_->OnDeliver(delivery);
  }
  void Close(size_t request, pb::FinishReason finish, absl::Status status = absl::OkStatus()) {
    RouterActions::Close close;
    close.request = backend_.asked.at(request).request;
    close.finish = finish;
    close.status = std::move(status);
    front_->OnClose(close);
  }

  std::shared_ptr<const codec::Renderer> renderer_ =
      codec::Renderer::WithoutChat(codec::Tokenizer::IdsOnly(1000, 0, 1), 1000);
  Loop loop_;
  Backend backend_;
  std::unique_ptr<HttpFront> front_;
};

// The data lines of a stream, [DONE] included.
std::vector<std::string> EventsOf(const std::string& body) {
  std::vector<std::string> events;
  size_t at = 0;
  while ((at = body.find("data: ", at)) != std::string::npos) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

std::string TextOf(const std::string& body) {
  std::string text;
  for (const std::string& event : EventsOf(body)) {
    if (event == "[DONE]") continue;
    const Json chunk = Json::parse(event);
    for (const Json& choice : chunk.at("choices")) {
      text += choice.value("text", "");
    }
  }
  return text;
}

TEST_F(HttpFrontTest, WholeAnswerComesAsOneBody) {
  const auto client = Complete(R"(,"max_tokens":3,"temperature":0,"seed":11)");
  ASSERT_EQ(backend_.asked.size(), 1u);
  const Submit& submit = backend_.asked[0];
  EXPECT_EQ(submit.prompt, (std::vector<TokenId>{5, 6, 7}));
  EXPECT_EQ(submit.new_tokens_max, 3u);
  EXPECT_EQ(submit.sampling.seed(), 11u);
  EXPECT_EQ(submit.sampling.stop_tokens(0), 1);
  Deliver(0, 0, {20, 21});
  EXPECT_FALSE(client->ended());
  Deliver(0, 2, {22});
  Close(0, pb::FINISH_REASON_LENGTH);
  ASSERT_TRUE(client->ended());
  EXPECT_EQ(client->status(), 200);
  const Json body = Json::parse(client->body());
  EXPECT_EQ(body.at("choices")[0].at("finish_reason"), "length");
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 3);
  EXPECT_EQ(body.at("choices")[0].at("text"), " 20 21 22");
  EXPECT_EQ(front_->answers(), 0u);
  EXPECT_EQ(front_->choices(), 0u);
}

TEST_F(HttpFrontTest, StreamEndsWithItsFinishAndDone) {
  const auto client = Complete(R"(,"stream":true)");
  EXPECT_EQ(backend_.asked[0].new_tokens_max, 0u);
  EXPECT_EQ(client->status(), 0);
  Deliver(0, 0, {20});
  EXPECT_EQ(client->status(), 200);
  Deliver(0, 1, {21});
  Close(0, pb::FINISH_REASON_STOP);
  ASSERT_TRUE(client->ended());
  EXPECT_EQ(TextOf(client->body()), " 20 21") << client->body();
  EXPECT_EQ(EventsOf(client->body()).back(), "[DONE]");
}

TEST_F(HttpFrontTest, FailureBeforeTheFirstByteIsAnHttpError) {
  const auto client = Complete(R"(,"stream":true)");
  Close(0, pb::FINISH_REASON_FAILED, Error(Reason::kNoCapacity, "no engine"));
  EXPECT_EQ(client->status(), 503);
  EXPECT_NE(FindHeader(client->headers(), "retry-after"), nullptr);
  EXPECT_NE(FindHeader(client->headers(), "retry-after-ms"), nullptr);
  EXPECT_EQ(Json::parse(client->body()).at("error").at("type"), "overloaded_error");
}

TEST_F(HttpFrontTest, FailureAfterItIsAnEventAndTheEnd) {
  const auto client = Complete(R"(,"stream":true)");
  Deliver(0, 0, {20});
  Close(0, pb::FINISH_REASON_FAILED, Error(Reason::kPeerLost, "engine lost"));
  EXPECT_TRUE(client->ended());
  const auto events = EventsOf(client->body());
  EXPECT_EQ(Json::parse(events.back()).at("error").at("message"), "engine lost");
}

TEST_F(HttpFrontTest, ClientThatLeavesIsWithdrawnStreamingOrNot) {
  for (const char* fields : {R"(,"stream":true)", "", R"(,"n":2)"}) {
    const auto client = Complete(fields);
    const size_t before = backend_.left.size();
    client->Leave();
    EXPECT_GT(backend_.left.size(), before);
    for (const Withdraw& withdraw : backend_.left) EXPECT_FALSE(withdraw.satisfied);
    EXPECT_EQ(front_->choices(), 0u);
  }
  // What was under way is ignored.
  Deliver(0, 0, {20});
  Close(0, pb::FINISH_REASON_STOP);
}

TEST_F(HttpFrontTest, SlowClientGetsEverythingOnceItReads) {
  const auto client = Complete(R"(,"stream":true)");
  client->Stall();
  Deliver(0, 0, {20});
  const uint64_t written = client->bytes();
  Deliver(0, 1, {21});
  Deliver(0, 2, {22, 23});
  Close(0, pb::FINISH_REASON_STOP);
  EXPECT_EQ(client->bytes(), written);
  EXPECT_FALSE(client->ended());
  client->Unstall();
  EXPECT_TRUE(client->ended());
  EXPECT_EQ(TextOf(client->body()), " 20 21 22 23");
}

TEST_F(HttpFrontTest, StopStringEndsTheAnswerAndTheSequence) {
  const auto client = Complete(R"(,"stop":["21"])");
  Deliver(0, 0, {20});
  Deliver(0, 1, {21, 22});
  ASSERT_EQ(backend_.left.size(), 1u);
  EXPECT_TRUE(backend_.left[0].satisfied);
  ASSERT_TRUE(client->ended());
  const Json choice = Json::parse(client->body()).at("choices")[0];
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("text"), " 20 ");
}

TEST_F(HttpFrontTest, SeveralChoicesAreRequestsWithSeedsOfTheirOwn) {
  const auto client = Complete(R"(,"n":3,"seed":5)");
  ASSERT_EQ(backend_.asked.size(), 3u);
  EXPECT_EQ(backend_.asked[0].sampling.seed(), 5u);
  EXPECT_NE(backend_.asked[1].sampling.seed(), backend_.asked[2].sampling.seed());
  EXPECT_EQ(backend_.asked[2].prompt, backend_.asked[0].prompt);
  for (size_t i : {2u, 0u, 1u}) {
    Deliver(i, 0, {static_cast<TokenId>(20 + i)});
    EXPECT_FALSE(client->ended());
    Close(i, pb::FINISH_REASON_STOP);
  }
  ASSERT_TRUE(client->ended());
  const Json body = Json::parse(client->body());
  ASSERT_EQ(body.at("choices").size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(body.at("choices")[i].at("index"), i);
    EXPECT_EQ(body.at("choices")[i].at("text"), " " + std::to_string(20 + i));
  }
}

TEST_F(HttpFrontTest, OneFailedChoiceWithdrawsTheOthers) {
  const auto client = Complete(R"(,"n":3)");
  Close(1, pb::FINISH_REASON_FAILED, Error(Reason::kDeadline, "too late"));
  EXPECT_EQ(client->status(), 504);
  EXPECT_EQ(backend_.left.size(), 2u);
  EXPECT_EQ(front_->choices(), 0u);
}

TEST_F(HttpFrontTest, BadRequestsNameWhatIsWrong) {
  const struct {
    const char* target;
    const char* body;
    int status;
    const char* param;
  } cases[] = {
      {"/v1/completions", R"({"prompt":[1],"model":"other"})", 404, "model"},
      {"/v1/completions", R"({"prompt":[1],"max_tokens":-1})", 400, "max_tokens"},
      {"/v1/completions", R"({"prompt":[1],"temperature":9})", 400, "temperature"},
      {"/v1/completions", R"({"prompt":[5000]})", 400, "prompt[0]"},
      {"/v1/chat/completions", R"({"messages":[]})", 400, "messages"},
  };
  for (const auto& c : cases) {
    const auto client = Send("POST", c.target, c.body);
    EXPECT_EQ(client->status(), c.status) << c.body;
    const Json error = Json::parse(client->body()).at("error");
    EXPECT_EQ(error.at("param"), c.param) << c.body;
  }
  EXPECT_EQ(Send("POST", "/v1/completions", "{")->status(), 400);
  EXPECT_TRUE(backend_.asked.empty());
  EXPECT_EQ(front_->counters().rejected, 6u);
  EXPECT_EQ(front_->answers(), 0u);
}

TEST_F(HttpFrontTest, RoutesAndTheirAliases) {
  EXPECT_EQ(Send("GET", "/nowhere", "")->status(), 404);
  EXPECT_EQ(Send("GET", "/v1", "")->status(), 404);
  const auto wrong_method = Send("GET", "/v1/chat/completions", "");
  EXPECT_EQ(wrong_method->status(), 405);
  EXPECT_EQ(*FindHeader(wrong_method->headers(), "allow"), "POST");
  for (const char* path : {"/v1/models", "/models", "/v1/models?x=1"}) {
    const auto client = Send("GET", path, "");
    EXPECT_EQ(client->status(), 200) << path;
    EXPECT_EQ(Json::parse(client->body()).at("data")[0].at("id"), "toy");
  }
  EXPECT_EQ(Json::parse(Send("GET", "/v1/models/toy", "")->body()).at("id"), "toy");
  EXPECT_EQ(Send("GET", "/v1/models/none", "")->status(), 404);
  EXPECT_EQ(Send("POST", "/beta/completions", R"({"prompt":[1]})")->status(), 0);
  EXPECT_EQ(Send("POST", "/completions", R"({"prompt":[1]})")->status(), 0);
  EXPECT_EQ(backend_.asked.size(), 2u);
}

TEST_F(HttpFrontTest, KeysAreCheckedWhereThereAreAny) {
  Open({"secret", "other"});
  const std::string body = R"({"prompt":[1]})";
  EXPECT_EQ(Send("POST", "/v1/completions", body)->status(), 401);
  EXPECT_EQ(Send("POST", "/v1/completions", body, {{"Authorization", "Bearer wrong!"}})->status(),
            401);
  EXPECT_EQ(Send("POST", "/v1/completions", body, {{"Authorization", "Basic secret"}})->status(),
            401);
  EXPECT_TRUE(backend_.asked.empty());
  Send("POST", "/v1/completions", body, {{"Authorization", "Bearer secret"}});
  Send("POST", "/v1/completions", body, {{"x-api-key", "other"}});
  EXPECT_EQ(backend_.asked.size(), 2u);
  EXPECT_EQ(Send("GET", "/v1/models", "")->status(), 200);
}

TEST_F(HttpFrontTest, LargeBodiesShareABoundedPool) {
  const std::string large = R"({"prompt":[5,6,7)" + std::string(kInlineBodyBytes, ' ') + "]}";
  Pool pool(1, 16);
  Open({}, &pool, large.size() + 1);
  std::promise<void> go;
  ASSERT_TRUE(pool.TryRun([&go] { go.get_future().wait(); }));
  const auto first = Send("POST", "/v1/completions", large);
  const auto second = Send("POST", "/v1/completions", large);
  EXPECT_EQ(second->status(), 503);
  EXPECT_EQ(front_->counters().pooled, 1u);
  go.set_value();
  pool.Close();
  loop_.Post("stop", [this] { loop_.Stop(); });
  loop_.Run();
  ASSERT_EQ(backend_.asked.size(), 1u);
  EXPECT_EQ(backend_.asked[0].prompt, (std::vector<TokenId>{5, 6, 7}));
  Deliver(0, 0, {20});
  Close(0, pb::FINISH_REASON_STOP);
  EXPECT_EQ(first->status(), 200);
}

TEST_F(HttpFrontTest, LargeBodiesOfClientsThatLeftAreNotRead) {
  const std::string large = R"({"prompt":[5,6,7)" + std::string(kInlineBodyBytes, ' ') + "]}";
  Pool pool(1, 16);
  Open({}, &pool, 2 * large.size());
  std::promise<void> go;
  ASSERT_TRUE(pool.TryRun([&go] { go.get_future().wait(); }));
  Send("POST", "/v1/completions", large)->Leave();
  Send("POST", "/v1/completions", large);
  go.set_value();
  pool.Close();
  loop_.Post("stop", [this] { loop_.Stop(); });
  loop_.Run();
  EXPECT_EQ(front_->counters().abandoned, 1u);
  EXPECT_EQ(backend_.asked.size(), 1u);
}

TEST_F(HttpFrontTest, PromptsBeyondTheModelAreRefusedAtOnce) {
  std::string ids = "1";
  for (int i = 0; i < 4096; ++i) ids += ",1";
  const auto client = Send("POST", "/v1/completions", R"({"prompt":[)" + ids + "]}");
  EXPECT_EQ(client->status(), 400);
  const Json error = Json::parse(client->body()).at("error");
  EXPECT_EQ(error.at("param"), "prompt");
  EXPECT_NE(error.at("message").get<std::string>().find("more than 4096 tokens"), std::string::npos);
  EXPECT_TRUE(backend_.asked.empty());
}

class ConversationTest : public HttpFrontTest {
 protected:
  ConversationTest() {
    renderer_ =
        *codec::Renderer::Create(script_, codec::TemplateKind::kV41, script_->vocab().size());
    Open({"one", "two"});
  }

  // Later turns follow an answer of the model's. What the backend was asked.
  std::vector<TokenId> Ask(const std::string& answer, std::string key,
                           const std::string& user = "") {
    Json body = {{"user", user}, {"thinking", {{"type", "disabled"}}}};
    body["messages"] = {{{"role", "user"}, {"content", std::string(100, 'q')}}};
    if (!answer.empty()) {
      body["messages"].push_back({{"role", "assistant"}, {"content", answer}});
      body["messages"].push_back({{"role", "user"}, {"content", "And again?"}});
    }
    client_ = Send("POST", "/v1/chat/completions", body.dump(),
                   {{"authorization", "Bearer " + std::move(key)}});
    return backend_.asked.empty() ? std::vector<TokenId>() : backend_.asked.back().prompt;
  }
  // In a way that the tokenizer would not choose.
  std::vector<TokenId> Letters(std::string_view word) {
    std::vector<TokenId> ids;
    for (const char c : word) script_->Encode(std::string_view(&c, 1), &ids);
    return ids;
  }
  void Answer(const std::vector<TokenId>& ids) {
    Deliver(backend_.asked.size() - 1, 0, ids);
    Close(backend_.asked.size() - 1, pb::FINISH_REASON_STOP);
  }

  std::shared_ptr<const codec::Tokenizer> script_ =
      *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  std::shared_ptr<MemoryResponder> client_;
};

bool StartsWith(const std::vector<TokenId>& ids, const std::vector<TokenId>& with) {
  return ids.size() > with.size() && std::equal(with.begin(), with.end(), ids.begin());
}

TEST_F(ConversationTest, LaterTurnsHaveTheIdsThatWereEmitted) {
  std::vector<TokenId> first = Ask("", "one");
  std::vector<TokenId> answer = Letters("hello");
  answer.push_back(*script_->vocab().eos());
  Answer(answer);
  first.insert(first.end(), answer.begin(), answer.end());
  const std::vector<TokenId> second = Ask("hello", "one");
  EXPECT_TRUE(StartsWith(second, first));
  // Nobody else's prompt says what this client was told.
  const std::vector<TokenId> other = Ask("hello", "two");
  EXPECT_FALSE(StartsWith(other, first));
  EXPECT_EQ(Ask("hello", "one", "another user"), other);
  EXPECT_EQ(script_->Decode(other), script_->Decode(second));
}

TEST_F(ConversationTest, WhatAClientSawBeforeItLeftCounts) {
  std::vector<TokenId> first = Ask("", "one");
  const std::vector<TokenId> begun = Letters("hel");
  Deliver(0, 0, begun);
  client_->Leave();
  first.insert(first.end(), begun.begin(), begun.end());
  EXPECT_TRUE(StartsWith(Ask("hel", "one"), first));
}

TEST_F(ConversationTest, FailedAnswersAndEqualPromptsChangeNothing) {
  const std::vector<TokenId> first = Ask("", "one");
  EXPECT_EQ(Ask("", "one"), first);
  Deliver(0, 0, Letters("hello"));
  Close(0, pb::FINISH_REASON_FAILED, Error(Reason::kPeerLost, "engine lost"));
  Answer(Letters("water"));
  EXPECT_EQ(Ask("hello", "one"), Ask("hello", "two"));
  EXPECT_NE(Ask("water", "one"), Ask("water", "two"));
}

TEST_F(ConversationTest, EveryDialectAsksTheSame) {
  const HttpHeaders key = {{"x-api-key", "one"}};
  const std::string turns = R"("messages":[{"role":"user","content":"hi"}])";
  Send("POST", "/v1/chat/completions", "{" + turns + "}", key);
  Send("POST", "/v1/messages", R"({"model":"claude-x","max_tokens":5,)" + turns + "}", key);
  Send("POST", "/v1/responses", R"({"input":"hi"})", key);
  ASSERT_EQ(backend_.asked.size(), 3u);
  const std::vector<TokenId>& ids = backend_.asked[0].prompt;
  EXPECT_EQ(backend_.asked[1].prompt, ids);
  EXPECT_EQ(backend_.asked[2].prompt, ids);
  const auto answer = [&](const char* path, const std::string& body) {
    const auto client = Send("POST", path, body, key);
    EXPECT_EQ(client->status(), 200) << client->body();
    return Json::parse(client->body());
  };
  EXPECT_EQ(answer("/v1/messages/count_tokens", "{" + turns + "}"),
            (Json{{"input_tokens", ids.size()}}));
  EXPECT_EQ(answer("/tokenize", "{" + turns + "}").at("tokens"), Json(ids));
  const Json told = answer("/apply-template", "{" + turns + "}");
  EXPECT_EQ(answer("/detokenize", Json{{"tokens", ids}}.dump()), told);
  EXPECT_EQ(told.at("prompt"), script_->Decode(ids));
  const Json text = answer("/tokenize", R"({"prompt":"water","return_token_strs":true})");
  EXPECT_EQ(text.at("tokens")[0], *script_->vocab().bos());
  EXPECT_EQ(text.at("token_strs").size(), text.at("count"));
  EXPECT_EQ(answer("/tokenize", R"({"content":"water"})").at("count"),
            text.at("count").get<int>() - 1);
  EXPECT_EQ(backend_.asked.size(), 3u);
  EXPECT_EQ(front_->counters().requests, 3u);
}

TEST_F(ConversationTest, MessagesTellAtOnceWhatWasCached) {
  const auto client = Send("POST", "/v1/messages",
                           R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})",
                           {{"x-api-key", "one"}});
  RouterActions::Deliver delivery;
  delivery.request = backend_.asked.at(0).request;
  delivery.ids = Letters("why");
  delivery.cached_tokens = 3;
  front_->OnDeliver(delivery);
  const Json usage = Json::parse(EventsOf(client->body()).at(0)).at("message").at("usage");
  EXPECT_EQ(usage.at("cache_read_input_tokens"), 3);
  EXPECT_EQ(usage.at("input_tokens").get<size_t>() + 3, backend_.asked.at(0).prompt.size());
}

TEST_F(ConversationTest, ErrorsHaveTheShapeOfTheirDialect) {
  const auto stranger = Send("POST", "/anthropic/v1/messages", "{}");
  EXPECT_EQ(stranger->status(), 401);
  EXPECT_EQ(Json::parse(stranger->body()).at("error").at("type"), "authentication_error");
  EXPECT_EQ(Json::parse(stranger->body()).at("request_id"), "req-1");
  const HttpHeaders key = {{"x-api-key", "one"}};
  const auto busy = Send("POST", "/v1/messages",
                         R"({"max_tokens":5,"messages":[{"role":"user","content":"hi"}]})", key);
  Close(0, pb::FINISH_REASON_FAILED, Error(Reason::kQueueFull, "no room"));
  EXPECT_EQ(busy->status(), 529);
  EXPECT_EQ(Json::parse(busy->body()).at("error").at("type"), "overloaded_error");
  EXPECT_NE(FindHeader(busy->headers(), "retry-after-ms"), nullptr);
  const auto other = Send("POST", "/v1/responses", R"({"input":[]})", key);
  EXPECT_EQ(Json::parse(other->body()).at("error").at("param"), "input");
  const auto nothing = Send("GET", "/v1/models/nobody", "", {{"anthropic-version", "2023-06-01"}});
  EXPECT_EQ(Json::parse(nothing->body()).at("type"), "error");
}

TEST_F(HttpFrontTest, SilentStreamsGetComments) {
  const auto client = Complete(R"(,"stream":true)");
  const auto whole = Complete("");
  front_->KeepAlive(Instant::max() - std::chrono::hours(1));
  EXPECT_EQ(client->status(), 200);
  EXPECT_EQ(client->body(), codec::kSseKeepAlive);
  EXPECT_EQ(whole->status(), 0);
  Deliver(0, 0, {20});
  Close(0, pb::FINISH_REASON_STOP);
  EXPECT_EQ(TextOf(client->body()), " 20");
}

// Its bytes are messages behind their length, among which a comment would be read as one.
TEST_F(HttpFrontTest, SilentNativeStreamsGetNothing) {
  absl::Status refused;
  auto native = std::make_shared<HttpFront::Native>();
  native->make_response = MakeNativeResponse;
  native->refuse = [&refused](const absl::Status& status) { refused = status; };
  HttpFront::NativeAsk ask;
  ask.page = Page::kCompletions;
  ask.body = R"({"prompt":[5,6,7],"stream":true})";
  const auto client = std::make_shared<MemoryResponder>(&loop_);
  ask.responder = client;
  ask.native = std::move(native);
  front_->Ask(std::move(ask));
  front_->KeepAlive(Instant::max() - std::chrono::hours(1));
  EXPECT_EQ(client->body(), "");
  Deliver(0, 0, {20});
  std::string_view rest = client->body();
  v1::GenerateEvent event;
  ASSERT_TRUE(event.ParseFromString(std::string(TakeNativeMessage(&rest))));
  EXPECT_EQ(event.text(), " 20");
  Close(0, pb::FINISH_REASON_FAILED, Error(Reason::kPeerLost, "lost"));
  EXPECT_EQ(ReasonOf(refused), Reason::kPeerLost);
}

TEST_F(HttpFrontTest, DrainWaitsForAnswersAndRefusesNewOnes) {
  const auto client = Complete("");
  bool empty = false;
  front_->Drain([&] { empty = true; });
  EXPECT_FALSE(empty);
  EXPECT_EQ(Complete("")->status(), 503);
  Deliver(0, 0, {20});
  Close(0, pb::FINISH_REASON_STOP);
  EXPECT_TRUE(client->ended());
  EXPECT_TRUE(empty);
}

}  // namespace
}  // namespace weir::router
