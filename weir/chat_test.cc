// SPDX-License-Identifier: Apache-2.0
#include "weir/chat.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Chat, TakesEveryUsualFormOfTheAddress) {
  for (const char* typed : {"http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "h:1",
                            "h:1/v1"}) {
    EXPECT_EQ(ChatBaseUrl(typed), "http://h:1") << typed;
  }
  EXPECT_EQ(ChatBaseUrl("https://h/proxy/v1"), "https://h/proxy");
}

TEST(Chat, ACommandIsASlashAndOneWord) {
  EXPECT_EQ(ChatCommandOf("/reset"), "reset");
  EXPECT_EQ(ChatCommandOf("/foo bar"), "foo");
  EXPECT_EQ(ChatCommandOf("/usr/bin is what?"), "");
  EXPECT_EQ(ChatCommandOf("/ is division"), "");
  EXPECT_EQ(ChatCommandOf("hello"), "");
}

}  // namespace
}  // namespace weir
