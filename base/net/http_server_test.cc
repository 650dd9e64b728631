// SPDX-License-Identifier: Apache-2.0
#include "base/net/http_server.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <thread>

#include "base/net/http_client.h"
#include "base/runtime/clock.h"
#include "base/stdx/check.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

// A plain blocking socket that sends exactly what a test wants to send.
class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer = 0) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    const timeval limit = {.tv_sec = 10, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (port != 0) ConnectTo(port);
  }
  ~RawClient() { Close(); }

  void ConnectTo(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  // Resets the connection instead of closing it.
  void Reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }
  RawClient& Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) break;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return *this;
  }
  // Up to and including `mark`, or everything until the server closes.
  std::string Until(std::string_view mark) {
    std::string all;
    char c = 0;
    while (recv(fd_, &c, 1, 0) == 1) {
      all.push_back(c);
      if (!mark.empty() && all.size() >= mark.size() &&
          all.compare(all.size() - mark.size(), mark.size(), mark) == 0) {
        break;
      }
    }
    return all;
  }
  std::string All() { return Until(""); }
  bool connected() const { return connected_; }

 private:
  int fd_;
  bool connected_ = false;
};

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { loop_.Start(); }
  ~HttpServerTest() override {
    // Responders first: they may not outlive the loop.
    server_.reset();
    held_.clear();
  }

  void Serve(HttpServerOptions options, HttpHandler handler) {
    auto server = HttpServer::Create(std::move(options), {&loop_}, std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void ServeEcho(HttpServerOptions options = {}) {
    Serve(std::move(options), [](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
      responder->Respond(200, {{"content-type", "text/plain"}},
                         request.method + " " + request.target + " " + request.body);
    });
  }
  RawClient Connect() { return RawClient(server_->port()); }
  std::string Url(const std::string& path) {
    return "http://127.0.0.1:" + std::to_string(server_->port()) + path;
  }
  static bool Eventually(const std::function<bool()>& condition) {
    const Instant limit = Now() + std::chrono::seconds(10);
    while (!condition()) {
      if (Now() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }
  template <class F>
  void OnLoop(F task) {
    std::promise<void> done;
    loop_.Post("test", [&] {
      task();
      done.set_value();
    });
    done.get_future().get();
  }

  Loop loop_{{.name = "http"}};
  std::vector<std::shared_ptr<HttpResponder>> held_;
  std::unique_ptr<HttpServer> server_;
};

constexpr std::string_view kGet = "GET /a?b=1 HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, ServesRequestsInOrderOnOneConnection) {
  ServeEcho();
  RawClient client = Connect();
  client.Send(kGet);
  EXPECT_NE(client.Until("GET /a?b=1 ").find("HTTP/1.1 200 OK\r\n"), std::string::npos);
  // Three sent at once, the middle one chunked.
  client.Send("POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
              "POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
              "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = client.All();
  const size_t one = all.find("POST /1 hi"), two = all.find("POST /2 abc"), three = all.find("GET /3 ");
  ASSERT_NE(one, std::string::npos) << all;
  ASSERT_NE(two, std::string::npos) << all;
  ASSERT_NE(three, std::string::npos) << all;
  EXPECT_LT(one, two);
  EXPECT_LT(two, three);
  EXPECT_NE(all.find("connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, FillsInTheRequest) {
  HttpRequest seen;
  Serve({}, [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    seen = std::move(request);
    responder->Respond(204, {}, "");
  });
  RawClient client = Connect();
  client.Send("PUT /p?q=2 HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nConnection: close\r\n\r\n");
  const std::string answer = client.All();
  EXPECT_EQ(seen.method, "PUT");
  EXPECT_EQ(seen.path(), "/p");
  EXPECT_EQ(seen.query(), "q=2");
  EXPECT_EQ(seen.id, "mine");
  EXPECT_EQ(seen.remote_address.substr(0, 10), "127.0.0.1:");
  EXPECT_NE(answer.find("x-request-id: mine\r\n"), std::string::npos);
  EXPECT_EQ(answer.find("content-length"), std::string::npos);
}

TEST_F(HttpServerTest, HeadHasNoBodyAndHttp10Closes) {
  ServeEcho();
  RawClient head = Connect();
  head.Send("HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string answer = head.All();
  EXPECT_NE(answer.find("content-length: 8\r\n"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n");
  RawClient old = Connect();
  old.Send("GET /o HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.All().find("GET /o "), std::string::npos);
}

TEST_F(HttpServerTest, ContinuesWhenAskedTo) {
  ServeEcho();
  RawClient client = Connect();
  client.Send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.Until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_NE(client.Until("POST / abc").find("200 OK"), std::string::npos);
  RawClient other = Connect();
  other.Send("POST / HTTP/1.1\r\nHost: x\r\nExpect: magic\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(other.All().substr(0, 12), "HTTP/1.1 417");
}

TEST_F(HttpServerTest, AnswersBadInputAndCloses) {
  ServeEcho({.header_bytes_max = 4096, .header_count_max = 10, .body_bytes_max = 100});
  std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 20; ++i) many += "a: b\r\n";
  const std::string tls_hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {"garbage\r\n\r\n", "400"},
      {tls_hello, "400"},
      {"GET / HTTP/1.1\r\n\r\n", "400"},                                      // no host
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},                // two
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", "400"},                          // space before colon
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {chunked + "5;" + std::string(9000, 'a'), "400"},
      {chunked + "0\r\na: " + std::string(9000, 'a'), "400"},
      // Whatever the parser might take for a request of its own.
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nGET / HTTP/1.1\r\n", "501"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "501"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "501"},
      {"GET / HTTP/2.0\r\nHost: x\r\n\r\n", "505"},
      {"GET / HTTP/1.1\nHost: x\n\n", "400"},         // LF alone
      {"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n", "400"},  // one empty line is let pass
      {"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", "405"},
      {"GET / HTTP/1.1\r\nHost: x\r\nbig: " + std::string(5000, 'a') + "\r\n\r\n", "431"},
      {many + "\r\n", "431"},
      {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n", "413"},
      {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" +
           std::string(101, 'a') + "\r\n0\r\n\r\n", "413"},
  };
  for (const auto& [input, status] : cases) {
    RawClient client = Connect();
    const std::string answer = client.Send(input).All();
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 " + status) << input.substr(0, 80);
    EXPECT_NE(answer.find("{\"error\":{\"message\":\""), std::string::npos);
    EXPECT_NE(answer.find("connection: close"), std::string::npos);
  }
  EXPECT_EQ(server_->stats().bad_requests, std::size(cases));
  EXPECT_EQ(server_->stats().requests, 0u);
  EXPECT_TRUE(Eventually([&] { return server_->stats().connections == 0; }));
}

TEST_F(HttpServerTest, TakesWhatOldClientsAndProxiesSend) {
  ServeEcho();
  RawClient client = Connect();
  // An empty line before a request, also in pieces, and the absolute form of the target.
  client.Send("\r\nGET http://h:80/1?x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_NE(client.Until("GET /1?x ").find("200 OK"), std::string::npos);
  client.Send("\r");
  client.Send("\nPOST /2 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi\r\n");
  EXPECT_NE(client.Until("POST /2 hi").find("200 OK"), std::string::npos);
  client.Send("GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_NE(client.All().find("GET /3 "), std::string::npos);
  // What is left of an empty line keeps nobody from closing.
  RawClient idle = Connect();
  idle.Send("GET /4 HTTP/1.1\r\nHost: x\r\n\r\n\r\n");
  EXPECT_NE(idle.Until("GET /4 ").find("200 OK"), std::string::npos);
  std::promise<void> drained;
  server_->Drain([&] { drained.set_value(); });
  drained.get_future().get();
}

TEST_F(HttpServerTest, SaysThatItCannotAcceptAndGoesOnOnceItCan) {
  std::atomic<int> reports{0};
  HttpServerOptions options;
  options.on_accept_failed = [&](std::string_view why) {
    EXPECT_NE(why, "");
    ++reports;
  };
  ServeEcho(std::move(options));
  RawClient first = Connect();
  EXPECT_NE(first.Send(kGet).Until("GET /a?b=1 ").find("200"), std::string::npos);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  RawClient second(0);
  const int next = dup(0);  // the lowest free descriptor is also the number that may be had
  close(next);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  second.ConnectTo(server_->port());  // the kernel takes it
  EXPECT_TRUE(Eventually([&] { return server_->stats().accept_failures >= 2; }));
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_NE(second.Send(kGet).Until("GET /a?b=1 ").find("200"), std::string::npos);
  EXPECT_EQ(reports, 1);
}

TEST_F(HttpServerTest, BoundsAllBodiesTogether) {
  ServeEcho({.body_bytes_max = 1 << 20, .unread_body_bytes_max = 1000});
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000\r\n\r\n";
  RawClient first = Connect();
  first.Send(head + std::string(800, 'a'));
  RawClient second = Connect();
  const std::string answer = second.Send(head + std::string(1500, 'b')).All();
  EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 503");
  EXPECT_NE(answer.find("retry-after: 1\r\n"), std::string::npos);
  first.Send(std::string(1200, 'a'));
  EXPECT_EQ(first.Until("\r\n").substr(0, 12), "HTTP/1.1 200");
}

TEST_F(HttpServerTest, SlowHeadersAndBodiesEndIn408AndIdleOnesClose) {
  ServeEcho({.header_timeout = Millis(40), .body_timeout = Millis(60), .idle_timeout = Millis(80)});
  RawClient header = Connect(), body = Connect(), idle = Connect();
  header.Send("GET / HT");
  body.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123");
  EXPECT_EQ(header.All().substr(0, 12), "HTTP/1.1 408");
  EXPECT_EQ(body.All().substr(0, 12), "HTTP/1.1 408");
  EXPECT_EQ(idle.All(), "");
}

TEST_F(HttpServerTest, TellsConnectionsBeyondTheMaximum) {
  ServeEcho({.max_connections = 2});
  RawClient a = Connect(), b = Connect();
  a.Send(kGet).Until("GET /a?b=1 ");
  b.Send(kGet).Until("GET /a?b=1 ");
  RawClient c = Connect();
  const std::string refused = c.Send(kGet).All();
  EXPECT_EQ(refused.substr(0, 12), "HTTP/1.1 503");
  EXPECT_NE(refused.find("retry-after: 1\r\n"), std::string::npos);
  EXPECT_EQ(server_->stats().refused, 1u);
  a.Close();
  ASSERT_TRUE(Eventually([&] { return server_->stats().connections == 1; }));
  RawClient d = Connect();
  EXPECT_NE(d.Send(kGet).Until("GET /a?b=1 ").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, NoticesAtOnceThatAWaitingClientLeft) {
  std::promise<void> gone_by_close, gone_by_reset, arrived;
  Serve({}, [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    std::promise<void>* gone = request.target == "/close" ? &gone_by_close : &gone_by_reset;
    responder->OnGone([gone] { gone->set_value(); });
    held_.push_back(responder);
    if (held_.size() == 2) arrived.set_value();
  });
  RawClient closing = Connect(), resetting = Connect();
  closing.Send("GET /close HTTP/1.1\r\nHost: x\r\n\r\n");
  resetting.Send("GET /reset HTTP/1.1\r\nHost: x\r\n\r\n");
  arrived.get_future().get();
  closing.Close();
  resetting.Reset();
  gone_by_close.get_future().get();
  gone_by_reset.get_future().get();
  OnLoop([&] {
    for (const auto& responder : held_) {
      EXPECT_TRUE(responder->gone());
      responder->Respond(200, {}, "nobody hears this");
      EXPECT_EQ(responder->pending_bytes(), 0u);
    }
  });
  EXPECT_EQ(server_->stats().gone, 2u);
  // Asked too late, the answer comes all the same.
  std::promise<void> late;
  OnLoop([&] { held_[0]->OnGone([&] { late.set_value(); }); });
  late.get_future().get();
}

TEST_F(HttpServerTest, StreamsChunksAndServesTheNextRequest) {
  bool gone = false;
  Serve({}, [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    responder->OnGone([&] { gone = true; });
    responder->StartStream(200, {{"content-type", "text/event-stream"}});
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(responder->Write("data: " + std::to_string(i) + "\n\n"));
    }
    responder->End();
  });
  RawClient client = Connect();
  for (int i = 0; i < 2; ++i) {
    const std::string answer = client.Send(kGet).Until("\r\n0\r\n\r\n");
    EXPECT_NE(answer.find("transfer-encoding: chunked\r\n"), std::string::npos);
    EXPECT_NE(answer.find("9\r\ndata: 0\n\n\r\n9\r\ndata: 1\n\n\r\n"), std::string::npos) << answer;
  }
  std::vector<std::string> lines;
  auto answer = HttpLines({.url = Url("/")}, [&](std::string_view line) {
    lines.emplace_back(line);
    return true;
  });
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(lines, (std::vector<std::string>{"data: 0", "", "data: 1", "", "data: 2", ""}));
  EXPECT_FALSE(gone);
}

TEST_F(HttpServerTest, WatermarksTellWhenToStopAndWhenToGoOn) {
  std::promise<size_t> full;
  std::promise<void> drained;
  Serve({.write_high_watermark_bytes = 64 * 1024},
        [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
          responder->StartStream(200, {});
          const std::string block(16 * 1024, 'x');
          size_t written = 0;
          // The kernel takes some megabytes at most.
          while (responder->Write(block)) ASSERT_LT(written += block.size(), 256u << 20);
          full.set_value(responder->pending_bytes());
          responder->OnDrained([&, responder] {
            EXPECT_LE(responder->pending_bytes(), 32u * 1024);
            responder->End();
            drained.set_value();
          });
        });
  RawClient client(server_->port(), 4096);
  client.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_GT(full.get_future().get(), 64u * 1024);
  const std::string all = client.All();
  drained.get_future().get();
  EXPECT_EQ(all.substr(all.size() - 5), "0\r\n\r\n");
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsClosed) {
  std::promise<void> gone;
  Serve({.slow_client_timeout = Millis(50)},
        [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
          responder->StartStream(200, {});
          responder->OnGone([&] { gone.set_value(); });
          // More than the kernel takes.
          for (int i = 0; i < 256; ++i) (void)responder->Write(std::string(64 * 1024, 'x'));
          held_.push_back(responder);
        });
  RawClient client(server_->port(), 4096);
  client.Send(kGet);
  gone.get_future().get();
  EXPECT_EQ(server_->stats().slow_clients, 1u);
}

TEST_F(HttpServerTest, DroppedRequestsAreAnsweredAndDroppedStreamsCutOff) {
  Serve({}, [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    if (request.target == "/stream") responder->StartStream(200, {});
  });
  RawClient client = Connect();
  EXPECT_NE(client.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").Until("}}").find(" 500 "), std::string::npos);
  const std::string cut = client.Send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n").All();
  EXPECT_EQ(cut.find("\r\n0\r\n\r\n"), std::string::npos);
}

TEST_F(HttpServerTest, TooMuchSentAheadIsDroppedAndTheConnectionGivenUp) {
  std::promise<void> arrived;
  Serve({}, [&](HttpRequest, std::shared_ptr<HttpResponder> responder) {
    held_.push_back(responder);
    arrived.set_value();
  });
  const uint64_t before = ReachedCount("http: too much sent ahead");
  RawClient client = Connect();
  client.Send(kGet);
  arrived.get_future().get();
  for (int i = 0; i < 3000; ++i) client.Send(kGet);
  ASSERT_TRUE(Eventually([&] { return ReachedCount("http: too much sent ahead") > before; }));
  OnLoop([&] { held_[0]->Respond(200, {}, "first"); });
  const std::string answer = client.All();
  EXPECT_NE(answer.find("connection: close"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.size() - 5), "first");
  EXPECT_EQ(server_->stats().requests, 1u);
}

TEST_F(HttpServerTest, DrainClosesIdleConnectionsAndWaitsForRunningOnes) {
  std::promise<void> arrived, drained;
  Serve({}, [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    if (request.target != "/slow") return responder->Respond(200, {}, "ok");
    held_.push_back(responder);
    arrived.set_value();
  });
  const int port = server_->port();
  RawClient idle = Connect(), running = Connect();
  idle.Send(kGet).Until("ok");
  running.Send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
  arrived.get_future().get();
  server_->Drain([&] { drained.set_value(); });
  EXPECT_EQ(idle.All(), "");
  EXPECT_FALSE(RawClient(port).connected());
  auto done = drained.get_future();
  EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  OnLoop([&] { held_[0]->Respond(200, {}, "late"); });
  const std::string answer = running.All();
  EXPECT_NE(answer.find("connection: close"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.size() - 4), "late");
  running.Close();
  done.get();
}

TEST_F(HttpServerTest, PortInUseIsABadField) {
  ServeEcho();
  const auto second = HttpServer::Create({.listen_port = server_->port()}, {&loop_},
                                         [](HttpRequest, std::shared_ptr<HttpResponder>) {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(ReasonOf(second.status()), Reason::kBadField);
  EXPECT_EQ(ParamOf(second.status()), "listen_port");
}

TEST_F(HttpServerTest, ThousandsOfIdleConnectionsCostLittle) {
  ServeEcho();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    if (!clients.back()->connected()) break;
  }
  const auto open = static_cast<int64_t>(clients.size());
  ASSERT_TRUE(Eventually([&] { return server_->stats().connections == open; }));
  EXPECT_NE(clients.back()->Send(kGet).Until("GET /a?b=1 ").find("200"), std::string::npos);
}

TEST_F(HttpServerTest, ClientFailuresHaveReasons) {
  Serve({}, [&](HttpRequest request, std::shared_ptr<HttpResponder> responder) {
    if (request.target == "/wait") return held_.push_back(responder);
    responder->Respond(404, {}, "no");
  });
  EXPECT_EQ(ReasonOf(HttpFetch({.url = "ftp://x"}).status()), Reason::kBadField);
  EXPECT_EQ(ReasonOf(HttpFetch({.url = "http://127.0.0.1:1/"}).status()), Reason::kPeerLost);
  EXPECT_EQ(ReasonOf(HttpFetch({.url = Url("/wait"), .idle_timeout = Millis(30)}).status()),
            Reason::kDeadline);
  const std::atomic<bool> cancel{true};
  EXPECT_EQ(ReasonOf(HttpFetch({.url = Url("/wait"), .cancel = &cancel}).status()),
            Reason::kCancelled);
  const auto lines = HttpLines({.url = Url("/x")}, [](std::string_view) { return true; });
  ASSERT_TRUE(lines.ok());
  EXPECT_EQ(lines->status, 404);
  EXPECT_EQ(lines->body, "no");
  const auto head = HttpFetch({.method = "HEAD", .url = Url("/x")});
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->body, "");
}

// A self-signed certificate for 127.0.0.1 and its key, in two files of the temporary directory.
std::pair<std::string, std::string> WriteCertificate() {
  const std::string base = testing::TempDir() + "http_server_test_" + std::to_string(getpid());
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("127.0.0.1"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_sign(certificate, key, EVP_sha256());
  FILE* file = std::fopen((base + ".crt").c_str(), "w");
  PEM_write_X509(file, certificate);
  std::fclose(file);
  file = std::fopen((base + ".key").c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {base + ".crt", base + ".key"};
}

TEST_F(HttpServerTest, SpeaksTlsAndShrugsOffGarbageOnItsPort) {
  const auto [certificate, key] = WriteCertificate();
  ServeEcho({.tls_certificate_file = certificate, .tls_key_file = key});
  RawClient garbage = Connect();
  garbage.Send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(garbage.All().find("200"), std::string::npos);
  HttpCall call;
  call.method = "POST";
  call.url = "https://127.0.0.1:" + std::to_string(server_->port()) + "/t";
  call.body = std::string(200'000, 'b');
  call.verify_tls = false;
  const auto answer = HttpFetch(call);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body.size(), 200'000u + 8);
  call.verify_tls = true;
  EXPECT_EQ(ReasonOf(HttpFetch(call).status()), Reason::kPeerLost);
  HttpServerOptions bad;
  bad.tls_certificate_file = key;
  bad.tls_key_file = key;
  EXPECT_EQ(ParamOf(HttpServer::Create(bad, {&loop_}, [](auto, auto) {}).status()),
            "tls_certificate_file");
  std::remove(certificate.c_str());
  std::remove(key.c_str());
}

}  // namespace
}  // namespace weir
