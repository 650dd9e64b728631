// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/obs/json_text.h"
#include "base/obs/log.h"
#include "base/obs/metrics.h"
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
  ScratchDirectory() : path_(testing::TempDir() + "obs_test_" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

TEST(Log, TextIsOneLineWithQuotesWhereNeeded) {
  EXPECT_EQ(FormatLogForTest(false, "hello\nthere",
                             {{"n", 7}, {"ok", true}, {"r", 0.5}, {"s", "a b"}, {"u", "plain"}, {"e", ""}}),
            "hello there n=7 ok=true r=0.5 s=\"a b\" u=plain e=\"\"");
}

TEST(Log, JsonStaysJson) {
  EXPECT_EQ(FormatLogForTest(true, "say \"x\"", {{"k", std::string("\xff\n")}, {"n", -1}}),
            "\"message\":\"say \\\"x\\\"\",\"k\":\"\xEF\xBF\xBD\\n\",\"n\":-1");
  EXPECT_EQ(FormatLogForTest(true, "m", {{"status", Error(Reason::kDeadline, "late")}}),
            "\"message\":\"m\",\"status\":\"deadline: late\"");
}

TEST(Log, LevelAndFileFollowTheOptions) {
  ScratchDirectory directory;
  const std::string path = directory.path() + "/log";
  ASSERT_TRUE(InitLog({.level = LogLevel::kWarning, .json = true, .file = path}).ok());
  LogInfo("unheard");
  LogWarning("heard {} %", {{"request", "r1"}});
  ASSERT_TRUE(InitLog({}).ok());
  const std::string text = ReadFile(path);
  EXPECT_EQ(text.find("unheard"), std::string::npos);
  EXPECT_NE(text.find("\"level\":\"warning\",\"message\":\"heard {} %\",\"request\":\"r1\"}\n"),
            std::string::npos) << text;
  EXPECT_EQ(ReasonOf(InitLog({.file = "/dev/null/log"})), Reason::kBadField);
  EXPECT_EQ(*ParseLogLevel("error"), LogLevel::kError);
  EXPECT_FALSE(ParseLogLevel("loud").ok());
}

TEST(JsonText, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(JsonString("ä€😀\t"), "\"ä€😀\\u0009\"");
  EXPECT_EQ(JsonString("\xc0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");      // overlong
  EXPECT_EQ(JsonString("\xed\xa0\x80").size(), 2u + 9u);                  // surrogate
  EXPECT_EQ(JsonString("a\xe2\x82"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");    // cut off
}

TEST(Metrics, ExposesWhatWasRegistered) {
  Metrics metrics;
  Counter requests = metrics.AddCounter("weir_test_requests_total", "Requests.", {{"code", "200"}});
  metrics.AddCounter("weir_test_requests_total", "Requests.", {{"code", "500"}});
  Gauge depth = metrics.AddGauge("weir_test_queue_depth", "Depth.");
  Histogram wait = metrics.AddHistogram("weir_test_wait_seconds", "Wait.", {0.1, 1});
  metrics.AddCallback("weir_test_live", "Live.", {{"loop", "a"}}, [] { return 3.0; });
  requests.Add();
  requests.Add(2);
  depth.Set(5);
  depth.Add(-1);
  wait.Observe(0.5);
  const std::string text = metrics.Text();
  for (const char* line : {"weir_test_requests_total{code=\"200\"} 3", "code=\"500\"} 0",
                           "weir_test_queue_depth 4", "weir_test_wait_seconds_bucket{le=\"1\"} 1",
                           "weir_test_live{loop=\"a\"} 3", "# TYPE weir_test_live gauge"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\nin\n" << text;
  }
}

TEST(MetricsDeathTest, NamesFollowTheRule) {
  Metrics metrics;
  EXPECT_DEATH(metrics.AddCounter("weir_requests", "no total"), "");
  EXPECT_DEATH(metrics.AddGauge("requests", "no prefix"), "");
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
