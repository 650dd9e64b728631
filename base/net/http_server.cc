// SPDX-License-Identifier: Apache-2.0
#include "base/net/http_server.h"

#include <sys/socket.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/net/growing_body.h"
#include "base/net/http_text.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr size_t kReadBytes = 16 * 1024;       // per read; one buffer per loop
constexpr size_t kTlsReadBytes = 4 * 1024;     // per read; one buffer per TLS connection
constexpr size_t kPipelinedBytesMax = 64 * 1024;  // read ahead of a running request
constexpr Duration kLingerTimeout = std::chrono::seconds(2);
constexpr Duration kAcceptRetry = Millis(100);
constexpr Duration kAcceptReport = std::chrono::seconds(10);  // at most one report in this time
constexpr int kRefusingMax = 256;  // connections being told 503 at one time

using Parser = http::request_parser<GrowingBody>;

class Connection;

// What connections need after the server object is gone.
struct Shared {
  HttpServerOptions options;
  HttpHandler handler;
  HttpServerStats stats;
  std::unique_ptr<asio::ssl::context> tls;
  std::atomic<bool> draining{false};
  std::atomic<bool> stopped{false};
  std::atomic<int> refusing{0};
  std::atomic<size_t> unread_body_bytes{0};
  std::mutex drained_mu;
  Task on_drained;  // guarded by drained_mu

  void ConnectionEnded() {
    if (stats.connections.fetch_sub(1) == 1 && draining.load()) Drained();
  }
  void Drained() {
    Task task;
    {
      std::lock_guard lock(drained_mu);
      task = std::exchange(on_drained, nullptr);
    }
    if (task) task();
  }
};

// One loop's connections. Everything but construction is for the loop's thread.
struct Shard {
  explicit Shard(Loop* l) : loop(l), read_buffer(kReadBytes) {}

  const std::string& Date() {
    const int64_t now = WallMicros() / 1'000'000;
    if (now != date_second) {
      date_second = now;
      date = DateText(now);
    }
    return date;
  }

  Loop* const loop;
  std::vector<char> read_buffer;
  std::vector<std::shared_ptr<Connection>> connections;
  std::string date;
  int64_t date_second = -1;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Shared> shared, std::shared_ptr<Shard> shard, tcp::socket socket)
      : shared_(std::move(shared)), shard_(std::move(shard)), socket_(std::move(socket)) {}

  void Start();
  void StartRefused();
  void CloseIfIdle() {
    if (state_ == State::kIdle) Close();
  }
  void Close();
  void CheckTimeouts(Instant now);

  // What responders ask for; `seq` tells a stale responder from the current one.
  void Respond(uint64_t seq, int status, const HttpHeaders& headers, std::string_view body);
  void StartStream(uint64_t seq, int status, const HttpHeaders& headers);
  bool Write(uint64_t seq, std::string_view bytes);
  void End(uint64_t seq);
  void OnDrained(uint64_t seq, Task drained);
  void OnGone(uint64_t seq, Task gone);
  void ResponderDropped(uint64_t seq);
  bool IsGone(uint64_t seq) const { return state_ == State::kClosed || seq != seq_; }
  size_t pending_bytes() const { return out_.size() + writing_.size() - written_; }
  Loop& loop() { return *shard_->loop; }

  size_t index = 0;  // in the shard's list

 private:
  enum class State : uint8_t { kHandshake, kIdle, kHeader, kBody, kRunning, kLinger, kClosed };
  enum class Answer : uint8_t { kNone, kWaiting, kStreaming, kDone };

  void Read();
  void ReadReady();
  void OnRead(std::string_view bytes);
  void Parse();
  bool HeaderOk();
  void AccountBody(size_t bytes);
  void Dispatch();
  void Fail(int status, std::string_view message);
  void Finish();
  void NextRequest();
  void Linger();
  void Flush();
  void WriteSome();
  void OnWritten(error_code ec, size_t bytes);
  void Enter(State state) {
    state_ = state;
    since_ = Now();
  }
  bool IsCurrent(uint64_t seq, Answer answer) const {
    return state_ != State::kClosed && seq == seq_ && answer_ == answer;
  }
  HeadOptions Head(int status, BodyFraming framing, size_t length);

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<Shard> shard_;
  tcp::socket socket_;
  std::unique_ptr<asio::ssl::stream<tcp::socket&>> tls_;
  std::unique_ptr<std::array<char, kTlsReadBytes>> tls_buffer_;

  State state_ = State::kIdle;
  Instant since_{};  // when state_ was entered
  bool refused_ = false;
  bool discard_ = false;  // input no longer matters
  std::string in_;        // received, not yet parsed
  std::unique_ptr<Parser> parser_;
  bool header_seen_ = false;
  size_t accounted_ = 0;  // share of unread_body_bytes

  // The current request.
  uint64_t seq_ = 0;
  Answer answer_ = Answer::kNone;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool http10_ = false;
  bool chunked_ = false;
  std::string id_;
  Task on_gone_;
  Task on_drained_;

  std::string out_;      // queued behind writing_
  std::string writing_;  // handed to the socket
  size_t written_ = 0;   // of writing_
  bool write_posted_ = false;
  Instant progress_{};  // when the client last took bytes
};

class Responder : public HttpResponder {
 public:
  Responder(std::shared_ptr<Connection> connection, uint64_t seq)
      : connection_(std::move(connection)), seq_(seq) {}
  ~Responder() override {
    Loop& loop = connection_->loop();
    loop.Post("http responder dropped", [connection = std::move(connection_), seq = seq_] {
      connection->ResponderDropped(seq);
    });
  }

  void Respond(int status, HttpHeaders headers, std::string body) override {
    connection_->Respond(seq_, status, headers, body);
  }
  void StartStream(int status, HttpHeaders headers) override {
    connection_->StartStream(seq_, status, headers);
  }
  bool Write(std::string_view bytes) override { return connection_->Write(seq_, bytes); }
  void End() override { connection_->End(seq_); }
  void OnDrained(Task drained) override { connection_->OnDrained(seq_, std::move(drained)); }
  void OnGone(Task gone) override { connection_->OnGone(seq_, std::move(gone)); }
  bool gone() const override { return connection_->IsGone(seq_); }
  size_t pending_bytes() const override {
    return connection_->IsGone(seq_) ? 0 : connection_->pending_bytes();
  }
  Loop& loop() override { return connection_->loop(); }

 private:
  std::shared_ptr<Connection> connection_;
  const uint64_t seq_;
};

// ---- Connection: life ----

void Connection::Start() {
  index = shard_->connections.size();
  shard_->connections.push_back(shared_from_this());
  if (!shared_->tls) {
    Enter(State::kIdle);
    if (shared_->draining.load() || shared_->stopped.load()) return Close();
    return Read();
  }
  Enter(State::kHandshake);
  tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, *shared_->tls);
  tls_buffer_ = std::make_unique<std::array<char, kTlsReadBytes>>();
  tls_->async_handshake(asio::ssl::stream_base::server, [self = shared_from_this()](error_code ec) {
    Loop::Scope scope(self->loop(), "http handshake");
    if (self->state_ == State::kClosed) return;
    if (ec) {
      WEIR_REACHED("http: tls handshake failed");
      return self->Close();
    }
    self->Enter(State::kIdle);
    if (self->shared_->draining.load()) return self->Close();
    self->Read();
  });
}

// Tells a connection beyond max_connections so, without reading its request.
void Connection::StartRefused() {
  refused_ = true;
  index = shard_->connections.size();
  shard_->connections.push_back(shared_from_this());
  if (shared_->tls) return Close();  // a plain answer would be garbage to the client
  Read();
  Fail(503, "too many connections; try again later");
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  const bool unanswered = answer_ == Answer::kWaiting || answer_ == Answer::kStreaming;
  state_ = State::kClosed;
  const auto self = shared_from_this();
  auto& list = shard_->connections;
  list[index] = std::move(list.back());
  list[index]->index = index;
  list.pop_back();
  error_code ignored;
  socket_.close(ignored);
  parser_.reset();
  AccountBody(0);
  std::string().swap(in_);
  on_drained_ = nullptr;
  Task gone = std::move(on_gone_);
  on_gone_ = nullptr;
  if (unanswered) {
    ++shared_->stats.gone;
    if (gone) gone();
  }
  if (refused_) {
    --shared_->refusing;
  } else {
    shared_->ConnectionEnded();
  }
}

void Connection::CheckTimeouts(Instant now) {
  const HttpServerOptions& options = shared_->options;
  const Duration age = now - since_;
  if (pending_bytes() > 0 && now - progress_ > options.slow_client_timeout) {
    WEIR_REACHED("http: slow client closed");
    ++shared_->stats.slow_clients;
    return Close();
  }
  switch (state_) {
    case State::kHandshake:
      if (age > options.header_timeout) Close();
      break;
    case State::kIdle:
      if (age > options.idle_timeout) Close();
      break;
    case State::kHeader:
      if (age > options.header_timeout) Fail(408, "the request header did not arrive in time");
      break;
    case State::kBody:
      if (age > options.body_timeout) Fail(408, "the request body did not arrive in time");
      break;
    case State::kLinger:
      if (age > kLingerTimeout) Close();
      break;
    case State::kRunning:
    case State::kClosed:
      break;
  }
}

// ---- Connection: reading ----

// One read is outstanding for the whole life of the connection, also while a request runs: it is
// what notices that the client left.
void Connection::Read() {
  if (state_ == State::kClosed) return;
  if (tls_) {
    tls_->async_read_some(asio::buffer(*tls_buffer_),
                          [self = shared_from_this()](error_code ec, size_t bytes) {
                            Loop::Scope scope(self->loop(), "http read");
                            if (self->state_ == State::kClosed) return;
                            if (ec) return self->Close();
                            self->OnRead({self->tls_buffer_->data(), bytes});
                            self->Read();
                          });
    return;
  }
  // Waiting needs no buffer, so that an idle connection holds none.
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    Loop::Scope scope(self->loop(), "http read");
    if (self->state_ == State::kClosed) return;
    if (ec) return self->Close();
    self->ReadReady();
  });
}

void Connection::ReadReady() {
  error_code ec;
  const size_t bytes = socket_.read_some(asio::buffer(shard_->read_buffer), ec);
  if (ec && ec != asio::error::would_block && ec != asio::error::try_again) return Close();
  if (!ec) OnRead({shard_->read_buffer.data(), bytes});
  Read();
}

void Connection::OnRead(std::string_view bytes) {
  if (discard_ || state_ == State::kLinger) return;
  if (state_ == State::kRunning) {
    if (in_.size() + bytes.size() > kPipelinedBytesMax) {
      WEIR_REACHED("http: too much sent ahead");
      keep_alive_ = false;
      discard_ = true;
      in_.clear();
      return;
    }
    in_.append(bytes);
    return;
  }
  in_.append(bytes);
  Parse();
}

void Connection::Parse() {
  if (state_ == State::kIdle) {
    // Some old clients end a body with an empty line more than they announced.
    if (in_.compare(0, 2, "\r\n") == 0) in_.erase(0, 2);
    if (in_.empty() || in_ == "\r") return;
    Enter(State::kHeader);
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(static_cast<uint32_t>(shared_->options.header_bytes_max));
    parser_->body_limit(shared_->options.body_bytes_max);
    header_seen_ = false;
  }
  size_t used = 0;
  while (used < in_.size()) {
    error_code ec;
    const size_t taken = parser_->put(asio::buffer(in_.data() + used, in_.size() - used), ec);
    used += taken;
    if (ec == http::error::need_more) break;
    if (ec == http::error::header_limit) return Fail(431, "the request header is too large");
    if (ec == http::error::body_limit) return Fail(413, "the request body is too large");
    if (ec == http::error::bad_version) {
      // Also what the parser says of a line that ends in LF alone.
      const size_t lf = in_.find('\n', used);
      if (lf != std::string::npos && (lf == used || in_[lf - 1] != '\r')) {
        return Fail(400, "malformed HTTP request: lines end in CR LF");
      }
      return Fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    }
    if (ec) return Fail(400, "malformed HTTP request: " + ec.message());
    if (parser_->is_header_done() && !header_seen_) {
      header_seen_ = true;
      if (!HeaderOk()) return;
    }
    if (parser_->is_done()) {
      in_.erase(0, used);
      return Dispatch();
    }
  }
  in_.erase(0, used);
  if (!header_seen_) return;
  if (in_.size() > shared_->options.header_bytes_max) {
    // The parser waits for the end of a line: a chunk's size or a trailer.
    WEIR_REACHED("http: endless line between chunks");
    return Fail(400, "malformed HTTP request: a chunk's size or a trailer is too long");
  }
  AccountBody(parser_->get().body().size());
  if (shared_->unread_body_bytes.load() > shared_->options.unread_body_bytes_max) {
    WEIR_REACHED("http: too many unread bodies");
    Fail(503, "too many requests are being received; try again later");
  }
}

// Judges a complete header; answers and returns false when the request ends here.
bool Connection::HeaderOk() {
  const auto& message = parser_->get();
  http10_ = message.version() == 10;
  if (message.version() != 10 && message.version() != 11) {
    return Fail(505, "only HTTP/1.0 and HTTP/1.1 are spoken"), false;
  }
  const auto count = std::distance(message.begin(), message.end());
  if (count > shared_->options.header_count_max) {
    return Fail(431, "the request has too many header fields"), false;
  }
  if (!http10_ && message.count(http::field::host) != 1) {
    return Fail(400, "the request needs exactly one Host header"), false;
  }
  if (message.method() == http::verb::connect) {
    return Fail(405, "CONNECT is not served here"), false;
  }
  // The parser takes a body of any other coding for the next request, and so could a proxy before us.
  if (const auto count = message.count(http::field::transfer_encoding); count > 0) {
    const auto coding = message[http::field::transfer_encoding];
    if (http10_ || count > 1 || !EqualIgnoreCase({coding.data(), coding.size()}, "chunked")) {
      return Fail(501, "the only Transfer-Encoding understood is chunked, in HTTP/1.1"), false;
    }
  }
  if (parser_->is_done()) return true;
  Enter(State::kBody);
  const auto expect = message[http::field::expect];
  if (expect.empty() || http10_) return true;
  if (!EqualIgnoreCase({expect.data(), expect.size()}, "100-continue")) {
    return Fail(417, "only 100-continue can be expected"), false;
  }
  out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  Flush();
  return true;
}

void Connection::AccountBody(size_t bytes) {
  shared_->unread_body_bytes += bytes - accounted_;  // wraps around to a subtraction
  accounted_ = bytes;
}

void Connection::Dispatch() {
  auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.target = OriginForm({message.target().data(), message.target().size()});
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  request.body = std::move(message.body());
  error_code ec;
  const tcp::endpoint remote = socket_.remote_endpoint(ec);
  if (!ec) request.remote_address = remote.address().to_string() + ":" + std::to_string(remote.port());
  const std::string* client_id = FindHeader(request.headers, "x-request-id");
  request.id = ChooseRequestId(client_id ? *client_id : std::string_view());

  keep_alive_ = message.keep_alive();
  head_only_ = message.method() == http::verb::head;
  id_ = request.id;
  parser_.reset();
  AccountBody(0);
  ++seq_;
  answer_ = Answer::kWaiting;
  Enter(State::kRunning);
  ++shared_->stats.requests;
  shared_->handler(std::move(request), std::make_shared<Responder>(shared_from_this(), seq_));
}

// Answers by the server itself and gives the connection up: after bad input its framing is unknown.
void Connection::Fail(int status, std::string_view message) {
  ++shared_->stats.bad_requests;
  const auto& options = shared_->options;
  const std::string body =
      options.error_body ? options.error_body(status, message) : DefaultErrorBody(status, message);
  discard_ = true;
  std::string().swap(in_);
  keep_alive_ = false;
  head_only_ = false;
  id_.clear();
  ++seq_;
  parser_.reset();
  AccountBody(0);
  answer_ = Answer::kWaiting;
  Enter(State::kRunning);
  HttpHeaders headers = {{"content-type", "application/json"}};
  if (status == 503) headers.push_back({"retry-after", "1"});
  Respond(seq_, status, headers, body);
}

// ---- Connection: answering ----

HeadOptions Connection::Head(int status, BodyFraming framing, size_t length) {
  if (shared_->draining.load()) keep_alive_ = false;
  if (framing == BodyFraming::kUntilClose) keep_alive_ = false;
  return {.status = status,
          .framing = framing,
          .length = length,
          .keep_alive = keep_alive_,
          .http10 = http10_,
          .date = shard_->Date(),
          .request_id = id_};
}

void Connection::Respond(uint64_t seq, int status, const HttpHeaders& headers,
                         std::string_view body) {
  if (!IsCurrent(seq, Answer::kWaiting)) return;
  WEIR_DCHECK(loop().InLoop());
  const bool bodyless = status == 204 || status == 304;
  AppendHead(Head(status, bodyless ? BodyFraming::kNone : BodyFraming::kLength, body.size()),
             headers, &out_);
  if (!bodyless && !head_only_) out_.append(body);
  Finish();
}

void Connection::StartStream(uint64_t seq, int status, const HttpHeaders& headers) {
  if (!IsCurrent(seq, Answer::kWaiting)) return;
  WEIR_DCHECK(loop().InLoop());
  chunked_ = !http10_ && !head_only_;
  const BodyFraming framing = http10_ ? BodyFraming::kUntilClose : BodyFraming::kChunked;
  AppendHead(Head(status, framing, 0), headers, &out_);
  answer_ = Answer::kStreaming;
  Flush();
}

bool Connection::Write(uint64_t seq, std::string_view bytes) {
  if (!IsCurrent(seq, Answer::kStreaming)) return true;
  WEIR_DCHECK(loop().InLoop());
  if (head_only_) return true;
  if (chunked_) {
    AppendChunk(bytes, &out_);
  } else {
    out_.append(bytes);
  }
  Flush();
  return pending_bytes() <= shared_->options.write_high_watermark_bytes;
}

void Connection::End(uint64_t seq) {
  if (!IsCurrent(seq, Answer::kStreaming)) return;
  if (chunked_) out_ += "0\r\n\r\n";
  Finish();
}

void Connection::OnDrained(uint64_t seq, Task drained) {
  if (!IsCurrent(seq, Answer::kStreaming)) return;
  on_drained_ = std::move(drained);
  if (pending_bytes() > shared_->options.write_high_watermark_bytes / 2) return;
  loop().Post("http drained", std::exchange(on_drained_, nullptr));
}

void Connection::OnGone(uint64_t seq, Task gone) {
  if (seq == seq_ && state_ != State::kClosed) {
    if (answer_ != Answer::kDone) on_gone_ = std::move(gone);
    return;
  }
  if (answer_ == Answer::kDone || seq != seq_) return;  // it was answered before
  loop().Post("http gone", std::move(gone));
}

void Connection::ResponderDropped(uint64_t seq) {
  if (IsCurrent(seq, Answer::kStreaming)) return Close();
  if (!IsCurrent(seq, Answer::kWaiting)) return;
  WEIR_REACHED("http: request dropped unanswered");
  Respond(seq, 500, {{"content-type", "application/json"}},
          DefaultErrorBody(500, "the request was dropped"));
}

void Connection::Finish() {
  answer_ = Answer::kDone;
  on_gone_ = nullptr;
  on_drained_ = nullptr;
  if (pending_bytes() > 0) return Flush();  // NextRequest follows the last byte
  loop().Post("http next", [self = shared_from_this(), seq = seq_] {
    if (self->IsCurrent(seq, Answer::kDone)) self->NextRequest();
  });
}

void Connection::NextRequest() {
  answer_ = Answer::kNone;
  if (!keep_alive_) return Linger();
  std::string().swap(out_);
  std::string().swap(writing_);
  written_ = 0;
  Enter(State::kIdle);
  if (!in_.empty()) Parse();
  if (state_ != State::kIdle) return;
  if (in_.empty()) std::string().swap(in_);
  if (shared_->draining.load()) Close();
}

// Says that nothing more comes, then waits for the client to hang up, so that it can still read the
// answer: closing with input unread would reset the connection.
void Connection::Linger() {
  Enter(State::kLinger);
  if (tls_) {
    tls_->async_shutdown([self = shared_from_this()](error_code) { self->Close(); });
    return;
  }
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (ec) Close();
}

// ---- Connection: writing ----

void Connection::Flush() {
  if (write_posted_ || state_ == State::kClosed || out_.empty()) return;
  writing_.swap(out_);
  out_.clear();
  written_ = 0;
  progress_ = Now();
  write_posted_ = true;
  WriteSome();
}

void Connection::WriteSome() {
  const auto rest = asio::buffer(writing_.data() + written_, writing_.size() - written_);
  const auto done = [self = shared_from_this()](error_code ec, size_t bytes) {
    Loop::Scope scope(self->loop(), "http write");
    self->OnWritten(ec, bytes);
  };
  if (tls_) {
    tls_->async_write_some(rest, done);
  } else {
    socket_.async_write_some(rest, done);
  }
}

void Connection::OnWritten(error_code ec, size_t bytes) {
  if (state_ == State::kClosed) return;
  if (ec) return Close();
  progress_ = Now();
  written_ += bytes;
  if (written_ < writing_.size()) {
    WriteSome();
  } else {
    writing_.clear();
    written_ = 0;
    write_posted_ = false;
    Flush();
  }
  if (on_drained_ && pending_bytes() <= shared_->options.write_high_watermark_bytes / 2) {
    std::exchange(on_drained_, nullptr)();
  }
  if (state_ == State::kRunning && answer_ == Answer::kDone && pending_bytes() == 0) NextRequest();
}

// ---- Server ----

// The listening socket and the spreading of connections over loops; owned by the first loop.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  Listener(std::shared_ptr<Shared> shared, std::vector<std::shared_ptr<Shard>> shards)
      : shared_(std::move(shared)),
        shards_(std::move(shards)),
        acceptor_(shards_[0]->loop->io()),
        retry_(shards_[0]->loop->io()) {}

  absl::Status Listen();
  void Accept();
  void Stop() {
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }
  int port() const { return port_; }

 private:
  void OnAccept(error_code ec, tcp::socket socket);
  void Admit(tcp::socket socket);

  const std::shared_ptr<Shared> shared_;
  const std::vector<std::shared_ptr<Shard>> shards_;
  int port_ = 0;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  Instant next_report_{};  // of accepts that failed
  size_t next_shard_ = 0;
};

absl::Status Listener::Listen() {
  const HttpServerOptions& options = shared_->options;
  const std::string where = options.listen_host + ":" + std::to_string(options.listen_port);
  error_code ec;
  const auto address = asio::ip::make_address(options.listen_host, ec);
  if (ec || options.listen_port < 0 || options.listen_port > 65535) {
    return Error(Reason::kBadField, "listen address " + where + " is not an IP address and port",
                 "listen_host");
  }
  const tcp::endpoint endpoint(address, static_cast<uint16_t>(options.listen_port));
  acceptor_.open(endpoint.protocol(), ec);
  if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
  // Accepted sockets inherit these. Keep-alive notices a client whose host vanished.
  if (!ec) acceptor_.set_option(tcp::no_delay(true), ec);
  if (!ec) acceptor_.set_option(asio::socket_base::keep_alive(true), ec);
  if (!ec) {
    const int idle_s = 30, interval_s = 10, probes = 3;
    const int fd = acceptor_.native_handle();
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    acceptor_.bind(endpoint, ec);
  }
  if (!ec) acceptor_.listen(4096, ec);
  if (!ec) port_ = acceptor_.local_endpoint(ec).port();
  if (ec) {
    return Error(Reason::kBadField, "cannot listen on " + where + ": " + ec.message(),
                 "listen_port");
  }
  return absl::OkStatus();
}

void Listener::Accept() {
  if (!acceptor_.is_open()) return;
  acceptor_.async_accept(shards_[next_shard_]->loop->io(),
                         [self = shared_from_this()](error_code ec, tcp::socket socket) {
                           if (ec == asio::error::operation_aborted) return;
                           Loop::Scope scope(*self->shards_[0]->loop, "http accept");
                           self->OnAccept(ec, std::move(socket));
                         });
}

void Listener::OnAccept(error_code ec, tcp::socket socket) {
  if (!ec) {
    Admit(std::move(socket));
    return Accept();
  }
  // Out of descriptors or memory: the connection stays in the backlog until some are freed.
  WEIR_REACHED("http: accept failed");
  ++shared_->stats.accept_failures;
  if (const Instant now = Now(); now >= next_report_) {
    next_report_ = now + kAcceptReport;
    if (shared_->options.on_accept_failed) shared_->options.on_accept_failed(ec.message());
  }
  retry_.expires_after(kAcceptRetry);
  retry_.async_wait([self = shared_from_this()](error_code wait_ec) {
    if (!wait_ec) self->Accept();
  });
}

void Listener::Admit(tcp::socket socket) {
  ++shared_->stats.accepted;
  error_code ignored;
  socket.non_blocking(true, ignored);
  const auto shard = shards_[next_shard_];
  next_shard_ = (next_shard_ + 1) % shards_.size();
  auto connection = std::make_shared<Connection>(shared_, shard, std::move(socket));
  if (shared_->stats.connections.load() < shared_->options.max_connections) {
    ++shared_->stats.connections;
    shard->loop->Post("http start", [connection] { connection->Start(); });
    return;
  }
  WEIR_REACHED("http: refused beyond max_connections");
  ++shared_->stats.refused;
  // Beyond kRefusingMax there are too many even to tell them; the socket closes here.
  if (shared_->refusing.load() >= kRefusingMax) return;
  ++shared_->refusing;
  shard->loop->Post("http refuse", [connection] { connection->StartRefused(); });
}

void Sweep(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Shard>& shard,
           Duration interval) {
  if (shared->stopped.load()) return;
  const Instant now = Now();
  auto& list = shard->connections;
  // Downwards: a close moves the last entry, already seen, into the hole.
  for (size_t i = list.size(); i-- > 0;) {
    if (i < list.size()) std::shared_ptr(list[i])->CheckTimeouts(now);
  }
  shard->loop->After("http sweep", interval,
                     [shared, shard, interval] { Sweep(shared, shard, interval); });
}

Duration SweepInterval(const HttpServerOptions& o) {
  const Duration least =
      std::min({o.header_timeout, o.body_timeout, o.idle_timeout, o.slow_client_timeout});
  return std::clamp(Duration(least / 8), Millis(5), Millis(250));
}

class Server : public HttpServer {
 public:
  Server(std::shared_ptr<Shared> shared, const std::vector<Loop*>& loops)
      : shared_(std::move(shared)) {
    for (Loop* loop : loops) shards_.push_back(std::make_shared<Shard>(loop));
    listener_ = std::make_shared<Listener>(shared_, shards_);
  }
  ~Server() override { Shutdown(); }

  absl::Status Start();
  int port() const override { return listener_->port(); }
  const HttpServerStats& stats() const override { return shared_->stats; }
  void Drain(Task drained) override;
  void Shutdown() override;

 private:
  const std::shared_ptr<Shared> shared_;
  std::vector<std::shared_ptr<Shard>> shards_;
  std::shared_ptr<Listener> listener_;
};

absl::Status Server::Start() {
  WEIR_TRY(listener_->Listen());
  const Duration interval = SweepInterval(shared_->options);
  for (const auto& shard : shards_) {
    shard->loop->Post("http sweep", [shared = shared_, shard, interval] {
      Sweep(shared, shard, interval);
    });
  }
  shards_[0]->loop->Post("http accept", [listener = listener_] { listener->Accept(); });
  return absl::OkStatus();
}

void Server::Drain(Task drained) {
  {
    std::lock_guard lock(shared_->drained_mu);
    shared_->on_drained = std::move(drained);
  }
  shards_[0]->loop->Post("http drain", [listener = listener_, shared = shared_, shards = shards_] {
    listener->Stop();
    shared->draining.store(true);
    for (const auto& shard : shards) {
      shard->loop->Post("http drain", [shard] {
        for (size_t i = shard->connections.size(); i-- > 0;) {
          if (i < shard->connections.size()) std::shared_ptr(shard->connections[i])->CloseIfIdle();
        }
      });
    }
    if (shared->stats.connections.load() == 0) shared->Drained();
  });
}

void Server::Shutdown() {
  if (shared_->stopped.exchange(true)) return;
  shards_[0]->loop->Call("http stop", [listener = listener_] { listener->Stop(); });
  for (const auto& shard : shards_) {
    // In two rounds: a connection accepted just before may still have its start in the queue.
    for (int round = 0; round < 2; ++round) {
      shard->loop->Call("http stop", [shard] {
        while (!shard->connections.empty()) std::shared_ptr(shard->connections.back())->Close();
      });
    }
  }
}

absl::StatusOr<std::unique_ptr<asio::ssl::context>> LoadTls(const HttpServerOptions& options) {
  auto tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code ec;
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                       asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1,
                   ec);
  SSL_CTX_set_mode(tls->native_handle(), SSL_MODE_RELEASE_BUFFERS);
  tls->use_certificate_chain_file(options.tls_certificate_file, ec);
  if (ec) {
    return Error(Reason::kBadField,
                 "cannot use certificate " + options.tls_certificate_file + ": " + ec.message(),
                 "tls_certificate_file");
  }
  tls->use_private_key_file(options.tls_key_file, asio::ssl::context::pem, ec);
  if (ec) {
    return Error(Reason::kBadField, "cannot use key " + options.tls_key_file + ": " + ec.message(),
                 "tls_key_file");
  }
  return tls;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Create(HttpServerOptions options,
                                                               std::vector<Loop*> loops,
                                                               HttpHandler handler) {
  WEIR_CHECK(!loops.empty() && handler);
  auto shared = std::make_shared<Shared>();
  shared->options = std::move(options);
  shared->handler = std::move(handler);
  if (!shared->options.tls_certificate_file.empty() || !shared->options.tls_key_file.empty()) {
    WEIR_ASSIGN(shared->tls, LoadTls(shared->options));
  }
  auto server = std::make_unique<Server>(std::move(shared), loops);
  WEIR_TRY(server->Start());
  return server;
}

}  // namespace weir
