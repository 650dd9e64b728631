// SPDX-License-Identifier: Apache-2.0
#include "base/net/http_text.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <random>

#include "base/stdx/random.h"

namespace weir {
namespace {

std::string_view PhraseOf(int status) {
  switch (status) {
    case 100: return "Continue";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 413: return "Content Too Large";
    case 415: return "Unsupported Media Type";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 529: return "Overloaded";
    default: return "Status";
  }
}

std::string_view CodeOf(int status) {
  switch (status) {
    case 408: return "request_timeout";
    case 413: return "body_too_large";
    case 431: return "header_too_large";
    case 503: return "overloaded";
    default: return status < 500 ? "bad_request" : "internal";
  }
}

void AppendClean(std::string_view text, std::string* out) {
  for (const char c : text) {
    const bool breaks = c == '\r' || c == '\n' || c == '\0';
    out->push_back(breaks ? ' ' : c);
  }
}

}  // namespace

void AppendHead(const HeadOptions& options, const HttpHeaders& headers, std::string* out) {
  out->append("HTTP/1.1 ").append(std::to_string(options.status)).push_back(' ');
  out->append(PhraseOf(options.status)).append("\r\n");
  for (const HttpHeader& header : headers) {
    AppendClean(header.name, out);
    out->append(": ");
    AppendClean(header.value, out);
    out->append("\r\n");
  }
  if (options.framing == BodyFraming::kLength) {
    out->append("content-length: ").append(std::to_string(options.length)).append("\r\n");
  } else if (options.framing == BodyFraming::kChunked) {
    out->append("transfer-encoding: chunked\r\n");
  }
  if (!options.keep_alive) {
    out->append("connection: close\r\n");
  } else if (options.http10) {
    out->append("connection: keep-alive\r\n");
  }
  if (!options.date.empty()) out->append("date: ").append(options.date).append("\r\n");
  if (!options.request_id.empty()) {
    out->append("x-request-id: ").append(options.request_id).append("\r\n");
  }
  out->append("\r\n");
}

void AppendChunk(std::string_view bytes, std::string* out) {
  if (bytes.empty()) return;
  char size[20];
  const int length = std::snprintf(size, sizeof(size), "%zx\r\n", bytes.size());
  out->append(size, static_cast<size_t>(length)).append(bytes).append("\r\n");
}

std::string DateText(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[64];
  const size_t length = std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return std::string(text, length);
}

std::string DefaultErrorBody(int status, std::string_view message) {
  std::string body = R"({"error":{"message":")";
  for (const char c : message) {
    if (c == '"' || c == '\\') body.push_back('\\');
    body.push_back(static_cast<unsigned char>(c) < 0x20 ? ' ' : c);
  }
  const std::string_view type = status == 503  ? "overloaded_error"
                                : status < 500 ? "invalid_request_error"
                                               : "internal_error";
  body.append(R"(","type":")").append(type);
  body.append(R"(","code":")").append(CodeOf(status)).append(R"("}})");
  return body;
}

std::string ChooseRequestId(std::string_view from_client) {
  const auto sane = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '_' || c == '-';
  };
  if (!from_client.empty() && from_client.size() <= 128 &&
      std::all_of(from_client.begin(), from_client.end(), sane)) {
    return std::string(from_client);
  }
  static const uint64_t seed = std::random_device()() * 0x100000001ULL;
  static std::atomic<uint64_t> count{0};
  char text[24];
  std::snprintf(text, sizeof(text), "req_%016llx",
                static_cast<unsigned long long>(RandomBits(seed, 1, count.fetch_add(1))));
  return text;
}

std::string OriginForm(std::string_view target) {
  const size_t scheme = target.find("://");
  if (scheme == std::string_view::npos || !(EqualIgnoreCase(target.substr(0, scheme), "http") ||
                                            EqualIgnoreCase(target.substr(0, scheme), "https"))) {
    return std::string(target);
  }
  target.remove_prefix(scheme + 3);
  const size_t path = target.find_first_of("/?");
  if (path == std::string_view::npos) return "/";
  return (target[path] == '?' ? "/" : "") + std::string(target.substr(path));
}

bool EqualIgnoreCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

const std::string* FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const HttpHeader& header : headers) {
    if (EqualIgnoreCase(header.name, name)) return &header.value;
  }
  return nullptr;
}

std::string_view HttpRequest::query() const {
  const size_t mark = target.find('?');
  return mark == std::string::npos ? std::string_view()
                                   : std::string_view(target).substr(mark + 1);
}

}  // namespace weir
