// SPDX-License-Identifier: Apache-2.0
#include "router/bench/router_bench.h"

#include <time.h>

#include <memory>
#include <string>
#include <vector>

#include "codec/template/template.h"
#include "codec/token/tokenizer.h"
#include "router/front/dispatcher.h"
#include "router/front/memory_responder.h"

namespace weir::router {
namespace {

constexpr InstanceId kSelf{1};
constexpr InstanceId kPrefill{2};
constexpr InstanceId kDecode{3};

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The printable stand-in of a byte in byte-level vocabularies.
std::string StandIn(int byte, int* next) {
  const bool itself =
      (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int code = itself ? byte : 256 + (*next)++;
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
}

// A tokenizer of single bytes with the control tokens a chat needs.
std::string ByteTokenizerJson() {
  std::string vocab;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text = StandIn(byte, &next);
    if (byte > 0) vocab += ',';
    vocab += text == "\"" || text == "\\" ? "\"\\" + text : "\"" + text;
    vocab += "\":" + std::to_string(byte);
  }
  std::string added;
  int id = 256;
  for (const std::string_view spelling :
       {codec::kBosToken, codec::kEosToken, codec::kPadToken, codec::kUserToken,
        codec::kAssistantToken, codec::kThinkToken, codec::kThinkEndToken}) {
    if (!added.empty()) added += ',';
    added += "{\"id\":" + std::to_string(id++) + ",\"content\":\"" + std::string(spelling) +
             "\",\"special\":true,\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
             "\"normalized\":false}";
  }
  return "{\"added_tokens\":[" + added +
         "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
         "false,\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
         "\"BPE\",\"vocab\":{" +
         vocab + "},\"merges\":[]}}";
}

class Bench {
 public:
  explicit Bench(const RouterBenchOptions& options)
      : options_(options),
        loop_({.name = "bench"}),
        dispatcher_(CoreConfig(options), [this](InstanceId, const pb::Envelope& message) {
          if (message.has_reserve()) reserved_.push_back(message.reserve());
        }) {}

  absl::Status Open() {
    WEIR_ASSIGN(auto tokenizer, codec::Tokenizer::FromJson(ByteTokenizerJson()));
    HttpFront::Options front;
    front.model.name = "bench";
    WEIR_ASSIGN(front.model.renderer,
                codec::Renderer::Create(tokenizer, codec::TemplateKind::kV31,
                                        tokenizer->vocab().size()));
    front.model.stop_tokens = {257};
    front.backend = &dispatcher_;
    front_ = std::make_unique<HttpFront>(std::move(front));
    dispatcher_.SetFront(front_.get());
    Register(kPrefill, pb::ROLE_KIND_PREFILL);
    Register(kDecode, pb::ROLE_KIND_DECODE);
    for (uint32_t i = 0; i < options_.streams; ++i) Ask();
    if (reserved_.size() != options_.streams) {
      return Error(Reason::kBug, "the bench's requests did not start");
    }
    return absl::OkStatus();
  }

  RouterBenchResult Run() {
    const std::vector<std::string> messages = Messages();
    pb::Envelope incoming;
    const double begin = ThreadSeconds();
    for (const std::string& bytes : messages) {
      incoming.ParseFromString(bytes);
      dispatcher_.Feed(Received{kDecode, incoming});
    }
    const double took = ThreadSeconds() - begin;
    RouterBenchResult result;
    result.tokens = dispatcher_.core().state().tokens_taken;
    result.us_per_token = took * 1e6 / static_cast<double>(std::max<uint64_t>(result.tokens, 1));
    for (const auto& client : clients_) result.bytes_written += client->bytes();
    return result;
  }

 private:
  static RouterCore::Config CoreConfig(const RouterBenchOptions& options) {
    RouterCore::Config config;
    config.self = kSelf;
    config.requests_max = options.streams;
    return config;
  }

  void Register(InstanceId id, pb::RoleKind role) {
    pb::Hello hello;
    hello.set_instance(id.value);
    hello.set_role(role);
    hello.mutable_geometry()->set_vocab(263);
    dispatcher_.Feed(PeerUp{id, hello});
  }

  void Ask() {
    HttpRequest request;
    request.method = "POST";
    request.target = "/v1/chat/completions";
    request.body =
        R"({"model":"bench","stream":true,"messages":[{"role":"user","content":"Tell me."}]})";
    clients_.push_back(std::make_shared<MemoryResponder>(&loop_, /*keep=*/false));
    front_->Handle(std::move(request), clients_.back());
  }

  // All messages in the order in which steps would send them: one of each stream in turn.
  std::vector<std::string> Messages() const {
    constexpr std::string_view kText = "the quick brown fox jumps over the lazy dog, and then? ";
    std::vector<std::string> messages;
    for (uint32_t event = 0; event < options_.events_per_stream; ++event) {
      for (const pb::Reserve& reserve : reserved_) {
        pb::Envelope message;
        pb::TokenRow* row = message.mutable_tokens()->add_rows();
        *row->mutable_key() = reserve.key();
        const uint32_t first = event * options_.tokens_per_event;
        row->set_position(reserve.token_count() + first);
        for (uint32_t i = 0; i < options_.tokens_per_event; ++i) {
          row->add_ids(static_cast<unsigned char>(kText[(first + i) % kText.size()]));
        }
        messages.push_back(message.SerializeAsString());
      }
    }
    return messages;
  }

  const RouterBenchOptions options_;
  Loop loop_;
  std::vector<pb::Reserve> reserved_;
  Dispatcher dispatcher_;
  std::unique_ptr<HttpFront> front_;
  std::vector<std::shared_ptr<MemoryResponder>> clients_;
};

}  // namespace

absl::StatusOr<RouterBenchResult> BenchRouter(const RouterBenchOptions& options) {
  if (options.streams == 0 || options.events_per_stream == 0 || options.tokens_per_event == 0) {
    return Error(Reason::kBadField, "streams, events and tokens must not be 0");
  }
  Bench bench(options);
  WEIR_TRY(bench.Open());
  return bench.Run();
}

}  // namespace weir::router
