// SPDX-License-Identifier: Apache-2.0
//
// Where the HTTP parser of the server puts a request's body. A value of one parser, on its thread;
// the parser's body limit bounds it. Only for http_server.cc: it shows Beast.
#pragma once

#include <cstdint>
#include <string>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>

namespace weir {

// A body that grows as bytes come, rather than by what the client announces.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool kIsRequest, class Fields>
    reader(boost::beast::http::header<kIsRequest, Fields>&, std::string& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& ec) {
      ec = {};
      size_t taken = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers);
           ++it) {
        const boost::asio::const_buffer part = *it;
        body_.append(static_cast<const char*>(part.data()), part.size());
        taken += part.size();
      }
      return taken;
    }
    void finish(boost::system::error_code& ec) { ec = {}; }

   private:
    std::string& body_;
  };
};

}  // namespace weir
