// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <deque>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/impl/codegen/server_callback_handlers.h>
#include <grpcpp/impl/rpc_service_method.h>
#include <grpcpp/impl/service_type.h>

#include "base/net/http_server.h"
#include "base/net/http_text.h"
#include "base/net/listen_error.h"
#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "codec/dialect/error_body.h"
#include "proto/front.pb.h"
#include "router/front/http_front.h"
#include "router/front/native_front.h"
#include "router/front/native_request.h"
#include "router/front/native_response.h"
#include "router/front/prepare.h"

namespace weir::router {
namespace {

constexpr size_t kHighWatermark = 256 * 1024;  // bytes of events that wait for a client
constexpr int64_t kCloseGraceMs = 1000;

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  return std::string(found->second.data(), found->second.size());
}

// The key of a call, as HttpFront reads it from a header.
HttpHeaders KeyHeadersOf(const grpc::CallbackServerContext& context) {
  HttpHeaders headers;
  for (const char* name : {"authorization", "x-api-key"}) {
    std::string value = MetadataOf(context, name);
    if (!value.empty()) headers.push_back({name, std::move(value)});
  }
  return headers;
}

// gRPC aborts the process over a value that HTTP/2 does not allow, and parts of these are clients' text.
void AddTrailer(grpc::CallbackServerContext* context, const char* key, std::string value) {
  for (char& c : value) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (!value.empty()) context->AddTrailingMetadata(key, value);
}

// Adds what a client can act on as trailing metadata.
grpc::Status StatusFor(const absl::Status& status, std::string_view request_id,
                       grpc::CallbackServerContext* context) {
  const ReasonInfo& info = InfoOf(ReasonOf(status));
  AddTrailer(context, "weir-reason", std::string(info.name));
  AddTrailer(context, "weir-param", NativeParam(ParamOf(status)));
  AddTrailer(context, "x-request-id", std::string(request_id));
  if (info.retry_by_client) AddTrailer(context, "retry-after-ms", "1000");
  return grpc::Status(static_cast<grpc::StatusCode>(info.grpc),
                      codec::ClientMessageOf(status, request_id));
}

// One call of Generate. gRPC's reactions come on its threads and touch what mu_ guards; the rest
// belongs to the loop. It keeps itself alive until gRPC is through with it.
class GenerateCall final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                           public HttpResponder,
                           public std::enable_shared_from_this<GenerateCall> {
 public:
  GenerateCall(grpc::CallbackServerContext* context, const NativeFrontOptions& options)
      : options_(options), context_(context) {}

  void KeepAlive(std::function<void()> done) {
    self_ = shared_from_this();
    done_ = std::move(done);
  }

  // ---- on the loop ----
  void Respond(int status, HttpHeaders headers, std::string body) override {
    Refuse(Error(Reason::kBug, "an answer that is no stream"), "");
  }
  void StartStream(int status, HttpHeaders headers) override {}
  bool Write(std::string_view bytes) override {
    std::lock_guard lock(mu_);
    if (lost_) return true;
    for (;;) {
      const std::string_view message = TakeNativeMessage(&bytes);
      if (message.empty()) break;
      queue_.emplace_back(message);
      queue_bytes_ += message.size();
    }
    WriteNext();
    if (queue_bytes_ <= kHighWatermark) return true;
    if (!std::exchange(watched_, true)) Watch();
    return false;
  }
  void End() override {
    std::lock_guard lock(mu_);
    if (!end_) end_ = grpc::Status::OK;
    FinishIfIdle();
  }
  void Refuse(const absl::Status& status, std::string_view request_id) {
    std::lock_guard lock(mu_);
    if (!end_ && !finished_) end_ = StatusFor(status, request_id, context_);
    FinishIfIdle();
  }
  void OnDrained(Task drained) override {
    std::lock_guard lock(mu_);
    drained_ = std::move(drained);
    PostIfDrained();
  }
  void OnGone(Task gone) override {
    std::lock_guard lock(mu_);
    gone_ = std::move(gone);
    if (lost_) PostGone();
  }
  bool gone() const override {
    std::lock_guard lock(mu_);
    return lost_;
  }
  size_t pending_bytes() const override {
    std::lock_guard lock(mu_);
    return queue_bytes_;
  }
  Loop& loop() override { return *options_.loop; }

  // Any thread.
  void Cancel() {
    std::lock_guard lock(mu_);
    if (!finished_) context_->TryCancel();
  }

 private:
  // ---- gRPC's threads ----
  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mu_);
    writing_ = false;
    taken_ = Now();
    if (!ok) Lose();
    WriteNext();
    PostIfDrained();
  }
  void OnCancel() override {
    std::lock_guard lock(mu_);
    Lose();
    if (!end_) end_ = grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
    FinishIfIdle();
  }
  void OnDone() override {
    const std::shared_ptr<GenerateCall> self = std::move(self_);
    done_();
  }

  // ---- under mu_ ----
  void WriteNext() {
    if (writing_ || finished_ || queue_.empty()) return FinishIfIdle();
    const std::string& message = queue_.front();
    const grpc::Slice slice(message.data(), message.size());
    buffer_ = grpc::ByteBuffer(&slice, 1);
    queue_bytes_ -= message.size();
    queue_.pop_front();
    writing_ = true;
    StartWrite(&buffer_);
  }
  void FinishIfIdle() {
    if (finished_ || writing_ || !end_ || !queue_.empty()) return;
    finished_ = true;
    Finish(*end_);
  }
  void Lose() {
    lost_ = true;
    queue_.clear();
    queue_bytes_ = 0;
    PostGone();
  }
  void PostGone() {
    if (gone_) options_.loop->Post("native call gone", std::exchange(gone_, nullptr));
  }
  void PostIfDrained() {
    if (!drained_ || queue_bytes_ > kHighWatermark / 2) return;
    options_.loop->Post("native call drained", std::exchange(drained_, nullptr));
  }
  // Cancels a client that takes nothing for long.
  void Watch() {
    options_.loop->After("slow native client", options_.slow_client, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (!self) return;
      std::lock_guard lock(self->mu_);
      self->watched_ = false;
      if (self->finished_ || self->queue_bytes_ <= kHighWatermark) return;
      if (Now() - self->taken_ < self->options_.slow_client) {
        self->watched_ = true;
        return self->Watch();
      }
      WEIR_REACHED("native: client is slow");
      self->context_->TryCancel();
    });
  }

  const NativeFrontOptions options_;
  mutable std::mutex mu_;
  grpc::CallbackServerContext* const context_;  // until finished_
  std::shared_ptr<GenerateCall> self_;
  std::function<void()> done_;
  // Guarded by mu_.
  std::deque<std::string> queue_;
  size_t queue_bytes_ = 0;
  grpc::ByteBuffer buffer_;
  bool writing_ = false;
  bool finished_ = false;
  bool lost_ = false;
  bool watched_ = false;
  Instant taken_ = Now();
  std::optional<grpc::Status> end_;
  Task drained_;
  Task gone_;
};

// The responder of a call with one small answer, which nobody needs to follow.
class UnaryCall final : public HttpResponder {
 public:
  explicit UnaryCall(Loop* loop) : loop_(loop) {}
  void Respond(int status, HttpHeaders headers, std::string body) override {}
  void StartStream(int status, HttpHeaders headers) override {}
  bool Write(std::string_view bytes) override { return true; }
  void End() override {}
  void OnDrained(Task drained) override {}
  void OnGone(Task gone) override {}
  bool gone() const override { return false; }
  size_t pending_bytes() const override { return 0; }
  Loop& loop() override { return *loop_; }

 private:
  Loop* const loop_;
};

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Adds reflection to one server; the plug-in as a global one would be on every server of the process.
class WithReflection final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments* arguments) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->push_back(std::make_unique<grpc::reflection::ProtoServerReflectionPlugin>());
  }
};

class GrpcFront final : public NativeFront, private grpc::Service {
 public:
  explicit GrpcFront(NativeFrontOptions options) : options_(std::move(options)) {
    AddMethods();
  }
  ~GrpcFront() override { Shutdown(); }

  absl::Status Listen() {
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (!options_.tls_certificate_file.empty()) {
      grpc::SslServerCredentialsOptions tls;
      tls.pem_key_cert_pairs.push_back(
          {FileText(options_.tls_key_file), FileText(options_.tls_certificate_file)});
      credentials = grpc::SslServerCredentials(tls);
    }
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.address, std::move(credentials), &port_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(
        std::min<size_t>(options_.message_bytes_max, std::numeric_limits<int>::max())));
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a taken port is an error
    builder.SetOption(std::make_unique<WithReflection>());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    if (server_) return absl::OkStatus();
    return Error(Reason::kBadField,
                 "cannot listen on " + options_.address + ": " + WhyNotListening(options_.address),
                 "router.grpc_address");
  }

  int port() const override { return port_; }

  void SetServing(bool serving) override {
    if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(serving);
  }

  void Shutdown() override {
    if (!server_) return;
    server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                   gpr_time_from_millis(kCloseGraceMs, GPR_TIMESPAN)));
    server_->Wait();
    server_.reset();
  }

 private:
  using Context = grpc::CallbackServerContext;

  template <class Handler>
  void AddMethod(const char* name, grpc::internal::RpcMethod::RpcType type, Handler* handler) {
    auto* method = new grpc::internal::RpcServiceMethod(name, type, nullptr);
    grpc::Service::AddMethod(method);
    MarkMethodCallback(method_count_++, handler);
  }

  // What generated code does, but for events, which are serialised already.
  void AddMethods() {
    using grpc::internal::RpcMethod;
    AddMethod("/weir.v1.Front/Generate", RpcMethod::SERVER_STREAMING,
              new grpc::internal::CallbackServerStreamingHandler<v1::GenerateRequest,
                                                                 grpc::ByteBuffer>(
                  [this](Context* context, const v1::GenerateRequest* request) {
                    return Generate(context, *request);
                  }));
    AddMethod("/weir.v1.Front/Abort", RpcMethod::NORMAL_RPC,
              new grpc::internal::CallbackUnaryHandler<v1::AbortRequest, v1::AbortReply>(
                  [this](Context* context, const v1::AbortRequest* request, v1::AbortReply* reply) {
                    return Abort(context, *request, reply);
                  }));
    AddMethod("/weir.v1.Front/ListModels", RpcMethod::NORMAL_RPC,
              new grpc::internal::CallbackUnaryHandler<v1::ListModelsRequest, v1::ListModelsReply>(
                  [this](Context* context, const v1::ListModelsRequest*,
                         v1::ListModelsReply* reply) { return ListModels(context, reply); }));
    AddMethod("/weir.v1.Front/Tokenize", RpcMethod::NORMAL_RPC,
              new grpc::internal::CallbackUnaryHandler<v1::GenerateRequest, v1::TokenizeReply>(
                  [this](Context* context, const v1::GenerateRequest* request,
                         v1::TokenizeReply* reply) { return Tokenize(context, *request, reply); }));
  }

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(Context* context,
                                                       const v1::GenerateRequest& request) {
    const auto call = std::make_shared<GenerateCall>(context, options_);
    const uint64_t number = ++last_call_;
    call->KeepAlive([this, number] {
      options_.loop->Post("native call done", [this, number] { calls_.erase(number); });
    });
    HttpFront::NativeAsk ask = AskOf(context, request);
    const std::string name = NameOf(ask.key_headers, ask.request_id);
    auto native = std::make_shared<HttpFront::Native>();
    native->make_response = MakeNativeResponse;
    native->refuse = [call, id = ask.request_id](const absl::Status& status) {
      call->Refuse(status, id);
    };
    ask.responder = call;
    ask.native = std::move(native);
    options_.loop->Post("native generate",
                        [this, number, name, weak = std::weak_ptr(call),
                         ask = std::move(ask)]() mutable {
                          calls_[number] = {name, weak};
                          options_.front->Ask(std::move(ask));
                        });
    return call.get();
  }

  grpc::ServerUnaryReactor* Abort(Context* context, const v1::AbortRequest& request,
                                  v1::AbortReply* reply) {
    auto* reactor = context->DefaultReactor();
    options_.loop->Post("native abort", [this, context, reactor, reply,
                                         headers = KeyHeadersOf(*context),
                                         id = request.request_id()] {
      const auto tenant = options_.front->Authorise(headers);
      if (!tenant.ok()) return reactor->Finish(StatusFor(tenant.status(), id, context));
      for (const auto& [number, running] : calls_) {
        const auto call = running.call.lock();
        if (!call || running.name != NameOf(headers, id)) continue;
        call->Cancel();
        reply->set_aborted(reply->aborted() + 1);
      }
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* ListModels(Context* context, v1::ListModelsReply* reply) {
    auto* reactor = context->DefaultReactor();
    options_.loop->Post("native models", [this, reactor, reply] {
      const codec::ModelCard card = options_.front->Card();
      v1::ModelInfo* model = reply->add_models();
      model->set_id(card.id);
      model->set_created(card.created);
      model->set_tokens_max(card.max_model_len);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerUnaryReactor* Tokenize(Context* context, const v1::GenerateRequest& request,
                                     v1::TokenizeReply* reply) {
    auto* reactor = context->DefaultReactor();
    HttpFront::NativeAsk ask = AskOf(context, request);
    auto native = std::make_shared<HttpFront::Native>();
    native->refuse = [context, reactor, id = ask.request_id](const absl::Status& status) {
      reactor->Finish(StatusFor(status, id, context));
    };
    native->prepared = [reactor, reply](const Prepared& prepared) {
      const auto& ids = prepared.prompt.ids;
      reply->mutable_ids()->Add(ids.begin(), ids.end());
      reactor->Finish(grpc::Status::OK);
    };
    ask.responder = std::make_shared<UnaryCall>(options_.loop);
    ask.native = std::move(native);
    options_.loop->Post("native tokenize", [this, ask = std::move(ask)]() mutable {
      options_.front->Ask(std::move(ask));
    });
    return reactor;
  }

  HttpFront::NativeAsk AskOf(Context* context, const v1::GenerateRequest& request) {
    NativeBody body = BodyOf(request);
    HttpFront::NativeAsk ask;
    ask.page = body.page;
    ask.body = std::move(body.json);
    ask.request_id = ChooseRequestId(request.request_id());
    ask.key_headers = KeyHeadersOf(*context);
    return ask;
  }

  // Two clients may use one id; only calls of the same key have the same name.
  static std::string NameOf(const HttpHeaders& key, std::string_view id) {
    std::string name;
    for (const HttpHeader& header : key) name += header.value + '\n';
    name += id;
    return name;
  }

  struct Running {
    std::string name;
    std::weak_ptr<GenerateCall> call;
  };

  const NativeFrontOptions options_;
  int method_count_ = 0;
  std::atomic<uint64_t> last_call_{0};
  std::unordered_map<uint64_t, Running> calls_;  // loop's thread
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NativeFront>> CreateGrpcFront(NativeFrontOptions options) {
  auto front = std::make_unique<GrpcFront>(std::move(options));
  WEIR_TRY(front->Listen());
  return std::unique_ptr<NativeFront>(std::move(front));
}

}  // namespace weir::router
