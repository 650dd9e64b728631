// SPDX-License-Identifier: Apache-2.0
#include "base/net/http_client.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/runtime/clock.h"
#include "base/stdx/check.h"

namespace weir {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

constexpr Duration kCancelPoll = Millis(50);
constexpr size_t kLineBytesMax = 16u << 20;

// Hands body bytes on as they are parsed; false from the sink ends the transfer.
using Sink = std::function<bool(std::string_view)>;
struct SinkBody {
  using value_type = Sink;
  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(http::header<kIsRequest, Fields>&, Sink& sink) : sink_(sink) {}
    void init(const boost::optional<uint64_t>&, error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, error_code& ec) {
      ec = {};
      size_t taken = 0;
      for (auto it = asio::buffer_sequence_begin(buffers); it != asio::buffer_sequence_end(buffers);
           ++it) {
        const asio::const_buffer part = *it;
        taken += part.size();
        if (!sink_({static_cast<const char*>(part.data()), part.size()})) {
          ec = asio::error::operation_aborted;
        }
      }
      return taken;
    }
    void finish(error_code& ec) { ec = {}; }

   private:
    Sink& sink_;
  };
};
using Parser = http::response_parser<SinkBody>;

struct Url {
  bool tls = false;
  std::string host;
  std::string port;
  std::string target = "/";
};

absl::StatusOr<Url> ParseUrl(std::string_view text) {
  const auto bad = [&] {
    return Error(Reason::kBadField, "url \"" + std::string(text) + "\" is not http(s)://host[:port]/path",
                 "url");
  };
  Url url;
  std::string_view rest = text;
  if (rest.substr(0, 7) == "http://") {
    rest.remove_prefix(7);
  } else if (rest.substr(0, 8) == "https://") {
    rest.remove_prefix(8);
    url.tls = true;
  } else {
    return bad();
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) url.target = std::string(rest.substr(slash));
  std::string_view authority = rest.substr(0, slash);
  // "[::1]:80" keeps its colons inside the brackets.
  const size_t colon = authority.find(':', authority.substr(0, 1) == "[" ? authority.find(']') : 0);
  url.host = std::string(authority.substr(0, colon));
  url.port = colon == std::string_view::npos ? (url.tls ? "443" : "80")
                                             : std::string(authority.substr(colon + 1));
  if (url.host.size() > 2 && url.host.front() == '[') url.host = url.host.substr(1, url.host.size() - 2);
  if (url.host.empty() || url.port.empty()) return bad();
  return url;
}

// One call: asynchronous operations on a private context, run until done, late or cancelled.
class Exchange {
 public:
  explicit Exchange(const HttpCall& call) : call_(call) {}

  absl::StatusOr<HttpAnswer> Run(const std::function<bool(std::string_view)>* line);

 private:
  // Runs the context until `done`; kDeadline when that takes longer than `limit`.
  absl::Status Await(const std::optional<error_code>& done, Duration limit, const char* what);
  absl::Status Connect(const Url& url);
  absl::Status Send(const Url& url);
  absl::Status Receive(Parser& parser);
  bool TakeBody(std::string_view bytes);
  bool TakeLines(std::string_view bytes);
  template <class F>
  void WithStream(F&& f) {
    if (tls_) {
      f(*tls_);
    } else {
      f(socket_);
    }
  }

  const HttpCall& call_;
  const std::function<bool(std::string_view)>* line_ = nullptr;
  asio::io_context io_{1};
  tcp::resolver resolver_{io_};
  tcp::socket socket_{io_};
  asio::ssl::context tls_context_{asio::ssl::context::tls_client};
  std::unique_ptr<asio::ssl::stream<tcp::socket&>> tls_;
  std::array<char, 16 * 1024> buffer_;
  Parser* parser_ = nullptr;
  HttpAnswer answer_;
  std::string partial_;  // of a line
  absl::Status sink_status_;
  bool hung_up_ = false;
};

absl::Status Exchange::Await(const std::optional<error_code>& done, Duration limit,
                             const char* what) {
  const Instant deadline = Now() + limit;
  io_.restart();
  while (!done) {
    if (call_.cancel && call_.cancel->load()) return Error(Reason::kCancelled, "the call was cancelled");
    const Duration left = deadline - Now();
    if (left <= Duration::zero()) {
      return Error(Reason::kDeadline, std::string("timed out while ") + what);
    }
    io_.run_one_for(std::min(left, kCancelPoll));
  }
  if (!*done) return absl::OkStatus();
  return Error(Reason::kPeerLost, std::string("failed while ") + what + ": " + done->message());
}

absl::Status Exchange::Connect(const Url& url) {
  std::optional<error_code> done;
  tcp::resolver::results_type found;
  resolver_.async_resolve(url.host, url.port, [&](error_code ec, tcp::resolver::results_type results) {
    found = std::move(results);
    done = ec;
  });
  WEIR_TRY(Await(done, call_.connect_timeout, "resolving the host"));
  done.reset();
  asio::async_connect(socket_, found, [&](error_code ec, const tcp::endpoint&) { done = ec; });
  WEIR_TRY(Await(done, call_.connect_timeout, "connecting"));
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  if (!url.tls) return absl::OkStatus();

  tls_context_.set_default_verify_paths(ignored);
  tls_ = std::make_unique<asio::ssl::stream<tcp::socket&>>(socket_, tls_context_);
  SSL_set_tlsext_host_name(tls_->native_handle(), url.host.c_str());
  if (call_.verify_tls) {
    tls_->set_verify_mode(asio::ssl::verify_peer, ignored);
    tls_->set_verify_callback(asio::ssl::host_name_verification(url.host), ignored);
  } else {
    tls_->set_verify_mode(asio::ssl::verify_none, ignored);
  }
  done.reset();
  tls_->async_handshake(asio::ssl::stream_base::client, [&](error_code ec) { done = ec; });
  return Await(done, call_.connect_timeout, "shaking hands over TLS");
}

absl::Status Exchange::Send(const Url& url) {
  std::string head = call_.method + " " + url.target + " HTTP/1.1\r\nhost: " + url.host + ":" +
                     url.port + "\r\nconnection: close\r\n";
  if (!call_.body.empty() || call_.method == "POST") {
    head += "content-length: " + std::to_string(call_.body.size()) + "\r\n";
  }
  for (const HttpHeader& header : call_.headers) head += header.name + ": " + header.value + "\r\n";
  head += "\r\n";
  std::optional<error_code> done;
  const std::array<asio::const_buffer, 2> buffers = {asio::buffer(head), asio::buffer(call_.body)};
  WithStream([&](auto& stream) {
    asio::async_write(stream, buffers, [&](error_code ec, size_t) { done = ec; });
  });
  const absl::Status status = Await(done, call_.idle_timeout, "sending the request");
  // A server may answer and hang up before it has read all; its answer is what counts.
  if (ReasonOf(status) == Reason::kPeerLost) return absl::OkStatus();
  return status;
}

absl::Status Exchange::Receive(Parser& parser) {
  std::string pending;  // bytes the parser wants to see again with more behind them
  while (!parser.is_done()) {
    std::optional<error_code> done;
    size_t received = 0;
    WithStream([&](auto& stream) {
      stream.async_read_some(asio::buffer(buffer_), [&](error_code ec, size_t bytes) {
        received = bytes;
        done = ec;
      });
    });
    const absl::Status status = Await(done, call_.idle_timeout, "waiting for the answer");
    error_code ec;
    if (done && (*done == asio::error::eof || *done == asio::ssl::error::stream_truncated)) {
      parser.put_eof(ec);
      if (!ec && parser.is_done()) return absl::OkStatus();
      return Error(Reason::kPeerLost, "the server hung up before its answer was complete");
    }
    WEIR_TRY(status);
    pending.append(buffer_.data(), received);
    size_t used = 0;
    while (used < pending.size() && !parser.is_done()) {
      used += parser.put(asio::buffer(pending.data() + used, pending.size() - used), ec);
      if (ec == http::error::need_more) break;
      if (hung_up_ || !sink_status_.ok()) return sink_status_;
      if (ec) return Error(Reason::kPeerLost, "malformed answer: " + ec.message());
    }
    pending.erase(0, used);
  }
  return absl::OkStatus();
}

bool Exchange::TakeBody(std::string_view bytes) {
  const int status = parser_->get().result_int();
  if (line_ && status >= 200 && status < 300) return TakeLines(bytes);
  if (answer_.body.size() + bytes.size() > call_.body_bytes_max) {
    sink_status_ = Error(Reason::kTooLarge, "the answer is larger than body_bytes_max");
    return false;
  }
  answer_.body.append(bytes);
  return true;
}

bool Exchange::TakeLines(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    partial_.append(bytes.substr(0, end));
    if (partial_.size() > kLineBytesMax) {
      sink_status_ = Error(Reason::kTooLarge, "the answer has a line of more than 16 MiB");
      return false;
    }
    if (end == std::string_view::npos) return true;
    bytes.remove_prefix(end + 1);
    if (!partial_.empty() && partial_.back() == '\r') partial_.pop_back();
    const bool go_on = (*line_)(partial_);
    partial_.clear();
    if (!go_on) {
      hung_up_ = true;
      return false;
    }
  }
  return true;
}

absl::StatusOr<HttpAnswer> Exchange::Run(const std::function<bool(std::string_view)>* line) {
  line_ = line;
  WEIR_ASSIGN(const Url url, ParseUrl(call_.url));
  WEIR_TRY(Connect(url));
  WEIR_TRY(Send(url));
  Parser parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  parser.skip(call_.method == "HEAD");
  parser.get().body() = [this](std::string_view bytes) { return TakeBody(bytes); };
  parser_ = &parser;
  const absl::Status status = Receive(parser);
  if (!status.ok()) return status;
  if (line_ && !hung_up_ && !partial_.empty()) (*line_)(partial_);
  answer_.status = parser.get().result_int();
  for (const auto& field : parser.get()) {
    answer_.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  return std::move(answer_);
}

}  // namespace

absl::StatusOr<HttpAnswer> HttpFetch(const HttpCall& call) { return Exchange(call).Run(nullptr); }

absl::StatusOr<HttpAnswer> HttpLines(const HttpCall& call,
                                     const std::function<bool(std::string_view line)>& line) {
  return Exchange(call).Run(&line);
}

}  // namespace weir
