// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/obs/admin.h"
#include "base/obs/json_text.h"
#include "base/obs/log.h"
#include "base/obs/metrics.h"

namespace weir {
namespace {

TEST(Metrics, TextHasNamesHelpAndValues) {
  Metrics metrics;
  Metrics::Counter tokens = metrics.AddCounter("weir_tokens_total", "Tokens sent.");
  Metrics::Gauge slots = metrics.AddGauge("weir_slots", "Slots in use.", {{"role", "decode"}});
  metrics.OnScrape([&] { slots.Set(3); });
  tokens.Add(2);
  tokens.MoveTo(7);
  tokens.MoveTo(5);  // never backwards
  const std::string text = metrics.Text();
  EXPECT_NE(text.find("weir_tokens_total 7"), std::string::npos) << text;
  EXPECT_NE(text.find("weir_slots{role=\"decode\"} 3"), std::string::npos) << text;
}

TEST(ProgressWatch, FailsOnlyWhileThereIsWorkAndNothingMoves) {
  ProgressWatch watch;
  uint64_t count = 1;
  bool busy = true;
  watch.Watch("loop", [&] { return count; }, [&] { return busy; }, Millis(1000));
  const Instant start = Instant(Millis(5));
  EXPECT_EQ(watch.Verdict(start), "");
  EXPECT_EQ(watch.Verdict(start + Millis(900)), "");
  EXPECT_NE(watch.Verdict(start + Millis(2100)), "");
  ++count;
  EXPECT_EQ(watch.Verdict(start + Millis(2200)), "");
  EXPECT_NE(watch.Verdict(start + Millis(5200)), "");
  busy = false;
  EXPECT_EQ(watch.Verdict(start + Millis(9200)), "");
}

TEST(ProgressWatch, RequirementsComeFirst) {
  ProgressWatch watch;
  watch.Require([] { return std::string("draining"); });
  EXPECT_EQ(watch.Verdict(Instant(Millis(1))), "draining");
}

TEST(Log, RefusesUnknownSettings) {
  EXPECT_EQ(ParamOf(ConfigureLog("loud", "")), "log.level");
  EXPECT_EQ(ParamOf(ConfigureLog("", "xml")), "log.format");
  EXPECT_TRUE(ConfigureLog("", "").ok());
  Log(LogLevel::kInfo, "a line", {{"n", 3}, {"text", "two words"}});
}

TEST(Log, FieldsAreBoundedAndNothingInThemIsObeyed) {
  const LogField field("name", std::string(1023, 'x') + "\u00e9" + std::string(20000, 'y'));
  EXPECT_EQ(field.value, std::string(1023, 'x') + "... (21025 bytes)");
  const LogField status("why", Error(Reason::kBadField, std::string(5000, 'z')));
  EXPECT_LT(status.value.size(), 1100u);
  EXPECT_EQ(LogField("k", "short").value, "short");
  testing::internal::CaptureStderr();
  Log(LogLevel::kWarn, "peer", {{"a", "x\x7f"}, {"b", "\xc2\x9b" "31m"}, {"c", "\xe2\x80\xa8"}, {"d", "plain"}});
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"(peer a="x\u007f" b="\u009b31m" c="\u2028" d=plain)"), std::string::npos)
      << line;
}

TEST(JsonText, KeepsTextAndEscapesWhatIsNone) {
  EXPECT_EQ(JsonString("a\u00e9\n\x01\xff\"\\"), "\"a\u00e9\\n\\u0001\xEF\xBF\xBD\\\"\\\\\"");
}

}  // namespace
}  // namespace weir
