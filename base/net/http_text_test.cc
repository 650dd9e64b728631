// SPDX-License-Identifier: Apache-2.0
#include "base/net/http_text.h"

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(HttpText, HeadCannotBeSplitByAHeaderValue) {
  std::string out;
  AppendHead({.status = 200, .length = 3, .keep_alive = false}, {{"x", "a\r\nevil: 1"}}, &out);
  EXPECT_EQ(out,
            "HTTP/1.1 200 OK\r\nx: a  evil: 1\r\ncontent-length: 3\r\nconnection: close\r\n\r\n");
}

TEST(HttpText, ChunksNeverEndTheBodyByThemselves) {
  std::string out;
  AppendChunk("", &out);
  AppendChunk("hello world, hello", &out);
  EXPECT_EQ(out, "12\r\nhello world, hello\r\n");
}

TEST(HttpText, DatesAreInTheForm) { EXPECT_EQ(DateText(784111777), "Sun, 06 Nov 1994 08:49:37 GMT"); }

TEST(HttpText, RequestIdsAreKeptOnlyWhenSane) {
  EXPECT_EQ(ChooseRequestId("abc-1.2_Z"), "abc-1.2_Z");
  const std::string fresh = ChooseRequestId("with space");
  EXPECT_EQ(fresh.substr(0, 4), "req_");
  EXPECT_NE(fresh, ChooseRequestId(""));
  EXPECT_EQ(ChooseRequestId(std::string(129, 'a')).size(), 20u);
}

TEST(HttpText, ErrorBodiesAreJsonWhateverTheMessage) {
  EXPECT_EQ(DefaultErrorBody(400, "a \"b\"\n"),
            R"({"error":{"message":"a \"b\" ","type":"invalid_request_error","code":"bad_request"}})");
}

TEST(HttpText, TargetsLoseSchemeAndAuthority) {
  EXPECT_EQ(OriginForm("http://h:1/v1/models?x=http://y"), "/v1/models?x=http://y");
  EXPECT_EQ(OriginForm("HTTPS://h"), "/");
  EXPECT_EQ(OriginForm("http://h?x"), "/?x");
  for (const char* same : {"/v1?x=http://y/z", "*", "ftp://h/x", "h:443", ""}) {
    EXPECT_EQ(OriginForm(same), same);
  }
}

TEST(HttpText, HeadersAreFoundInAnyCase) {
  const HttpHeaders headers = {{"Content-Type", "x"}};
  ASSERT_TRUE(FindHeader(headers, "content-type"));
  EXPECT_FALSE(FindHeader(headers, "content"));
}

}  // namespace
}  // namespace weir
