// SPDX-License-Identifier: Apache-2.0
#include "weir/tokenize.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

std::string Parting(std::string_view a, std::string_view b) {
  const auto tokenizer = *codec::Tokenizer::FromFile("deploy/models/script/tokenizer.json");
  return DescribeParting(*tokenizer, tokenizer->EncodeTrusted(a), tokenizer->EncodeTrusted(b));
}

TEST(Tokenize, SaysWherePromptsPart) {
  const std::string said = Parting("<｜User｜>1\n+2", "<｜User｜>1\n-2");
  EXPECT_NE(said.find("the same for 3 tokens, of 5 in A and 5 in B\n"), std::string::npos) << said;
  EXPECT_NE(said.find(R"(both have  "<｜User｜>1\n")"), std::string::npos) << said;
  EXPECT_NE(said.find(R"(A goes on  "+2")"), std::string::npos) << said;
  EXPECT_NE(said.find(R"(B goes on  "-2")"), std::string::npos) << said;
}

TEST(Tokenize, PromptsMayEndOrBeTheSame) {
  EXPECT_NE(Parting("1", "1\nx").find("A ends here"), std::string::npos);
  EXPECT_NE(Parting("", "12").find("the same for 0 tokens"), std::string::npos);
  EXPECT_EQ(Parting("1", "1"), "the same prompt of 1 tokens\n");
}

}  // namespace
}  // namespace weir
