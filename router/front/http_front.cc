// SPDX-License-Identifier: Apache-2.0
#include "router/front/http_front.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/obs/trace.h"
#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/hash.h"
#include "codec/dialect/error_body.h"
#include "codec/dialect/models_body.h"
#include "router/front/prepare.h"
#include "router/limits.h"

namespace weir::router {

namespace {

// Bits of a request id that name its slot.
constexpr int kSlotBits = 20;
constexpr uint64_t kSlotMask = (uint64_t{1} << kSlotBits) - 1;

void SendError(const absl::Status& status, codec::ErrorShape shape, std::string_view request_id,
               HttpResponder* responder, int http = 0, HttpHeaders headers = {}) {
  codec::ErrorReply reply = codec::MakeErrorReply(status, shape, request_id);
  for (auto& [name, value] : reply.headers) headers.push_back({std::move(name), std::move(value)});
  responder->Respond(http == 0 ? reply.http : http, std::move(headers), std::move(reply.body));
}

// Takes as long for every wrong key of one length, so that keys cannot be guessed byte by byte.
bool SameKey(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace

HttpFront::HttpFront(Options options)
    : options_(std::move(options)),
      history_(std::make_shared<codec::PromptHistory>(options_.history_bytes_max)),
      random_(options_.seed) {
  WEIR_CHECK(options_.backend != nullptr && options_.model.renderer != nullptr);
}

HttpFront::~HttpFront() = default;

void HttpFront::Handle(HttpRequest request, std::shared_ptr<HttpResponder> responder) {
  if (options_.answer_admin && options_.answer_admin(request, responder.get())) return;
  Target target = TargetOf(request.path());
  // The list of models is at one place for the clients of both.
  if (FindHeader(request.headers, "anthropic-version") != nullptr) {
    target.shape = codec::ErrorShape::kAnthropic;
  }
  if (target.page == Page::kNone) {
    SendError(Error(Reason::kUnknownModel, "there is nothing at " + std::string(request.path())),
              target.shape, request.id, responder.get());
    return;
  }
  const bool posts = TakesBody(target.page);
  if (posts && request.method == "POST") {
    return Complete(target, std::move(request), std::move(responder));
  }
  if (!posts && (request.method == "GET" || request.method == "HEAD")) {
    return Models(request, responder.get(), target);
  }
  SendError(Error(Reason::kBadField, std::string(request.path()) + " does not take " +
                                         request.method + ", only " + (posts ? "POST" : "GET")),
            target.shape, request.id, responder.get(), 405,
            {{"allow", posts ? "POST" : "GET, HEAD"}});
}

codec::ModelCard HttpFront::Card() const {
  codec::ModelCard card;
  card.id = options_.model.name;
  card.created = options_.model.created;
  card.max_model_len = options_.model.positions_max;
  const FleetView& fleet = options_.backend->fleet().view();
  for (const Role role : {Role::kPrefill, Role::kDecode}) {
    const uint32_t fits = fleet.SequenceTokensMax(role);
    if (fits > 0 && card.max_model_len > 0) card.max_model_len = std::min(card.max_model_len, fits);
  }
  return card;
}

void HttpFront::Models(const HttpRequest& request, HttpResponder* responder,
                       const Target& target) {
  const codec::ModelCard card = Card();
  const HttpHeaders headers = {{"content-type", "application/json"}};
  if (target.page == Page::kModels) {
    responder->Respond(200, headers, codec::ModelListBody({&card, 1}));
  } else if (target.model == card.id) {
    responder->Respond(200, headers, codec::ModelBody(card));
  } else {
    SendError(UnknownModel(target.model, card.id), target.shape, request.id, responder);
  }
}

absl::StatusOr<std::string> HttpFront::Authorise(const HttpHeaders& headers) const {
  if (options_.api_keys.empty()) return std::string();
  std::string_view key;
  if (const std::string* header = FindHeader(headers, "authorization")) {
    constexpr std::string_view kBearer = "bearer ";
    std::string scheme = header->substr(0, kBearer.size());
    for (char& c : scheme) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (scheme == kBearer) key = std::string_view(*header).substr(kBearer.size());
  } else if (const std::string* other = FindHeader(headers, "x-api-key")) {
    key = *other;
  }
  if (key.empty()) {
    return Error(Reason::kNoKey, "an API key is needed: send it as 'authorization: Bearer KEY'");
  }
  bool known = false;
  for (const std::string& allowed : options_.api_keys) known |= SameKey(key, allowed);
  if (!known) return Error(Reason::kNoKey, "the API key is not known here");
  return HexOf(Sha256(BytesOf(key)));
}

void HttpFront::Complete(const Target& target, HttpRequest request,
                         std::shared_ptr<HttpResponder> responder) {
  const Instant begun = Now();
  Arrival arrival{request.id, target.shape, std::move(responder), begun,
                  BeginSpan(target.page, request.headers, begun), nullptr};
  Read(target.page, std::move(request.body), request.headers, std::move(arrival));
}

void HttpFront::Ask(NativeAsk ask) {
  const Instant begun = Now();
  Span span = BeginSpan(ask.page, ask.key_headers, begun);
  span.name = ask.native->prepared ? "weir.v1.Front/Tokenize" : "weir.v1.Front/Generate";
  Arrival arrival{std::move(ask.request_id), codec::ErrorShape::kOpenAi, std::move(ask.responder),
                  begun, std::move(span), std::move(ask.native)};
  Read(ask.page, std::move(ask.body), ask.key_headers, std::move(arrival));
}

void HttpFront::Read(Page page, std::string body, const HttpHeaders& headers, Arrival arrival) {
  if (IsAnswered(page)) counters_.requests += 1;
  absl::StatusOr<std::string> tenant = Authorise(headers);
  absl::Status refusal = tenant.status();
  std::optional<Gate::Pass> pass = gate_.Enter();
  if (refusal.ok() && !pass) refusal = Error(Reason::kNoCapacity, "the server is shutting down");
  if (!refusal.ok()) return Reject(refusal, &arrival);
  // Longer ones are refused before the backend has to hear of them.
  const uint32_t positions = options_.model.positions_max;
  const size_t prompt_max = positions == 0 ? kPositionsDefault : std::min(positions, kPositionsDefault);
  Reading with{page, options_.limits, options_.model.name, *std::move(tenant),
               options_.model.renderer, history_, prompt_max};
  if (options_.pool == nullptr || body.size() <= kInlineBodyBytes) {
    Start(Prepare(with, body), std::move(arrival), *std::move(pass));
    return;
  }
  const size_t bytes = body.size();
  Loop* loop = &arrival.responder->loop();
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  arrival.responder->OnGone([gone] { *gone = true; });
  Task task = [this, loop, bytes, with = std::move(with), body = std::move(body), arrival,
               gone, pass = std::move(pass)]() mutable {
    absl::StatusOr<Prepared> prepared = Error(Reason::kCancelled, "the client has left");
    if (!*gone) prepared = Prepare(with, body);
    std::string().swap(body);
    loop->Post("prepared request",
               [this, bytes, prepared = std::move(prepared), arrival = std::move(arrival),
                pass = std::move(pass)]() mutable {
                 pooled_bytes_ -= bytes;
                 Start(std::move(prepared), std::move(arrival), *std::move(pass));
               });
  };
  const bool fits = pooled_bytes_ == 0 || pooled_bytes_ + bytes <= options_.pooled_bytes_max;
  if (fits && options_.pool->TryRun(std::move(task))) {
    counters_.pooled += 1;
    pooled_bytes_ += bytes;
    return;
  }
  WEIR_REACHED("front: pool is full");
  Reject(Error(Reason::kQueueFull, "too many large requests are being read already"), &arrival);
}

void HttpFront::Reject(const absl::Status& status, Arrival* arrival) {
  counters_.rejected += 1;
  if (arrival->native) {
    arrival->native->refuse(status);
  } else {
    SendError(status, arrival->shape, arrival->request_id, arrival->responder.get());
  }
  EndSpan(std::move(arrival->span), ReasonOf(status));
}

void HttpFront::Start(absl::StatusOr<Prepared> prepared, Arrival arrival, Gate::Pass pass) {
  if (arrival.responder->gone()) {
    if (ReasonOf(prepared.status()) == Reason::kCancelled) counters_.abandoned += 1;
    return EndSpan(std::move(arrival.span), Reason::kCancelled);
  }
  absl::Status refusal = prepared.status();
  if (refusal.ok() &&
      choices() + static_cast<size_t>(prepared->request.n) > static_cast<size_t>(kSlotMask)) {
    refusal = Error(Reason::kQueueFull, "the server already has too many requests");
  }
  if (!refusal.ok()) return Reject(refusal, &arrival);
  if (arrival.native && arrival.native->prepared) {
    arrival.native->prepared(*prepared);
    return EndSpan(std::move(arrival.span), Reason::kOk);
  }
  if (prepared->reply) {
    arrival.responder->Respond(200, {{"content-type", "application/json"}},
                               *std::move(prepared->reply));
    return EndSpan(std::move(arrival.span), Reason::kOk);
  }
  const codec::ChatRequest& request = prepared->request;
  codec::ResponseHead head;
  head.id = NewResponseId();
  head.created = WallMicros() / 1'000'000;
  head.model = request.model;
  Answer::Options options;
  options.responder = std::move(arrival.responder);
  const auto& tokenizer = options_.model.renderer->tokenizer();
  if (arrival.native) {
    options.response =
        arrival.native->make_response(request, prepared->prompt, tokenizer, std::move(head));
    options.refuse = arrival.native->refuse;
  } else {
    options.response =
        codec::Response::Create(request, prepared->prompt, tokenizer, std::move(head));
  }
  options.request_id = std::move(arrival.request_id);
  options.stream = request.stream.stream;
  options.begun = arrival.begun;
  options.span = std::move(arrival.span);
  options.span.attributes[0] = {"weir.prompt_tokens",
                                static_cast<int64_t>(prepared->prompt.ids.size())};
  options.known = prepared->prompt.known;
  options.prompt_tokens = prepared->prompt.ids.size();
  options.prompt_field = codec::PromptFieldOf(request.api);
  options.pass = std::move(pass);
  options.owner = this;
  const auto answer = std::make_shared<Answer>(std::move(options));
  std::vector<RequestId> ids;
  for (int i = 0; i < request.n; ++i) {
    ids.push_back(TakeSlot(answer, i));
    answer->AddChoice(ids.back());
  }
  answer->WatchClient();
  const uint64_t seed = request.sampling.seed.value_or(random_.Next());
  for (int i = 0; i < request.n; ++i) {
    // A choice that was refused at once has ended the answer and those after it.
    if (Find(ids[static_cast<size_t>(i)]) == nullptr) break;
    Submit submit;
    submit.request = ids[static_cast<size_t>(i)];
    submit.prompt = i + 1 < request.n ? prepared->prompt.ids : std::move(prepared->prompt.ids);
    submit.new_tokens_max = request.limits.max_tokens.value_or(0);
    submit.sampling =
        SamplingFor(request, i == 0 ? seed : MixInto(seed, static_cast<uint64_t>(i)));
    submit.trace = answer->span().context;
    submit.domain = {.account = request.tenant, .user = request.user, .salt = request.cache_salt};
    options_.backend->Ask(std::move(submit));
  }
}

pb::Sampling HttpFront::SamplingFor(const codec::ChatRequest& request, uint64_t seed) const {
  const codec::Sampling& from = request.sampling;
  pb::Sampling to;
  to.set_temperature(from.temperature);
  to.set_top_p(from.top_p);
  to.set_top_k(from.top_k);
  to.set_min_p(from.min_p);
  to.set_seed(seed);
  to.set_presence_penalty(from.presence_penalty);
  to.set_frequency_penalty(from.frequency_penalty);
  to.set_repetition_penalty(from.repetition_penalty);
  for (const auto& [token, bias] : from.logit_bias) {
    pb::LogitBias* entry = to.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  to.set_logprobs(request.logprobs.enabled);
  to.set_top_logprobs(static_cast<uint32_t>(request.logprobs.top));
  to.set_min_tokens(request.limits.min_tokens);
  if (request.limits.ignore_eos) return to;
  for (const TokenId stop : options_.model.stop_tokens) to.add_stop_tokens(stop);
  const auto& geometry = options_.backend->fleet().geometry();
  if (to.stop_tokens_size() == 0 && geometry) {
    *to.mutable_stop_tokens() = geometry->stop_tokens();
  }
  return to;
}

std::string HttpFront::NewResponseId() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 2; ++word) {
    uint64_t bits = random_.Next();
    for (int i = 0; i < 16; ++i, bits >>= 4) id.push_back(kDigits[bits & 15]);
  }
  return id;
}

RequestId HttpFront::TakeSlot(const std::shared_ptr<Answer>& answer, int choice) {
  uint32_t index;
  if (free_.empty()) {
    index = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  slots_[index] = {++last_serial_ << kSlotBits | index, answer, choice};
  return RequestId{slots_[index].id};
}

HttpFront::Slot* HttpFront::Find(RequestId request) {
  const uint64_t index = request.value & kSlotMask;
  if (index >= slots_.size() || slots_[index].id != request.value) return nullptr;
  return &slots_[index];
}

void HttpFront::FreeSlot(Slot* slot) {
  const auto index = static_cast<uint32_t>(slot - slots_.data());
  *slot = Slot{};
  free_.push_back(index);
}

void HttpFront::OnDeliver(const RouterActions::Deliver& delivery) {
  Slot* slot = Find(delivery.request);
  if (slot == nullptr) return;
  // The answer may end in this call and give its slot up.
  const std::shared_ptr<Answer> answer = slot->answer;
  answer->OnDeliver(slot->choice, delivery);
}

void HttpFront::OnClose(const RouterActions::Close& close) {
  Slot* slot = Find(close.request);
  if (slot == nullptr) return;
  const std::shared_ptr<Answer> answer = slot->answer;
  const int choice = slot->choice;
  FreeSlot(slot);
  answer->OnClose(choice, close);
  if (options_.trace) TraceAnswer(*answer, close);
}

void HttpFront::TraceAnswer(const Answer& answer, const RouterActions::Close& close) const {
  const auto micros = [](Instant at) { return at.time_since_epoch().count() / 1000; };
  TraceRequest row;
  row.rid = static_cast<int64_t>(close.request.value);
  row.t_arrive = micros(answer.begun());
  if (answer.first_token() != Instant{}) row.t_first = micros(answer.first_token());
  row.t_done = micros(Now());
  row.in_len = close.prompt_tokens;
  row.hit_tok_l0 = close.cached_tokens;
  row.miss_tok = close.prompt_tokens - close.cached_tokens;
  row.out_len = close.answer_tokens;
  row.retries = close.attempts > 0 ? close.attempts - 1 : 0;
  row.outcome = InfoOf(ReasonOf(close.status)).name.data();  // a literal of the table
  Trace(options_.trace, row);
}

void HttpFront::OnSpans(std::span<Span> spans) {
  RecordAll(spans, "router", options_.instance, options_.spans);
}

// Of the trace that the client began, or of a new one.
Span HttpFront::BeginSpan(Page page, const HttpHeaders& headers, Instant begun) {
  Span span;
  if (options_.spans == nullptr) return span;
  span.name = NameOf(page);
  span.kind = SpanKind::kServer;
  span.begin = begun;
  const std::string* header = FindHeader(headers, "traceparent");
  if (const auto parent = header ? ParseTraceparent(*header) : std::nullopt) {
    span.context = ChildOf(*parent);
    span.parent = parent->span;
  } else {
    span.context = NewTrace(random_.Below(1000) < options_.sample_per_mille);
  }
  return span;
}

void HttpFront::EndSpan(Span span, Reason reason) {
  if (!span.context.sampled) return;
  span.end = Now();
  span.reason = reason;
  OnSpans({&span, 1});
}

void HttpFront::Ended(Answer* answer, Reason reason) {
  // What was emitted before a client left may come back as the beginning of its next prompt.
  if (reason == Reason::kOk || reason == Reason::kCancelled) Remember(answer);
  if (!answer->span().context.sampled) return;
  Span span = answer->span();
  span.request_id = answer->request_id();
  span.first_token = answer->first_token();
  span.attributes[1] = {"weir.answer_tokens", static_cast<int64_t>(answer->tokens())};
  EndSpan(std::move(span), reason);
}

// What was emitted, so that the same text in a later prompt has the same ids.
void HttpFront::Remember(Answer* answer) {
  std::shared_ptr<const codec::KnownText> known = answer->known();
  if (known == nullptr) return;
  std::vector<std::vector<TokenId>> choices;
  for (size_t i = 0; i < answer->choices(); ++i) choices.push_back(answer->TakeEmitted(i));
  Task task = [history = history_, tokenizer = options_.model.renderer->tokenizer(),
               known = std::move(known), choices = std::move(choices)] {
    for (const auto& ids : choices) history->AddAnswer(tokenizer->vocab(), known, ids);
  };
  if (options_.pool == nullptr || answer->prompt_tokens() <= kInlineHistoryTokens) return task();
  if (options_.pool->TryRun(std::move(task))) return;
  WEIR_REACHED("front: pool is full, an answer is forgotten");
}

void HttpFront::Withdrawn(RequestId request, bool satisfied) {
  Slot* slot = Find(request);
  if (slot == nullptr) return;
  FreeSlot(slot);
  options_.backend->Leave({request, satisfied});
}

void HttpFront::FirstToken(const Answer& answer) {
  counters_.first_tokens += 1;
  if (options_.on_first_token) options_.on_first_token(Seconds(Now() - answer.begun()));
}

void HttpFront::KeepAlive(Instant now) {
  for (const Slot& slot : slots_) {
    if (slot.id != 0 && slot.choice == 0) slot.answer->KeepAlive(now, kKeepAliveSilence);
  }
}

void HttpFront::Drain(Task empty) { gate_.Close(std::move(empty)); }

}  // namespace weir::router
