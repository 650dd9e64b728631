// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/obs/json_text.h"
#include "base/obs/trace.h"
#include "base/obs/trace_point.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ScratchDirectory {
 public:
  ScratchDirectory() : path_(testing::TempDir() + "trace_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(JsonText, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(JsonString("ä€😀\t"), "\"ä€😀\\u0009\"");
  EXPECT_EQ(JsonString("\xc0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");      // overlong
  EXPECT_EQ(JsonString("\xed\xa0\x80").size(), 2u + 9u);                  // surrogate
  EXPECT_EQ(JsonString("a\xe2\x82"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");    // cut off
}

TEST(Trace, ParsesAndFormatsTraceparent) {
  const std::string text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto context = ParseTraceparent(text);
  ASSERT_TRUE(context);
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), text);
  const TraceContext child = ChildOf(*context);
  EXPECT_EQ(child.trace_lo, context->trace_lo);
  EXPECT_NE(child.span, context->span);
  EXPECT_TRUE(ParseTraceparent("01" + text.substr(2) + "-more"));
  for (const std::string& bad : {std::string(), text.substr(1), text + "x", text + "-x", "ff" + text.substr(2),
                                std::string("00-") + std::string(32, '0') + text.substr(35),
                                text.substr(0, 36) + std::string(16, '0') + "-01",
                                "00-0AF7651916CD43DD8448EB211C80319C" + text.substr(35)}) {
    EXPECT_FALSE(ParseTraceparent(bad)) << bad;
  }
  EXPECT_FALSE(NewTrace(false) == NewTrace(false));
}

TEST(TracePoint, NoSinkIsFine) { Trace(nullptr, TraceStep{.step = 1}); }

TEST(TracePoint, WritesOneFilePerTable) {
  ScratchDirectory directory;
  {
    auto sink = NdjsonTraceSink::Create(directory.path());
    ASSERT_TRUE(sink.ok()) << sink.status();
    Trace(sink->get(), TraceVerify{.step = 2, .rid = 3, .gamma = 2, .ell = 2, .accepted = 1, .survival = {9, 8}});
    Trace(sink->get(), TraceEvent{.t = 5, .kind = "drain"});
    Trace(sink->get(), TraceEvent{.t = 6, .kind = "kill"});
    EXPECT_EQ((*sink)->dropped(), 0u);
  }
  EXPECT_EQ(ReadFile(directory.path() + "/verify.ndjson"),
            R"({"step":2,"rid":3,"gamma":2,"ell":2,"accepted":1,"emitted":0,"surv":[9,8],"full_check":false,"accepted_full":0})"
            "\n");
  EXPECT_EQ(ReadFile(directory.path() + "/events.ndjson"),
            "{\"t\":5,\"kind\":\"drain\",\"subject\":-1,\"value\":0}\n"
            "{\"t\":6,\"kind\":\"kill\",\"subject\":-1,\"value\":0}\n");
  EXPECT_EQ(ReasonOf(NdjsonTraceSink::Create("/dev/null").status()), Reason::kBadField);
}

TEST(TracePoint, EveryTableHasItsRow) {
  EXPECT_EQ(TraceTable(TraceRequest{}), "requests");
  EXPECT_EQ(TraceTable(TraceMigration{}), "migrations");
  EXPECT_NE(TraceJson(TraceRequest{.rid = 1}).find("\"hit_tok_l2\":0"), std::string::npos);
  EXPECT_NE(TraceJson(TraceIo{.kind = "pd_kv", .high_class = true}).find("\"cls\":\"hi\""), std::string::npos);
  EXPECT_NE(TraceJson(TraceNic{.receive = true}).find("\"dir\":\"rx\""), std::string::npos);
  EXPECT_NE(TraceJson(TraceStep{.verify_budget = 4}).find("\"K_budget\":4"), std::string::npos);
  EXPECT_NE(TraceJson(TraceExperts{}).find("\"slot\":0"), std::string::npos);
  EXPECT_NE(TraceJson(TraceSpan{.name = "prefill"}).find("\"name\":\"prefill\""), std::string::npos);
}

}  // namespace
}  // namespace weir
