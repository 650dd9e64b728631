// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/stdx/status.h"
#include "codec/dialect/messages.h"
#include "codec/stream/response.h"

namespace weir::codec {
namespace {

using nlohmann::json;

constexpr char kCalls[] =
    "Sure.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">x\"y</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"g\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

// One request against the script vocabulary and its response.
struct Exchange {
  explicit Exchange(const std::string& more) {
    tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
    const auto renderer = *Renderer::Create(tokenizer, TemplateKind::kV41, 512);
    const auto request = ParseMessages(
        R"({"model":"m","max_tokens":99,"messages":[{"role":"user","content":"hi"}],
            "tools":[{"name":"f","input_schema":{}},{"name":"g","input_schema":{}}])" +
            more + "}",
        RequestLimits{});
    EXPECT_TRUE(request.ok()) << request.status();
    const Prompt prompt = *renderer->Render(*request, 100000);
    prompt_tokens = prompt.ids.size();
    response = Response::Create(*request, prompt, tokenizer, {"7", 99, "m", "", "req-1"});
    response->SetCachedTokens(4);
    response->Start(&out);
  }

  bool Say(std::string_view text) {
    for (const TokenId id : tokenizer->EncodeTrusted(text)) {
      if (response->Push(0, std::span(&id, 1), {}, &out)) return true;
    }
    return false;
  }

  // The events so far; the name of each must be its type.
  std::vector<json> Events() const {
    std::vector<json> events;
    for (size_t at = 0; at < out.size();) {
      const size_t line = out.find('\n', at);
      const size_t end = out.find("\n\n", at);
      EXPECT_EQ(out.compare(line + 1, 6, "data: "), 0) << out.substr(at);
      events.push_back(json::parse(out.substr(line + 7, end - line - 7)));
      EXPECT_EQ(out.substr(at, line - at), "event: " + events.back()["type"].get<std::string>());
      at = end + 2;
    }
    return events;
  }
  // Their types, with deltas of one block counted once.
  std::string Order() const {
    std::string order;
    std::string last;
    for (const json& event : Events()) {
      std::string type = event["type"];
      if (type == "content_block_delta") type = event["delta"]["type"];
      if (type == "content_block_start") type = "+" + event["content_block"]["type"].get<std::string>();
      if (type != last) order += type + " ";
      last = type;
    }
    return order;
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  uint64_t prompt_tokens = 0;
  std::unique_ptr<Response> response;
  std::string out;
};

TEST(MessagesStream, BlocksComeOneAfterAnother) {
  Exchange exchange(R"(,"stream":true)");
  EXPECT_EQ(exchange.Order(), "message_start +thinking ping ");
  exchange.Say("because</think>" + std::string(kCalls));
  exchange.response->Finish(0, EngineFinish::kStop, &exchange.out);
  EXPECT_EQ(exchange.Order(),
            "message_start +thinking ping thinking_delta signature_delta content_block_stop "
            "+text text_delta content_block_stop +tool_use input_json_delta content_block_stop "
            "+tool_use input_json_delta content_block_stop message_delta message_stop ");
  std::vector<std::string> inputs(4);
  int blocks = 0;
  for (const json& event : exchange.Events()) {
    if (event["type"] == "content_block_start") EXPECT_EQ(event["index"], blocks++);
    if (event["type"] == "content_block_delta" && event["delta"].contains("partial_json")) {
      inputs.at(event["index"]) += event["delta"]["partial_json"];
    }
  }
  EXPECT_EQ(json::parse(inputs[2]), (json{{"a", "x\"y"}}));
  EXPECT_EQ(inputs[3], "{}");
  const auto events = exchange.Events();
  const json& begin = events.front()["message"];
  EXPECT_EQ(begin["id"], "msg_7");
  EXPECT_EQ(begin["usage"]["input_tokens"], exchange.prompt_tokens - 4);
  EXPECT_EQ(begin["usage"]["cache_read_input_tokens"], 4);
  EXPECT_EQ(begin["usage"]["cache_creation_input_tokens"], 0);
  const json& end = events[events.size() - 2];
  EXPECT_EQ(end["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(end["usage"]["output_tokens"], exchange.response->usage().completion_tokens);
}

TEST(MessagesBody, HoldsTheSameBlocks) {
  Exchange exchange("");
  exchange.Say("because</think>" + std::string(kCalls));
  exchange.response->Finish(0, EngineFinish::kStop, &exchange.out);
  const json body = json::parse(exchange.out);
  EXPECT_EQ(body["type"], "message");
  EXPECT_EQ(body["stop_reason"], "tool_use");
  ASSERT_EQ(body["content"].size(), 4u);
  EXPECT_EQ(body["content"][0], (json{{"type", "thinking"}, {"thinking", "because"}, {"signature", "7"}}));
  EXPECT_EQ(body["content"][1], (json{{"type", "text"}, {"text", "Sure."}}));
  EXPECT_EQ(body["content"][2],
            (json{{"type", "tool_use"}, {"id", "toolu_7_0"}, {"name", "f"}, {"input", {{"a", "x\"y"}}}}));
  EXPECT_EQ(body["content"][3]["id"], "toolu_7_1");
  EXPECT_EQ(body["content"][3]["input"], json::object());
  EXPECT_EQ(body["usage"]["service_tier"], "standard");
}

TEST(MessagesBody, CutCallHasNoInput) {
  Exchange exchange(R"(,"thinking":{"type":"disabled"})");
  exchange.Say("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"true\">Par");
  exchange.response->Finish(0, EngineFinish::kLength, &exchange.out);
  const json body = json::parse(exchange.out);
  EXPECT_EQ(body["stop_reason"], "max_tokens");
  ASSERT_EQ(body["content"].size(), 1u);
  EXPECT_EQ(body["content"][0]["input"], json::object());
}

TEST(MessagesStream, StopSequenceIsNamed) {
  Exchange exchange(R"(,"stream":true,"thinking":{"type":"disabled"},"stop_sequences":["END"])");
  EXPECT_TRUE(exchange.Say("Answer END more"));
  exchange.response->Finish(0, EngineFinish::kStop, &exchange.out);
  EXPECT_EQ(exchange.Order(),
            "message_start +text ping text_delta content_block_stop message_delta message_stop ");
  const auto events = exchange.Events();
  const json& delta = events[events.size() - 2]["delta"];
  EXPECT_EQ(delta, (json{{"stop_reason", "stop_sequence"}, {"stop_sequence", "END"}}));
}

TEST(MessagesStream, FailureIsAnErrorEvent) {
  Exchange exchange(R"(,"stream":true)");
  exchange.response->Fail(Error(Reason::kPeerLost, "engine lost"), &exchange.out);
  const json last = exchange.Events().back();
  EXPECT_EQ(last["type"], "error");
  EXPECT_EQ(last["error"], (json{{"type", "overloaded_error"}, {"message", "engine lost"}}));
  EXPECT_EQ(last["request_id"], "req-1");
  EXPECT_TRUE(exchange.response->done());
}

}  // namespace
}  // namespace weir::codec
