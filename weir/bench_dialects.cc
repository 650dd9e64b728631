// SPDX-License-Identifier: Apache-2.0
#include "weir/bench_dialects.h"

#include <malloc.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "codec/dialect/chat.h"
#include "codec/prompt/prompt.h"
#include "codec/stream/response.h"
#include "codec/template/template.h"

namespace weir {
namespace {

constexpr size_t kBodyBytes = 4'000'000;
constexpr size_t kTurnBytes = 1000;
constexpr int kAnswerTokens = 20000;
constexpr int kTopLogprobs = 5;

// As it stands in a body: escapes, a tab, letters of two and three bytes.
constexpr std::string_view kEscaped =
    "The \\\"answer\\\" to row 42 is in table\\t7: na\xC3\xAFve, but it holds \xE2\x80\x94 see "
    "{x: [1, 2]} and C:\\\\temp.\\n";

double CpuMicros() {
  timespec at;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<double>(at.tv_sec) * 1e6 + static_cast<double>(at.tv_nsec) / 1e3;
}

// A line of /proc/self/status in bytes; 0 where the kernel has none.
size_t MemoryOf(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    return static_cast<size_t>(std::atoll(line.c_str() + name.size())) * 1024;
  }
  return 0;
}

// By how much the process grew at most while `run` ran.
size_t PeakGrowth(const std::function<void()>& run) {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak begins anew
  const size_t before = MemoryOf("VmRSS:");
  run();
  return MemoryOf("VmHWM:") - std::min(MemoryOf("VmHWM:"), before);
}

std::string Text(size_t bytes) {
  std::string text;
  text.reserve(bytes + kEscaped.size());
  while (text.size() < bytes) text += kEscaped;
  return text;
}

std::string OneText() {
  return "{\"messages\":[{\"role\":\"user\",\"content\":\"" + Text(kBodyBytes) + "\"}]}";
}

std::string Turns(const std::function<std::string(size_t turn)>& turn) {
  std::string body;
  body.reserve(kBodyBytes + 8 * kTurnBytes);  // growing leaves holes, which the figures would tell of
  body += R"({"stream":true,"messages":[{"role":"system","content":"Be brief."})";
  for (size_t i = 0; body.size() < kBodyBytes; ++i) body += "," + turn(i);
  body += R"(,{"role":"user","content":"And now?"}],
      "tools":[{"type":"function","function":{"name":"run","parameters":
      {"type":"object","properties":{"command":{"type":"string"}}}}}]})";
  return body;
}

std::string Talk() {
  const std::string text = Text(kTurnBytes);
  return Turns([&](size_t i) {
    const std::string role = i % 2 == 0 ? "user" : "assistant";
    return R"({"role":")" + role + R"(","content":")" + text + "\"}";
  });
}

// A turn of an agent's: why, a call, its result.
std::string Work() {
  const std::string text = Text(kTurnBytes);
  return Turns([&](size_t i) {
    const std::string id = "\"call_" + std::to_string(i) + "\"";
    return R"({"role":"assistant","reasoning_content":")" + text +
           R"(","content":"","tool_calls":[{"id":)" + id +
           R"(,"type":"function","function":{"name":"run","arguments":"{\"command\": \"ls -l\"}"}}]},)"
           R"({"role":"tool","tool_call_id":)" +
           id + R"(,"content":")" + text + text + "\"}";
  });
}

struct BodyFigures {
  double millis = std::numeric_limits<double>::infinity();  // least: what disturbs only ever adds
  double first_millis = 0;  // with every page of memory still to come from the kernel
  double growth = 0;        // the first time, by the size of the body
};

double BodyMillis(const codec::Template& tmpl, const std::string& body) {
  const double from = CpuMicros();
  const auto request = codec::ParseChat(body, {});
  WEIR_CHECK(request.ok());
  const auto rendered = tmpl.Render(request->conversation);
  WEIR_CHECK(rendered.ok() && !rendered->segments.pieces().empty());
  return (CpuMicros() - from) / 1e3;
}

BodyFigures MeasureBody(const codec::Template& tmpl, const std::string& body, int runs) {
  BodyFigures figures;
  BodyMillis(tmpl, R"({"messages":[{"role":"user","content":"Hi"}]})");  // the program's own pages
  const size_t growth = PeakGrowth([&] { figures.first_millis = BodyMillis(tmpl, body); });
  figures.growth = static_cast<double>(growth) / static_cast<double>(body.size());
  for (int run = 0; run < runs; ++run) {
    figures.millis = std::min(figures.millis, BodyMillis(tmpl, body));
  }
  return figures;
}

// In a process of its own, whose heap has no holes from bodies before. Nothing if that failed.
std::optional<BodyFigures> MeasureBodyApart(const codec::Template& tmpl, const std::string& body,
                                            int runs) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    const BodyFigures figures = MeasureBody(tmpl, body, runs);
    _exit(write(ends[1], &figures, sizeof(figures)) == sizeof(figures) ? 0 : 1);
  }
  close(ends[1]);
  BodyFigures figures;
  const bool whole = child > 0 && read(ends[0], &figures, sizeof(figures)) == sizeof(figures);
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return whole ? std::optional(figures) : std::nullopt;
}

// Ids of an answer that thinks, speaks and calls, over and over.
std::vector<TokenId> AnswerIds(const codec::Tokenizer& tokenizer) {
  std::vector<TokenId> ids = tokenizer.EncodeTrusted("Let me see what there is first.</think>");
  const std::vector<TokenId> line = tokenizer.EncodeTrusted(
      "The \"answer\" of 42 rows is in the table, \xE2\x80\x94 see below.\n");
  const std::vector<TokenId> call = tokenizer.EncodeTrusted(
      "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"run\">\n<｜DSML｜ parameter name=\"command\" "
      "string=\"true\">cat <<END\n");
  while (ids.size() < kAnswerTokens / 2) ids.insert(ids.end(), line.begin(), line.end());
  ids.insert(ids.end(), call.begin(), call.end());
  while (ids.size() < kAnswerTokens) ids.insert(ids.end(), line.begin(), line.end());
  return ids;
}

// CPU time of one streamed token, whatever it turns into.
double MeasureStream(const std::shared_ptr<const codec::Tokenizer>& tokenizer, codec::Api api,
                     bool logprobs, int runs) {
  codec::ChatRequest request;
  request.api = api;
  request.stream.stream = true;
  request.logprobs = {logprobs, logprobs ? kTopLogprobs : 0};
  request.limits.stop = {"\nObservation:", "STOP"};
  request.conversation.tools.emplace_back().name = "run";
  codec::Prompt prompt;
  prompt.ids = {1, 2, 3};
  prompt.start =
      api == codec::Api::kCompletions ? codec::AnswerStart::kRaw : codec::AnswerStart::kReasoning;
  prompt.tools =
      api == codec::Api::kCompletions ? codec::ToolSyntax::kNone : codec::ToolSyntax::kDsml;
  prompt.thinking = api != codec::Api::kCompletions;
  const std::vector<TokenId> ids = AnswerIds(*tokenizer);
  codec::TokenLogprob score;
  score.logprob = -0.25f;
  const codec::TokenLogprobs scores(&score, logprobs ? 1 : 0);
  for (int i = 0; i < kTopLogprobs; ++i) score.top.emplace_back(i + 10, score.logprob - 1);
  double least = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    const auto response = codec::Response::Create(request, prompt, tokenizer,
                                                  {"0123456789abcdef", 1700000000, "m", "", "r"});
    std::string out;
    const double from = CpuMicros();
    response->Start(&out);
    for (const TokenId& id : ids) {
      response->Push(0, {&id, 1}, scores, &out);
      if (out.size() > 4096) out.clear();
    }
    response->Finish(0, codec::EngineFinish::kStop, &out);
    least = std::min(least, (CpuMicros() - from) / static_cast<double>(ids.size()));
  }
  return least;
}

}  // namespace

int BenchDialects(const DialectsBenchArgs& args) {
  const auto tokenizer = codec::Tokenizer::FromFile(args.tokenizer);
  const auto refuse = [](const absl::Status& status) {
    std::fprintf(stderr, "weir bench dialects: %s\n",
                 std::string(StdView(status.message())).c_str());
    return 1;
  };
  if (!tokenizer.ok()) return refuse(tokenizer.status());
  const auto tmpl = codec::Template::Create(codec::TemplateKind::kV41, (*tokenizer)->vocab());
  if (!tmpl.ok()) return refuse(tmpl.status());
  const int runs = args.quick ? 5 : 25;
  std::string json = "{";
  const auto print = [&](std::string_view name, std::string_view unit, double value) {
    if (!args.json) {
      std::printf("  %-24.*s %8.2f %.*s\n", static_cast<int>(name.size()), name.data(), value,
                  static_cast<int>(unit.size()), unit.data());
    }
    absl::StrAppend(&json, json.size() > 1 ? "," : "", "\"", AbslView(name), "\":", value);
  };
  const std::pair<std::string_view, std::string> bodies[] = {
      {"one_text", OneText()}, {"talk", Talk()}, {"work", Work()}};
  if (!args.json) std::printf("a chat body of 4 MB, parsed and rendered\n");
  for (const auto& [name, body] : bodies) {
    const std::optional<BodyFigures> figures = MeasureBodyApart(**tmpl, body, runs);
    if (!figures) return refuse(absl::InternalError("a measuring process failed"));
    print(std::string(name) + "_ms", "ms of CPU", figures->millis);
    print(std::string(name) + "_first", "ms of CPU the first time", figures->first_millis);
    print(std::string(name) + "_growth", "times the body at most, the first time", figures->growth);
  }
  if (!args.json) std::printf("a streamed token, parsed and written\n");
  const std::pair<std::string_view, codec::Api> apis[] = {{"chat", codec::Api::kChat},
                                                          {"completions", codec::Api::kCompletions},
                                                          {"messages", codec::Api::kMessages},
                                                          {"responses", codec::Api::kResponses}};
  for (const auto& [name, api] : apis) {
    print(std::string(name) + "_us", "us of CPU", MeasureStream(*tokenizer, api, false, runs));
  }
  print("chat_logprobs_us", "us of CPU", MeasureStream(*tokenizer, codec::Api::kChat, true, runs));
  if (args.json) std::printf("%s}\n", json.c_str());
  return 0;
}

}  // namespace weir
