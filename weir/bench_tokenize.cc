// SPDX-License-Identifier: Apache-2.0
#include "weir/bench_tokenize.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/runtime/pool.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "codec/prompt/prompt.h"
#include "codec/token/parallel.h"

namespace weir {
namespace {

using codec::Tokenizer;

// What a client sends at once: texts are also encoded cut into documents of about this size.
constexpr size_t kDocumentBytes = 16384;
constexpr size_t kPromptTokens = 1'000'000;
constexpr size_t kConversationTokens = 100'000;
constexpr size_t kTurnTokens = 500;
constexpr size_t kAppendTokens = 2'000;
constexpr size_t kCacheBytes = size_t{192} << 20;  // more than a processor's last cache

double CpuMillis(clockid_t clock) {
  timespec at;
  clock_gettime(clock, &at);
  return static_cast<double>(at.tv_sec) * 1e3 + static_cast<double>(at.tv_nsec) / 1e6;
}

double Measure(clockid_t clock, const std::function<void()>& run) {
  const double from = CpuMillis(clock);
  run();
  return CpuMillis(clock) - from;
}

// What disturbs a run only ever adds.
double Least(int runs, const std::function<double()>& measure) {
  double least = measure();
  for (int i = 1; i < runs; ++i) least = std::min(least, measure());
  return least;
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::vector<std::string_view> Documents(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    size_t size = std::min(kDocumentBytes, text.size());
    while (size < text.size() && (static_cast<uint8_t>(text[size]) & 0xC0) == 0x80) ++size;
    documents.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return documents;
}

// The second thread stands ready, as those of a server do.
void OnTwoThreads(Pool* other, size_t count, absl::FunctionRef<void(size_t)> job) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) job(i);
  };
  absl::Notification done;
  WEIR_CHECK(other->TryRun([&] {
    work();
    done.Notify();
  }));
  work();
  done.WaitForNotification();
}

// A text of so many tokens, repeated as often as that takes.
std::string TextOf(const Tokenizer& tokenizer, std::string_view source, size_t tokens) {
  std::string text;
  std::vector<TokenId> ids;
  while (ids.size() < tokens) {
    for (const std::string_view document : Documents(source)) {
      text += document;
      tokenizer.Encode(document, &ids);
      if (ids.size() >= tokens) break;
    }
  }
  return text;
}

struct Figures {
  size_t bytes = 0;
  size_t tokens = 0;
  double documents_ms = 0;  // one thread, document by document
  double one_ms = 0;        // one thread, all at once
  double two_ms = 0;        // two threads, their sum
  double prompt_ms = 0;     // a million tokens, caches cold
  double append_ms = 0;     // a turn more in a long conversation, rendering included
  bool equal = true;        // two threads gave the ids of one
};

double MeasureColdPrompt(const Tokenizer& tokenizer, std::string_view source, int runs) {
  const std::string prompt = TextOf(tokenizer, source, kPromptTokens);
  std::string evict(kCacheBytes, '\0');
  char value = 0;
  return Least(runs, [&] {
    std::fill(evict.begin(), evict.end(), ++value);
    std::vector<TokenId> ids;
    return Measure(CLOCK_THREAD_CPUTIME_ID, [&] { tokenizer.Encode(prompt, &ids); });
  });
}

codec::Message Says(codec::Author author, std::string_view text) {
  codec::Message message;
  message.author = author;
  message.parts.emplace_back(codec::TextPart{std::string(text)});
  return message;
}

// Rendering of one more user turn, from the request's messages to the ids of the whole prompt.
double MeasureAppend(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view source,
                     int runs) {
  const auto renderer =
      codec::Renderer::Create(tokenizer, codec::TemplateKind::kV3, tokenizer->vocab().size());
  if (!renderer.ok()) return -1;  // a vocabulary without turn tokens
  const size_t tokens = kConversationTokens + static_cast<size_t>(runs) * kAppendTokens;
  const std::string all = TextOf(*tokenizer, source, tokens);
  std::string_view rest = all;
  const auto take = [&](size_t count) {
    const size_t size = tokenizer->SafeCut(rest, all.size() * count / tokens);
    const std::string_view taken = rest.substr(0, size);
    rest.remove_prefix(size);
    return taken;
  };
  codec::ChatRequest request;
  for (size_t i = 0; i < kConversationTokens / kTurnTokens; ++i) {
    const auto author = i % 2 == 0 ? codec::Author::kUser : codec::Author::kAssistant;
    request.conversation.messages.push_back(Says(author, take(kTurnTokens)));
  }
  codec::PromptHistory history(size_t{64} << 20);
  if (!(*renderer)->Render(request, SIZE_MAX, &history).ok()) return -1;
  return Least(runs, [&] {
    codec::ChatRequest next = request;
    next.conversation.messages.push_back(Says(codec::Author::kUser, take(kAppendTokens)));
    return Measure(CLOCK_THREAD_CPUTIME_ID, [&] {
      (void)(*renderer)->Render(next, SIZE_MAX, &history);
    });
  });
}

Figures MeasureText(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& text,
                    bool quick) {
  const int runs = quick ? 5 : 9;
  Figures figures;
  figures.bytes = text.size();
  const std::vector<std::string_view> documents = Documents(text);
  figures.documents_ms = Least(runs, [&] {
    return Measure(CLOCK_THREAD_CPUTIME_ID, [&] {
      for (const std::string_view document : documents) {
        std::vector<TokenId> ids;
        tokenizer->Encode(document, &ids);
      }
    });
  });
  Pool other(1, 1);
  const auto on_two = [&other](size_t count, absl::FunctionRef<void(size_t)> job) {
    OnTwoThreads(&other, count, job);
  };
  std::vector<TokenId> one;
  std::vector<TokenId> two;
  for (int i = 0; i < runs; ++i) {  // in turn, so that both meet the same machine
    const double one_ms = Measure(CLOCK_PROCESS_CPUTIME_ID, [&] {
      one = {};
      tokenizer->Encode(text, &one);
    });
    const double two_ms = Measure(CLOCK_PROCESS_CPUTIME_ID, [&] {
      two = {};
      codec::EncodeInParallel(*tokenizer, text, on_two, &two);
    });
    figures.one_ms = i == 0 ? one_ms : std::min(figures.one_ms, one_ms);
    figures.two_ms = i == 0 ? two_ms : std::min(figures.two_ms, two_ms);
  }
  figures.tokens = one.size();
  figures.equal = one == two;
  figures.prompt_ms = MeasureColdPrompt(*tokenizer, text, quick ? 2 : 5);
  figures.append_ms = MeasureAppend(tokenizer, text, runs);
  return figures;
}

void Print(const std::string& name, const Figures& figures) {
  const auto rate = [&](double ms) { return static_cast<double>(figures.bytes) / 1e3 / ms; };
  std::printf("%s: %zu bytes, %zu tokens\n", name.c_str(), figures.bytes, figures.tokens);
  std::printf("  documents of 16 KiB      %8.1f MB/s\n", rate(figures.documents_ms));
  std::printf("  whole, one thread        %8.1f MB/s\n", rate(figures.one_ms));
  std::printf("  whole, two threads       %8.3f of one thread's CPU time%s\n",
              figures.two_ms / figures.one_ms, figures.equal ? "" : "  OTHER IDS");
  std::printf("  1,000,000 tokens, cold   %8.1f ms\n", figures.prompt_ms);
  std::printf("  2,000 more of 100,000    %8.3f ms\n", figures.append_ms);
}

std::string JsonOf(const Figures& figures) {
  return absl::StrCat("{\"bytes\":", figures.bytes, ",\"tokens\":", figures.tokens,
                      ",\"documents_ms\":", figures.documents_ms, ",\"one_ms\":", figures.one_ms,
                      ",\"two_ms\":", figures.two_ms, ",\"prompt_ms\":", figures.prompt_ms,
                      ",\"append_ms\":", figures.append_ms,
                      ",\"equal\":", figures.equal ? "true" : "false", "}");
}

}  // namespace

int BenchTokenize(const TokenizeBenchArgs& args) {
  const auto tokenizer = Tokenizer::FromFile(args.tokenizer);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "weir bench tokenize: %s\n",
                 std::string(StdView(tokenizer.status().message())).c_str());
    return 1;
  }
  std::string json;
  bool good = true;
  for (const std::string& path : args.texts) {
    const std::string text = ReadFile(path);
    if (text.empty()) {
      std::fprintf(stderr, "weir bench tokenize: cannot read %s\n", path.c_str());
      return 1;
    }
    const Figures figures = MeasureText(*tokenizer, text, args.quick);
    good = good && figures.equal;
    if (!args.json) Print(path, figures);
    absl::StrAppend(&json, json.empty() ? "" : ",", JsonOf(figures));
  }
  if (args.json) std::printf("[%s]\n", json.c_str());
  return good ? 0 : 1;
}

}  // namespace weir
