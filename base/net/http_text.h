// SPDX-License-Identifier: Apache-2.0
//
// The textual parts of HTTP/1.1 that need no socket: heads of answers, error bodies, request ids.
// Pure functions, any thread; nothing here can fail.
#pragma once

#include <string>
#include <string_view>

#include "base/net/http_server.h"

namespace weir {

enum class BodyFraming { kLength, kChunked, kUntilClose, kNone };

struct HeadOptions {
  int status = 200;
  BodyFraming framing = BodyFraming::kLength;
  size_t length = 0;  // for kLength
  bool keep_alive = true;
  bool http10 = false;
  std::string_view date;        // as DateText gives it
  std::string_view request_id;  // empty for none
};

// Appends the status line and all header lines. Bytes of `headers` that would break the framing are
// replaced by spaces.
void AppendHead(const HeadOptions& options, const HttpHeaders& headers, std::string* out);

// Appends one chunk of a chunked body; nothing for empty bytes, since that would end it.
void AppendChunk(std::string_view bytes, std::string* out);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string DateText(int64_t unix_seconds);

// {"error":{"message":...,"type":...,"code":...}} for answers the server gives by itself.
std::string DefaultErrorBody(int status, std::string_view message);

// The client's request id if it is 1..128 characters of [A-Za-z0-9._-], else a fresh one.
std::string ChooseRequestId(std::string_view from_client);

// "/a?b" of "http://host/a?b", the form in which proxies ask; other targets as they are.
std::string OriginForm(std::string_view target);

bool EqualIgnoreCase(std::string_view a, std::string_view b);

}  // namespace weir
