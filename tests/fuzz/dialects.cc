// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/dialects.h"

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"
#include "codec/dialect/messages.h"
#include "codec/dialect/responses.h"
#include "codec/dialect/tokenize.h"
#include "codec/stream/response.h"
#include "tests/fuzz/events.h"

namespace weir {
namespace {

using codec::ChatRequest;
using nlohmann::json;

constexpr size_t kIdsMax = 4096;

const codec::Renderer& ScriptRenderer() {
  static const std::shared_ptr<const codec::Renderer> renderer = [] {
    auto tokenizer = *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
    return *codec::Renderer::Create(std::move(tokenizer), codec::TemplateKind::kV41, 512);
  }();
  return *renderer;
}

absl::StatusOr<ChatRequest> Parse(char kind, std::string_view body) {
  codec::RequestLimits limits;
  limits.body_bytes_max = 1 << 20;
  switch (kind) {
    case 'c':
      return codec::ParseChat(body, limits);
    case 't':
      return codec::ParseCompletions(body, limits);
    case 'm':
      return codec::ParseMessages(body, limits);
    case 'r':
      return codec::ParseResponses(body, limits);
    case 'k': {
      WEIR_ASSIGN(auto read, codec::ParseTokenize(body, limits));
      return std::move(read.request);
    }
    default: {
      WEIR_ASSIGN(const auto read, codec::ParseDetokenize(body, limits));
      (void)ScriptRenderer().tokenizer()->Decode(read.tokens);
      return Error(Reason::kBadField, "detokenized");
    }
  }
}

// Answers with ids that the body itself draws, so that a fuzzer can reach every marker.
void AnswerWith(const ChatRequest& request, const codec::Prompt& prompt, std::string_view draw) {
  const auto response = codec::Response::Create(request, prompt, ScriptRenderer().tokenizer(),
                                                {"id", 1, request.model, "", "r"});
  std::string out;
  response->Start(&out);
  for (int choice = 0; choice < request.n; ++choice) {
    for (size_t i = 0; i + 1 < draw.size() && i < 512; i += 2) {
      const TokenId id = (static_cast<uint8_t>(draw[i]) * 256 + static_cast<uint8_t>(draw[i + 1])) % 512;
      if (response->Push(choice, std::span(&id, 1), {}, &out)) break;
    }
    response->Finish(choice, codec::EngineFinish::kLength, &out);
  }
  WEIR_CHECK(response->done());
  if (request.stream.stream) {
    (void)DataOfEvents(out);
  } else {
    WEIR_CHECK(json::accept(out));
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto request = weir::Parse(static_cast<char>(data[0]), body);
  if (!request.ok()) {
    WEIR_CHECK(weir::ReasonOf(request.status()) != weir::Reason::kBug);
    return 0;
  }
  const auto prompt = weir::ScriptRenderer().Render(*request, weir::kIdsMax);
  if (prompt.ok()) weir::AnswerWith(*request, *prompt, body);
  return 0;
}
