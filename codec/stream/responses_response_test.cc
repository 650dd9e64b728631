// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/stdx/status.h"
#include "codec/dialect/responses.h"
#include "codec/stream/response.h"

namespace weir::codec {
namespace {

using nlohmann::json;

constexpr char kCalls[] =
    "Sure.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"ns::f\">\n"
    "<｜DSML｜ parameter name=\"a\" string=\"true\">x\"y</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n<｜DSML｜ invoke name=\"apply_patch\">\n"
    "<｜DSML｜ parameter name=\"input\" string=\"true\">*** \"p\"\n</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

// One request against the script vocabulary and its response.
struct Exchange {
  explicit Exchange(const std::string& more) {
    tokenizer = *Tokenizer::FromFile("deploy/models/script/tokenizer.json");
    const auto renderer = *Renderer::Create(tokenizer, TemplateKind::kV41, 512);
    const auto request = ParseResponses(
        R"({"model":"m","input":"hi","tools":[{"type":"custom","name":"apply_patch"},
            {"type":"namespace","name":"ns","tools":[{"type":"function","name":"f"}]}])" +
            more + "}",
        RequestLimits{});
    EXPECT_TRUE(request.ok()) << request.status();
    response = Response::Create(*request, *renderer->Render(*request, 100000), tokenizer,
                                {"7", 99, "m", "", "req-1"});
    response->Start(&out);
  }
  void Say(std::string_view text) {
    for (const TokenId id : tokenizer->EncodeTrusted(text)) {
      response->Push(0, std::span(&id, 1), {}, &out);
    }
  }

  // The events so far; names and numbers must be right.
  std::vector<json> Events() const {
    std::vector<json> events;
    for (size_t at = 0; at < out.size();) {
      const size_t line = out.find('\n', at);
      const size_t end = out.find("\n\n", at);
      events.push_back(json::parse(out.substr(line + 7, end - line - 7)));
      EXPECT_EQ(out.substr(at, line - at), "event: " + events.back()["type"].get<std::string>());
      EXPECT_EQ(events.back()["sequence_number"], events.size() - 1);
      at = end + 2;
    }
    return events;
  }
  // Their types without "response."; of equal neighbours one.
  std::string Order() const {
    std::string order;
    std::string last;
    for (const json& event : Events()) {
      const std::string type = event["type"].get<std::string>().substr(9);
      if (type != last) order += type + " ";
      last = type;
    }
    return order;
  }

  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Response> response;
  std::string out;
};

TEST(ResponsesStream, ItemsComeOneAfterAnother) {
  Exchange exchange(R"(,"stream":true)");
  exchange.Say("because</think>" + std::string(kCalls));
  exchange.response->Finish(0, EngineFinish::kStop, &exchange.out);
  EXPECT_EQ(exchange.Order(),
            "created in_progress "
            "output_item.added content_part.added reasoning_text.delta reasoning_text.done "
            "content_part.done output_item.done "
            "output_item.added content_part.added output_text.delta output_text.done "
            "content_part.done output_item.done "
            "output_item.added function_call_arguments.delta function_call_arguments.done "
            "output_item.done "
            "output_item.added custom_tool_call_input.delta custom_tool_call_input.done "
            "output_item.done completed ");
  const json response = exchange.Events().back()["response"];
  EXPECT_EQ(response["id"], "resp_7");
  EXPECT_EQ(response["status"], "completed");
  const json& output = response["output"];
  ASSERT_EQ(output.size(), 4u);
  EXPECT_EQ(output[0]["content"], (json{{{"type", "reasoning_text"}, {"text", "because"}}}));
  EXPECT_EQ(output[1]["content"][0]["text"], "Sure.");
  EXPECT_EQ(output[1]["phase"], "commentary");
  EXPECT_EQ(output[2]["namespace"], "ns");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(output[2]["call_id"], "call_7_0");
  EXPECT_EQ(json::parse(output[2]["arguments"].get<std::string>()), (json{{"a", "x\"y"}}));
  EXPECT_EQ(output[3]["type"], "custom_tool_call");
  EXPECT_EQ(output[3]["input"], "*** \"p\"\n");
  EXPECT_EQ(output[3]["id"], "ctc_7_3");
  EXPECT_EQ(response["usage"]["output_tokens"], exchange.response->usage().completion_tokens);
  EXPECT_GT(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ResponsesBody, IsTheLastEventsResponse) {
  Exchange stream(R"(,"stream":true)");
  Exchange body("");
  for (Exchange* exchange : {&stream, &body}) {
    exchange->Say("because</think>" + std::string(kCalls));
    exchange->response->Finish(0, EngineFinish::kStop, &exchange->out);
  }
  EXPECT_EQ(json::parse(body.out), stream.Events().back()["response"]);
}

TEST(ResponsesBody, CutAnswerIsIncomplete) {
  Exchange exchange(R"(,"reasoning":{"effort":"none"},"max_output_tokens":2)");
  exchange.Say("one two");
  exchange.response->Finish(0, EngineFinish::kLength, &exchange.out);
  const json body = json::parse(exchange.out);
  EXPECT_EQ(body["status"], "incomplete");
  EXPECT_EQ(body["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(body["output"][0]["status"], "incomplete");
  EXPECT_EQ(body["output"][0]["phase"], "final_answer");
}

TEST(ResponsesStream, FailureIsTheLastEvent) {
  Exchange exchange(R"(,"stream":true)");
  exchange.Say("becau");
  exchange.response->Fail(Error(Reason::kBug, "secret"), &exchange.out);
  const json last = exchange.Events().back();
  EXPECT_EQ(last["type"], "response.failed");
  EXPECT_EQ(last["response"]["status"], "failed");
  EXPECT_EQ(last["response"]["error"]["code"], "server_error");
  EXPECT_EQ(last.dump().find("secret"), std::string::npos);
  EXPECT_NE(last.dump().find("req-1"), std::string::npos);
}

TEST(ResponsesResponse, LogprobsRideWithTheirText) {
  Exchange exchange(R"(,"stream":true,"top_logprobs":1)");
  const TokenLogprob score{-0.5f, {{65, -0.5f}}};
  for (const TokenId id : exchange.tokenizer->EncodeTrusted("why</think>Sure")) {
    exchange.response->Push(0, std::span(&id, 1), {&score, 1}, &exchange.out);
  }
  exchange.response->Finish(0, EngineFinish::kStop, &exchange.out);
  std::string told;  // tokens of the deltas
  const std::vector<json> events = exchange.Events();
  for (const json& event : events) {
    if (event["type"] != "response.output_text.delta") continue;
    for (const json& one : event["logprobs"]) {
      told += one["token"];
      EXPECT_EQ(one["logprob"], -0.5);
      EXPECT_EQ(one["top_logprobs"].size(), 1u);
    }
  }
  EXPECT_EQ(told, "Sure");
  std::string whole;
  for (const json& one : events.back()["response"]["output"][1]["content"][0]["logprobs"]) {
    whole += one["token"];
  }
  EXPECT_EQ(whole, "Sure");
}

}  // namespace
}  // namespace weir::codec
