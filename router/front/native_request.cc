// SPDX-License-Identifier: Apache-2.0
#include "router/front/native_request.h"

#include "codec/conversation/json_text.h"

namespace weir::router {
namespace {

using codec::AppendJsonNumber;
using codec::AppendJsonString;

// Writes members one after another; the object stays open.
class Members {
 public:
  explicit Members(std::string* out) : out_(out) { out_->push_back('{'); }

  std::string* Key(std::string_view key) {
    if (!first_) out_->push_back(',');
    first_ = false;
    AppendJsonString(key, out_);
    out_->push_back(':');
    return out_;
  }
  void Text(std::string_view key, std::string_view text) { AppendJsonString(text, Key(key)); }
  void TextUnlessEmpty(std::string_view key, std::string_view text) {
    if (!text.empty()) Text(key, text);
  }
  void Whole(std::string_view key, int64_t value) { AppendJsonNumber(value, Key(key)); }
  void WholeUnlessZero(std::string_view key, int64_t value) {
    if (value != 0) Whole(key, value);
  }
  // NaN and infinities become null in JSON, which would count as absent.
  void Real(std::string_view key, float value) {
    const bool finite = value - value == 0;
    *Key(key) += finite ? "" : "\"not finite\"";
    if (finite) AppendJsonNumber(double{value}, out_);
  }
  void RealUnlessZero(std::string_view key, float value) {
    if (value != 0) Real(key, value);
  }
  void True(std::string_view key) { *Key(key) += "true"; }
  void Close() { out_->push_back('}'); }

 private:
  std::string* const out_;
  bool first_ = true;
};

// Calls `each(item, out)` for the items of a JSON array.
template <class Items, class Each>
void AppendArray(const Items& items, std::string* out, Each each) {
  out->push_back('[');
  bool first = true;
  for (const auto& item : items) {
    if (!first) out->push_back(',');
    first = false;
    each(item, out);
  }
  out->push_back(']');
}

void AppendUse(const v1::ToolUse& use, std::string* out) {
  Members members(out);
  members.Text("id", use.id());
  Members function(members.Key("function"));
  function.Text("name", use.name());
  function.Text("arguments", use.arguments());
  function.Close();
  members.Close();
}

void AppendTurn(const v1::ChatTurn& turn, std::string* out) {
  Members members(out);
  members.Text("role", turn.role());
  // Only text that is there can be what an answer goes on from.
  const bool thought_only = turn.prefix() && turn.content().empty() && !turn.reasoning().empty();
  if (!thought_only) members.Text("content", turn.content());
  members.TextUnlessEmpty("reasoning_content", turn.reasoning());
  if (turn.calls_size() > 0) AppendArray(turn.calls(), members.Key("tool_calls"), AppendUse);
  members.TextUnlessEmpty("tool_call_id", turn.tool_call_id());
  if (turn.prefix()) members.True("prefix");
  members.Close();
}

void AppendTool(const v1::ToolSpec& tool, std::string* out) {
  Members members(out);
  members.Text("type", "function");
  Members function(members.Key("function"));
  function.Text("name", tool.name());
  function.TextUnlessEmpty("description", tool.description());
  // A schema that is no JSON must not reach past its place in the body.
  if (!tool.parameters().empty()) {
    const auto parameters = codec::NormalJson(tool.parameters());
    if (parameters.ok()) {
      *function.Key("parameters") += *parameters;
    } else {
      function.Text("parameters", tool.parameters());
    }
  }
  function.Close();
  members.Close();
}

void AppendChat(const v1::Chat& chat, Members* members) {
  AppendArray(chat.turns(), members->Key("messages"), AppendTurn);
  if (chat.tools_size() > 0) AppendArray(chat.tools(), members->Key("tools"), AppendTool);
  constexpr std::string_view kFunction = "function:";
  if (chat.tool_choice().rfind(kFunction, 0) == 0) {
    Members choice(members->Key("tool_choice"));
    choice.Text("type", "function");
    Members function(choice.Key("function"));
    function.Text("name", chat.tool_choice().substr(kFunction.size()));
    function.Close();
    choice.Close();
  } else {
    members->TextUnlessEmpty("tool_choice", chat.tool_choice());
  }
  members->TextUnlessEmpty("reasoning_effort", chat.effort());
}

void AppendPrompt(const v1::GenerateRequest& request, Members* members) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kChat:
      return AppendChat(request.chat(), members);
    case v1::GenerateRequest::kText:
      return members->Text("prompt", request.text());
    case v1::GenerateRequest::kIds:
      return AppendArray(request.ids().ids(), members->Key("prompt"),
                         [](int32_t id, std::string* out) { AppendJsonNumber(int64_t{id}, out); });
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return;
  }
}

void AppendSampling(const v1::GenerateRequest& request, Members* members) {
  if (request.has_temperature()) members->Real("temperature", request.temperature());
  if (request.has_top_p()) members->Real("top_p", request.top_p());
  members->WholeUnlessZero("top_k", request.top_k());
  members->RealUnlessZero("min_p", request.min_p());
  if (request.has_seed()) members->Whole("seed", static_cast<int64_t>(request.seed()));
  members->RealUnlessZero("presence_penalty", request.presence_penalty());
  members->RealUnlessZero("frequency_penalty", request.frequency_penalty());
  if (request.has_repetition_penalty()) {
    members->Real("repetition_penalty", request.repetition_penalty());
  }
  if (request.logit_bias_size() == 0) return;
  Members biases(members->Key("logit_bias"));
  for (const v1::LogitBias& bias : request.logit_bias()) {
    biases.Real(std::to_string(bias.token()), bias.bias());
  }
  biases.Close();
}

}  // namespace

NativeBody BodyOf(const v1::GenerateRequest& request) {
  NativeBody body;
  const bool chat = request.prompt_case() == v1::GenerateRequest::kChat;
  body.page = chat ? Page::kChat : Page::kCompletions;
  Members members(&body.json);
  AppendPrompt(request, &members);
  members.TextUnlessEmpty("model", request.model());
  members.WholeUnlessZero("max_tokens", request.max_tokens());
  members.WholeUnlessZero("min_tokens", request.min_tokens());
  if (request.stop_size() > 0) {
    AppendArray(request.stop(), members.Key("stop"),
                [](const std::string& stop, std::string* out) { AppendJsonString(stop, out); });
  }
  if (request.ignore_eos()) members.True("ignore_eos");
  AppendSampling(request, &members);
  if (chat) {
    if (request.logprobs()) members.True("logprobs");
    members.WholeUnlessZero("top_logprobs", request.top_logprobs());
  } else if (request.logprobs()) {
    members.Whole("logprobs", request.top_logprobs());
  }
  members.TextUnlessEmpty("user", request.user());
  members.TextUnlessEmpty("cache_salt", request.cache_salt());
  members.True("stream");
  members.Close();
  return body;
}

std::string NativeParam(const std::string& param) {
  if (param.rfind("messages", 0) == 0) return "chat.turns" + param.substr(8);
  if (param.rfind("tools", 0) == 0 || param == "tool_choice") return "chat." + param;
  if (param == "reasoning_effort") return "chat.effort";
  return param;
}

}  // namespace weir::router
