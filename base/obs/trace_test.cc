// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/obs/json_text.h"
#include "base/obs/trace.h"
#include "base/obs/trace_point.h"
#include "base/runtime/clock.h"
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

TEST(TracePoint, RowsThatTheDiskDoesNotTakeAreCounted) {
  ScratchDirectory directory;
  std::filesystem::create_symlink("/dev/full", directory.path() + "/events.ndjson");
  {
    auto sink = NdjsonTraceSink::Create(directory.path());
    ASSERT_TRUE(sink.ok()) << sink.status();
    for (int i = 0; i < 3; ++i) Trace(sink->get(), TraceEvent{.t = i, .kind = "drain"});
    Trace(sink->get(), TraceVerify{.step = 2});
    const Instant limit = Now() + std::chrono::seconds(20);
    while ((*sink)->dropped() < 3 && Now() < limit) std::this_thread::yield();
    EXPECT_EQ((*sink)->dropped(), 3u);
  }
  EXPECT_NE(ReadFile(directory.path() + "/verify.ndjson").find("\"step\":2"), std::string::npos);
}

TEST(TracePoint, AFileThatIsCutOffKeepsWholeRows) {
  ScratchDirectory directory;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const size_t row = TraceJson(TraceEvent{.t = 1, .kind = "x"}).size() + 1;
  {
    auto sink = NdjsonTraceSink::Create(directory.path());
    ASSERT_TRUE(sink.ok());
    rlimit small = before;
    small.rlim_cur = static_cast<rlim_t>(2 * row + row / 2);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 5; ++i) Trace(sink->get(), TraceEvent{.t = i, .kind = "x"});
    const Instant limit = Now() + std::chrono::seconds(20);
    while ((*sink)->dropped() < 3 && Now() < limit) std::this_thread::yield();
    EXPECT_EQ((*sink)->dropped(), 3u);
    setrlimit(RLIMIT_FSIZE, &before);
  }
  const std::string text = ReadFile(directory.path() + "/events.ndjson");
  EXPECT_EQ(text.size(), 2 * row) << text;
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
