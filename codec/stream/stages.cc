// SPDX-License-Identifier: Apache-2.0
#include "codec/stream/stages.h"

#include <string_view>
#include <utility>

#include "codec/token/vocab.h"

namespace weir::codec {
namespace {

constexpr std::string_view kDsmlOpen = "<｜DSML｜";
constexpr std::string_view kDsmlClose = "</｜DSML｜";

class Builder {
 public:
  explicit Builder(StageTable* table) : table_(table) {}

  Builder& In(Stage stage, Unclaimed unclaimed) {
    spec_ = &(*table_)[static_cast<size_t>(stage)];
    spec_->unclaimed = unclaimed;
    return *this;
  }
  Builder& On(std::string_view literal, Stage next, Step step = Step::kNothing) {
    Marker& marker = spec_->markers.emplace_back();
    marker.literal = literal;
    marker.next = next;
    marker.step = step;
    return *this;
  }
  Builder& EatingNewlines() {
    spec_->markers.back().eats_newlines = true;
    return *this;
  }
  Builder& Trimming() {
    spec_->markers.back().trims = true;
    return *this;
  }
  Builder& Stops(const std::vector<std::string>& stops) {
    for (const std::string& stop : stops) On(stop, Stage::kDone, Step::kStop);
    return *this;
  }
  // The markers that open tool calls.
  Builder& Tools(ToolSyntax syntax) {
    if (syntax == ToolSyntax::kDsml) On(kDsmlOpen, Stage::kCalls).EatingNewlines();
    if (syntax == ToolSyntax::kV31Tokens || syntax == ToolSyntax::kV3Tokens) {
      On(kToolCallsBeginToken, Stage::kTokenCalls).EatingNewlines();
    }
    return *this;
  }

 private:
  StageTable* table_;
  StageSpec* spec_ = nullptr;
};

void AddJson(const StreamParserOptions& options, Builder build) {
  build.In(Stage::kJsonLead, Unclaimed::kSpace)
      .On("```json\n", Stage::kJson)
      .On("```\n", Stage::kJson)
      .On("{", Stage::kJson, Step::kShow)
      .On("[", Stage::kJson, Step::kShow)
      .Tools(options.tools)
      .On(kThinkEndToken, Stage::kJsonLead);
  build.In(Stage::kJson, Unclaimed::kContent)
      .Stops(options.stops)
      .On("\n```", Stage::kJsonTail);
  build.In(Stage::kJsonTail, Unclaimed::kSpace).Tools(options.tools);
}

void AddDsml(Builder build) {
  // Patterns start after the space that V4.1 puts into its tags, so one set reads all versions.
  build.In(Stage::kCalls, Unclaimed::kDrop)
      .On("invoke name=\"", Stage::kCallName)
      .On("</｜DSML｜ calls>", Stage::kDone)
      .On("</｜DSML｜tool_calls>", Stage::kDone)
      .On("</｜DSML｜function_calls>", Stage::kDone);
  build.In(Stage::kCallName, Unclaimed::kName).On("\"", Stage::kArguments, Step::kBeginCall);
  build.In(Stage::kArguments, Unclaimed::kDrop)
      .On("parameter name=\"", Stage::kKey, Step::kOpenKey)
      .On(kDsmlClose, Stage::kCalls, Step::kCloseCall);
  build.In(Stage::kKey, Unclaimed::kArgumentsEscaped)
      .On("\"", Stage::kValueType, Step::kCloseKey);
  build.In(Stage::kValueType, Unclaimed::kDrop)
      .On("true\">", Stage::kTextValue, Step::kOpenText)
      .On("false\">", Stage::kJsonValue)
      .On(">", Stage::kTextValue, Step::kOpenText);  // the attribute is missing
  build.In(Stage::kTextValue, Unclaimed::kArgumentsEscaped)
      .On(kDsmlClose, Stage::kArguments, Step::kCloseText);
  build.In(Stage::kJsonValue, Unclaimed::kArguments).On(kDsmlClose, Stage::kArguments);
}

void AddTokenSyntax(ToolSyntax syntax, Builder build) {
  const bool v3 = syntax == ToolSyntax::kV3Tokens;
  build.In(Stage::kTokenCalls, Unclaimed::kDrop)
      .On(kToolCallBeginToken, v3 ? Stage::kTokenType : Stage::kTokenName)
      .On(kToolCallsEndToken, Stage::kDone);
  build.In(Stage::kTokenType, Unclaimed::kDrop).On(kToolSepToken, Stage::kTokenName);
  if (v3) {
    build.In(Stage::kTokenName, Unclaimed::kName).On("\n", Stage::kTokenFence, Step::kBeginCall);
    build.In(Stage::kTokenFence, Unclaimed::kDrop).On("\n", Stage::kTokenArguments);
    build.In(Stage::kTokenArguments, Unclaimed::kArguments)
        .On("\n```" + std::string(kToolCallEndToken), Stage::kTokenCalls)
        .On(kToolCallEndToken, Stage::kTokenCalls);
  } else {
    build.In(Stage::kTokenName, Unclaimed::kName)
        .On(kToolSepToken, Stage::kTokenArguments, Step::kBeginCall);
    build.In(Stage::kTokenArguments, Unclaimed::kArguments)
        .On(kToolCallEndToken, Stage::kTokenCalls);
  }
}

void Compile(StageSpec* spec) {
  for (Marker& marker : spec->markers) {
    const std::string& literal = marker.literal;
    marker.fallback.assign(literal.size(), 0);
    uint32_t border = 0;
    for (size_t i = 1; i < literal.size(); ++i) {
      while (border > 0 && literal[i] != literal[border]) border = marker.fallback[border - 1];
      if (literal[i] == literal[border]) ++border;
      marker.fallback[i] = border;
    }
    spec->starts[static_cast<uint8_t>(literal[0])] = true;
    if (marker.eats_newlines) spec->eats_newlines = true;
  }
  if (spec->eats_newlines) spec->starts[static_cast<uint8_t>('\n')] = true;
}

}  // namespace

StageTable BuildStages(const StreamParserOptions& options) {
  StageTable table;
  Builder build(&table);
  build.In(Stage::kReasoning, Unclaimed::kReasoning)
      .Tools(options.tools)
      .On(kThinkEndToken, options.json ? Stage::kJsonLead : Stage::kContent)
      .EatingNewlines()
      .Trimming();
  build.In(Stage::kContent, Unclaimed::kContent)
      .Stops(options.stops)
      .Tools(options.tools)
      .On(kThinkEndToken, Stage::kContent);  // a stray one vanishes
  build.In(Stage::kRaw, Unclaimed::kContent).Stops(options.stops);
  build.In(Stage::kDone, Unclaimed::kDrop);
  if (options.json) AddJson(options, build);
  if (options.tools == ToolSyntax::kDsml) AddDsml(build);
  if (options.tools == ToolSyntax::kV31Tokens || options.tools == ToolSyntax::kV3Tokens) {
    AddTokenSyntax(options.tools, build);
  }
  for (StageSpec& spec : table) Compile(&spec);
  return table;
}

Stage FirstStage(const StreamParserOptions& options) {
  switch (options.start) {
    case AnswerStart::kReasoning:
    case AnswerStart::kReasoningContinued:
      return Stage::kReasoning;
    case AnswerStart::kToolCalls:
      if (options.tools == ToolSyntax::kDsml) return Stage::kCalls;
      return options.tools == ToolSyntax::kNone ? Stage::kContent : Stage::kTokenCalls;
    case AnswerStart::kRaw:
      return Stage::kRaw;
    case AnswerStart::kContent:
    case AnswerStart::kContentContinued:
      break;
  }
  return options.json ? Stage::kJsonLead : Stage::kContent;
}

}  // namespace weir::codec
