// SPDX-License-Identifier: Apache-2.0
#include "codec/conversation/json_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/stdx/status.h"

namespace weir::codec {
namespace {

std::string Number(double value) {
  std::string out;
  AppendJsonNumber(value, &out);
  return out;
}

TEST(JsonText, NumbersAreWrittenAsPythonDoes) {
  EXPECT_EQ(Number(1.0), "1.0");
  EXPECT_EQ(Number(-0.0), "-0.0");
  EXPECT_EQ(Number(100000.0), "100000.0");
  EXPECT_EQ(Number(1e16), "1e+16");
  EXPECT_EQ(Number(1.5e-07), "1.5e-07");
  EXPECT_EQ(Number(1e-05), "1e-05");
  EXPECT_EQ(Number(0.0001), "0.0001");
  EXPECT_EQ(Number(0.000123), "0.000123");
  EXPECT_EQ(Number(1.2345678901234568e+29), "1.2345678901234568e+29");
  EXPECT_EQ(Number(2.5e300), "2.5e+300");
  EXPECT_EQ(Number(1e-300), "1e-300");
  EXPECT_EQ(Number(1.7976931348623157e308), "1.7976931348623157e+308");
  EXPECT_EQ(Number(123456789012345.6), "123456789012345.6");
  EXPECT_EQ(Number(std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonText, NormalFormKeepsOrderAndText) {
  EXPECT_EQ(*NormalJson("{\"b\":1,\"a\":[1.0,18446744073709551615,-5,null,true],\"b\":{}}"),
            "{\"b\": {}, \"a\": [1.0, 18446744073709551615, -5, null, true]}");
  EXPECT_EQ(*NormalJson(R"("\u00e9\n\u0001 \/")"), "\"é\\n\\u0001 /\"");
  EXPECT_EQ(*NormalJson(" [ ] "), "[]");
}

TEST(JsonText, HostileTextIsAnError) {
  const auto failed = [](std::string_view text) {
    const auto got = NormalJson(text);
    EXPECT_FALSE(got.ok()) << text.substr(0, 40);
    return !got.ok() && ReasonOf(got.status()) == Reason::kBadField;
  };
  EXPECT_TRUE(failed(""));
  EXPECT_TRUE(failed("{"));
  EXPECT_TRUE(failed("{} x"));
  EXPECT_TRUE(failed("\"\xff\""));
  EXPECT_TRUE(failed("\"\\ud800\""));
  EXPECT_TRUE(failed("\"\\udc00\""));
  EXPECT_TRUE(failed("1e999"));
  EXPECT_TRUE(failed(std::string(1000000, '[')));
  EXPECT_TRUE(failed(std::string(128, '[') + std::string(128, ']')));
  EXPECT_TRUE(NormalJson(std::string(127, '[') + std::string(127, ']')).ok());
}

TEST(JsonText, MembersOfArguments) {
  const auto members = JsonMembers(R"({"a": "x\"y", "n": 3, "o": {"k":[1]}, "": null})");
  ASSERT_TRUE(members.ok());
  ASSERT_EQ(members->size(), 4u);
  EXPECT_TRUE((*members)[0].is_string);
  EXPECT_EQ((*members)[0].value, "x\"y");
  EXPECT_EQ((*members)[1].value, "3");
  EXPECT_EQ((*members)[2].value, "{\"k\": [1]}");
  EXPECT_EQ((*members)[3].key, "");
  EXPECT_FALSE(JsonMembers("[1]").ok());
}

TEST(JsonText, EscapesAndReplaces) {
  std::string out;
  AppendJsonString("a\"\\\n\x01\x7fé🦀", &out);
  EXPECT_EQ(out, "\"a\\\"\\\\\\n\\u0001\x7fé🦀\"");
  out.clear();
  // One replacement per maximal ill-formed part: E2 82, FF, C0, AF, then a cut-off lead.
  AppendJsonEscaped("x\xE2\x82y\xFF\xC0\xAFz\xF0\x9F", &out);
  EXPECT_EQ(out, "x\uFFFDy\uFFFD\uFFFD\uFFFDz\uFFFD");
}

}  // namespace
}  // namespace weir::codec
