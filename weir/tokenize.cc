// SPDX-License-Identifier: Apache-2.0
#include "weir/tokenize.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/status.h"
#include "codec/conversation/json_text.h"
#include "codec/dialect/chat.h"
#include "codec/dialect/completions.h"
#include "router/front/served_model.h"
#include "weir/commands.h"

namespace weir {
namespace {

// Of what is shown on either side of a place.
constexpr size_t kTokensBefore = 24;
constexpr size_t kTokensAfter = 12;

constexpr int kExitFailed = 1;
constexpr int kExitBadUsage = 2;

std::string Quoted(const codec::Tokenizer& tokenizer, std::span<const TokenId> ids) {
  std::string text;
  codec::AppendJsonString(tokenizer.Decode({ids.begin(), ids.end()}), &text);
  return text;
}

// What one of the prompts goes on with.
std::string RestOf(const codec::Tokenizer& tokenizer, char name, std::span<const TokenId> ids,
                   size_t from) {
  if (from == ids.size()) return absl::StrCat("  ", std::string(1, name), " ends here\n");
  const std::span<const TokenId> shown =
      ids.subspan(from, std::min(kTokensAfter, ids.size() - from));
  std::string line = absl::StrCat("  ", std::string(1, name), " goes on  ", Quoted(tokenizer, shown), " ");
  for (const TokenId id : shown) absl::StrAppend(&line, " ", id);
  return line + "\n";
}

absl::StatusOr<std::string> ReadBody(const std::string& path) {
  if (path == "-") {
    return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error(Reason::kBadField, "cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

// A chat where the body says `messages`, else a completion.
absl::StatusOr<codec::Prompt> PromptOf(const codec::Renderer& renderer, const std::string& path) {
  WEIR_ASSIGN(const std::string body, ReadBody(path));
  const codec::RequestLimits limits;
  auto request = codec::ParseChat(body, limits);
  if (!request.ok() && ParamOf(request.status()) == "messages") {
    if (auto completion = codec::ParseCompletions(body, limits); completion.ok()) {
      request = std::move(completion);
    }
  }
  if (!request.ok()) {
    return Error(ReasonOf(request.status()),
                 path + ": " + std::string(StdView(request.status().message())));
  }
  return renderer.Render(*request, SIZE_MAX / 2);
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "weir tokenize: %s\n", std::string(StdView(status.message())).c_str());
  return kExitBadUsage;
}

void PrintIds(const codec::Tokenizer& tokenizer, const codec::Prompt& prompt, bool json) {
  std::string line;
  for (const TokenId id : prompt.ids) absl::StrAppend(&line, line.empty() ? "" : json ? "," : " ", id);
  if (json) {
    std::printf("{\"count\":%zu,\"ids\":[%s],\"text\":%s}\n", prompt.ids.size(), line.c_str(),
                Quoted(tokenizer, prompt.ids).c_str());
  } else {
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace

std::string DescribeParting(const codec::Tokenizer& tokenizer, std::span<const TokenId> a,
                            std::span<const TokenId> b) {
  const auto parting = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  const auto same = static_cast<size_t>(parting - a.begin());
  if (same == a.size() && same == b.size()) {
    return absl::StrCat("the same prompt of ", same, " tokens\n");
  }
  const size_t shown = std::min(kTokensBefore, same);
  return absl::StrCat("the same for ", same, " tokens, of ", a.size(), " in A and ", b.size(),
                      " in B\n  both have  ", Quoted(tokenizer, a.subspan(same - shown, shown)), "\n",
                      RestOf(tokenizer, 'A', a, same), RestOf(tokenizer, 'B', b, same));
}

int RunTokenize(const TokenizeArgs& args) {
  const auto model = router::LoadServedModel({.directory = args.model,
                                              .template_name = args.template_name,
                                              .earlier_reasoning = args.earlier_reasoning,
                                              .keep_attribution = args.keep_attribution});
  if (!model.ok()) return Fail(model.status());
  const codec::Renderer& renderer = *model->renderer;
  const codec::Tokenizer& tokenizer = *renderer.tokenizer();
  const std::vector<std::string>& paths = args.diff.empty() ? args.bodies : args.diff;
  std::vector<codec::Prompt> prompts;
  for (const std::string& path : paths) {
    auto prompt = PromptOf(renderer, path);
    if (!prompt.ok()) return Fail(prompt.status());
    prompts.push_back(*std::move(prompt));
  }
  if (args.diff.empty()) {
    for (const codec::Prompt& prompt : prompts) PrintIds(tokenizer, prompt, args.json);
    return 0;
  }
  std::printf("%s", DescribeParting(tokenizer, prompts[0].ids, prompts[1].ids).c_str());
  return prompts[0].ids == prompts[1].ids ? 0 : kExitFailed;
}

}  // namespace weir
