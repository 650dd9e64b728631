// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 server with streamed answers, knowing no route. Each connection lives on one loop: there
// the handler is called and there its responder is used; a handler that computes elsewhere posts
// back to `responder->loop()`. Nothing blocks. The server owns connections; a responder is shared
// with the handler and outlives its connection safely (calls then do nothing). Whatever a client
// does wrong or too slowly ends in an answer of 4xx/503 or a closed connection, never in growth.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/runtime/loop.h"
#include "base/runtime/task.h"
#include "base/stdx/status.h"

namespace weir {

struct HttpHeader {
  std::string name;
  std::string value;
};
using HttpHeaders = std::vector<HttpHeader>;

// Case-insensitive; the first match, or null.
const std::string* FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;   // as sent, for example "POST"
  std::string target;   // path and query as sent, without scheme and authority
  HttpHeaders headers;  // in order, names as sent
  std::string body;
  std::string remote_address;  // "127.0.0.1:40000"
  std::string id;  // the client's x-request-id where sane, else ours; answers carry it

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
  std::string_view query() const;
};

// The answer to one request: either Respond once, or StartStream, Write..., End. Loop's thread.
// Dropping the last reference unanswered answers 500; an unfinished stream is cut off.
class HttpResponder {
 public:
  virtual ~HttpResponder() = default;

  // Sends a whole answer. content-length, date and x-request-id are added; HEAD gets no body.
  virtual void Respond(int status, HttpHeaders headers, std::string body) = 0;

  // Sends the head of an answer whose length is not known.
  virtual void StartStream(int status, HttpHeaders headers) = 0;

  // Queues bytes of the stream. False when more than the high watermark is now pending: stop until
  // OnDrained calls. Bytes after the client is gone are dropped and answered true.
  virtual bool Write(std::string_view bytes) = 0;

  // Completes the stream; the connection serves its next request.
  virtual void End() = 0;

  // `drained` runs once, when at most the low watermark (half the high one) is pending.
  virtual void OnDrained(Task drained) = 0;

  // `gone` runs once, as soon as the client disconnected, stalled or the server shut down before the
  // answer was complete; at once (by Post) if that is so already. Never after a completed answer. A
  // client that only closes its sending side has disconnected: the two cannot be told apart in time.
  virtual void OnGone(Task gone) = 0;

  virtual bool gone() const = 0;
  virtual size_t pending_bytes() const = 0;
  virtual Loop& loop() = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<HttpResponder>)>;

struct HttpServerOptions {
  std::string listen_host = "127.0.0.1";
  int listen_port = 0;  // 0 picks one
  std::string tls_certificate_file;  // PEM; both or none
  std::string tls_key_file;

  int max_connections = 8000;  // one more gets 503 with retry-after
  size_t header_bytes_max = 16 * 1024;  // more: 431
  int header_count_max = 100;           // more: 431
  size_t body_bytes_max = 32u << 20;    // more: 413
  size_t unread_body_bytes_max = 512u << 20;  // of all half-received bodies together; more: 503
  Duration header_timeout = std::chrono::seconds(10);  // first byte to end of header; 408
  Duration body_timeout = std::chrono::seconds(60);    // end of header to end of body; 408
  Duration idle_timeout = std::chrono::seconds(75);    // between requests; closed
  Duration slow_client_timeout = std::chrono::seconds(30);  // pending bytes, none taken; closed
  size_t write_high_watermark_bytes = 256 * 1024;

  // Body of an answer that the server gives by itself (400, 408, 413, 431, 503 ...), as JSON. Empty
  // for {"error":{"message":...,"type":...,"code":...}}.
  std::function<std::string(int status, std::string_view message)> error_body;
  // Connections cannot be accepted, for want of descriptors or memory; at most once in 10 s, on the
  // first loop. May be empty.
  std::function<void(std::string_view why)> on_accept_failed;
};

struct HttpServerStats {
  std::atomic<int64_t> connections{0};  // open now
  std::atomic<uint64_t> accepted{0};
  std::atomic<uint64_t> refused{0};     // beyond max_connections
  std::atomic<uint64_t> accept_failures{0};  // tries; the connection waits for the next
  std::atomic<uint64_t> requests{0};    // handed to the handler
  std::atomic<uint64_t> bad_requests{0};  // answered by the server itself
  std::atomic<uint64_t> gone{0};        // clients that left before their answer was complete
  std::atomic<uint64_t> slow_clients{0};  // of these, closed for taking nothing
};

class HttpServer {
 public:
  // Listens at once and serves on `loops` in turn, which must outlive the server. kBadField names
  // the option at fault (port in use, unreadable certificate).
  static absl::StatusOr<std::unique_ptr<HttpServer>> Create(HttpServerOptions options,
                                                            std::vector<Loop*> loops,
                                                            HttpHandler handler);
  virtual ~HttpServer() = default;  // Shutdown

  virtual int port() const = 0;
  virtual const HttpServerStats& stats() const = 0;

  // Stops accepting and closes idle connections; running requests finish and then close theirs.
  // `drained` runs on a loop when the last connection is gone. Any thread.
  virtual void Drain(Task drained) = 0;

  // Closes everything and waits until no callback of this server runs. Loops must still run (or
  // never have run); not from a loop's thread.
  virtual void Shutdown() = 0;
};

}  // namespace weir
