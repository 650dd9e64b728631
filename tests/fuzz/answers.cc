// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/answers.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/check.h"
#include "codec/conversation/json_text.h"
#include "codec/stream/response.h"
#include "tests/fuzz/events.h"

namespace weir {
namespace {

using codec::Api;
using nlohmann::json;
using Ids = std::vector<TokenId>;

const std::shared_ptr<const codec::Tokenizer>& Script() {
  static const auto tokenizer = *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return tokenizer;
}

struct Asked {
  codec::ChatRequest request;
  codec::Prompt prompt;
  codec::EngineFinish finish = codec::EngineFinish::kStop;
};

Asked AskedBy(const uint8_t* how) {
  Asked asked;
  codec::ChatRequest& request = asked.request;
  request.api = static_cast<Api>(how[0] & 3);
  request.model = "m";
  request.n =
      request.api == Api::kChat || request.api == Api::kCompletions ? 1 + (how[0] >> 2 & 1) : 1;
  request.logprobs = {(how[0] & 8) != 0, how[0] >> 6};
  request.return_token_ids = (how[0] & 16) != 0;
  request.stream.include_usage = (how[1] & 1) != 0;
  request.stream.continuous_usage_stats = (how[1] & 2) != 0;
  if ((how[1] & 4) != 0) request.limits.stop = {"END", "NDx", "\n\n"};
  if ((how[1] & 8) != 0) asked.finish = codec::EngineFinish::kLength;
  if ((how[1] & 16) != 0) {
    request.conversation.constraint.kind = codec::ConstraintKind::kJsonObject;
  }
  asked.prompt.ids = {1, 2, 3};
  asked.prompt.start = request.api == Api::kCompletions
                           ? codec::AnswerStart::kRaw
                           : static_cast<codec::AnswerStart>(how[2] % 5);
  asked.prompt.tools = static_cast<codec::ToolSyntax>(how[2] / 5 % 4);
  asked.prompt.thinking = asked.prompt.start == codec::AnswerStart::kReasoning ||
                          asked.prompt.start == codec::AnswerStart::kReasoningContinued;
  if (asked.prompt.tools != codec::ToolSyntax::kNone) {
    codec::ToolDef& tool = request.conversation.tools.emplace_back();
    tool.name = "f";
    tool.freeform = (how[2] & 128) != 0;
  }
  return asked;
}

std::string Answer(const Asked& asked, const Ids& ids, size_t step) {
  const codec::ChatRequest& request = asked.request;
  const auto response =
      codec::Response::Create(request, asked.prompt, Script(), {"id", 1, request.model, "", "r"});
  std::vector<codec::TokenLogprob> scores(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    scores[i].logprob = -0.5f;
    for (int k = 0; k < request.logprobs.top; ++k) scores[i].top.emplace_back(ids[i], -0.5f);
  }
  std::string out;
  response->Start(&out);
  for (int choice = 0; choice < request.n; ++choice) {
    for (size_t at = 0; at < ids.size(); at += step) {
      const size_t size = std::min(step, ids.size() - at);
      codec::TokenLogprobs said;
      if (request.logprobs.enabled) said = std::span(scores).subspan(at, size);
      if (response->Push(choice, std::span(ids).subspan(at, size), said, &out)) break;
    }
    response->Finish(choice, asked.finish, &out);
  }
  WEIR_CHECK(response->done());
  return out;
}

// What an answer says, whatever the dialect and the form.
struct Said {
  std::map<std::string, std::string> texts;  // by part, in the order of their names
  json usage;
  bool operator==(const Said& other) const { return texts == other.texts && usage == other.usage; }
};

void AddText(const std::string& part, const json& holder, const char* key, Said* said) {
  const auto found = holder.find(key);
  if (found != holder.end() && found->is_string()) said->texts[part] += found->get<std::string>();
}

// A choice of Chat Completions or Completions; `message` is its delta or message.
void AddChoice(const json& choice, const json& message, Said* said) {
  const std::string at = std::to_string(choice.at("index").get<int>()) + ".";
  AddText(at + "text", choice, "text", said);
  AddText(at + "content", message, "content", said);
  AddText(at + "reasoning", message, "reasoning_content", said);
  AddText(at + "finish", choice, "finish_reason", said);
  if (!message.contains("tool_calls")) return;
  int place = 0;
  for (const json& call : message.at("tool_calls")) {
    const std::string of = at + "call" + std::to_string(call.value("index", place++)) + ".";
    AddText(of + "id", call, "id", said);
    AddText(of + "name", call.at("function"), "name", said);
    AddText(of + "arguments", call.at("function"), "arguments", said);
  }
}

Said OpenAiSaid(const std::vector<json>& chunks) {
  Said said;
  for (const json& chunk : chunks) {
    for (const json& choice : chunk.at("choices")) {
      const char* holder = choice.contains("delta") ? "delta" : "message";
      AddChoice(choice, choice.value(holder, json::object()), &said);
    }
    if (chunk.contains("usage") && chunk["usage"].is_object()) said.usage = chunk["usage"];
  }
  return said;
}

// A message as its events build it, for comparison with the one that is sent whole.
json MessageOf(const std::vector<json>& events) {
  json message;
  std::vector<std::string> inputs;
  for (const json& event : events) {
    const std::string type = event.at("type");
    if (type == "message_start") message = event.at("message");
    if (type == "content_block_start") {
      WEIR_CHECK(event.at("index") == message["content"].size());
      message["content"].push_back(event.at("content_block"));
      inputs.emplace_back();
    }
    if (type == "content_block_delta") {
      WEIR_CHECK(event.at("index") == message["content"].size() - 1);
      json& block = message["content"].back();
      const json& delta = event.at("delta");
      for (const char* key : {"text", "thinking", "signature"}) {
        if (delta.contains(key))
          block[key] = block.at(key).get<std::string>() + delta.at(key).get<std::string>();
      }
      if (delta.contains("partial_json"))
        inputs.back() += delta.at("partial_json").get<std::string>();
    }
    if (type == "message_delta") {
      message.update(event.at("delta"));
      message["usage"].update(event.at("usage"));
    }
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    json& block = message["content"][i];
    if (block.at("type") != "tool_use") continue;
    const bool whole = codec::JsonMembers(inputs[i]).ok();
    block["input"] = whole ? json::parse(inputs[i], nullptr, false) : json::object();
  }
  return message;
}

// The whole answer of the last event, after its deltas were compared with it.
json ResponseOf(const std::vector<json>& events) {
  std::map<std::string, std::string> texts;
  for (size_t i = 0; i < events.size(); ++i) {
    WEIR_CHECK(events[i].at("sequence_number") == i);
    if (events[i].contains("delta")) {
      texts[events[i].at("item_id")] += events[i].at("delta").get<std::string>();
    }
  }
  const json whole = events.back().at("response");
  for (const json& item : whole.at("output")) {
    std::string text;
    if (item.contains("content")) text = item.at("content").at(0).at("text");
    if (item.contains("arguments")) text = item.at("arguments");
    if (item.contains("input")) text = item.at("input");
    WEIR_CHECK(texts[item.at("id")] == text);
  }
  return whole;
}

void Compare(Asked asked, const Ids& ids, size_t step) {
  asked.request.stream.stream = false;
  const json body =
      json::parse(Answer(asked, ids, std::max<size_t>(ids.size(), 1)), nullptr, false);
  WEIR_CHECK(body.is_object());
  asked.request.stream.stream = true;
  for (const size_t cut : {size_t{1}, step}) {
    const std::vector<json> events = DataOfEvents(Answer(asked, ids, cut));
    WEIR_CHECK(!events.empty());
    if (asked.request.api == Api::kMessages) {
      WEIR_CHECK(MessageOf(events) == body);
    } else if (asked.request.api == Api::kResponses) {
      WEIR_CHECK(ResponseOf(events) == body);
    } else {
      WEIR_CHECK(OpenAiSaid(events) == OpenAiSaid({body}));
    }
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kHow = 4;
  constexpr size_t kTextMax = 4096;
  if (size < kHow) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + kHow,
                              std::min(size - kHow, kTextMax));
  weir::Ids ids;
  if ((data[1] & 32) != 0) {
    for (size_t i = 0; i < text.size(); ++i) weir::Script()->Encode(text.substr(i, 1), &ids);
  } else {
    ids = weir::Script()->EncodeTrusted(text);
  }
  weir::Compare(weir::AskedBy(data), ids, 2 + data[3] % 8);
  return 0;
}
