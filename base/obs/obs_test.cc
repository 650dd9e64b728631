// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/obs/admin.h"
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

}  // namespace
}  // namespace weir
