// SPDX-License-Identifier: Apache-2.0
#include "base/obs/metrics.h"

#include <utility>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "base/stdx/check.h"

namespace weir {
namespace {

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

void Metrics::Counter::Add(double amount) { counter_->Increment(amount); }
void Metrics::Counter::MoveTo(double sum) {
  const double by = sum - counter_->Value();
  if (by > 0) counter_->Increment(by);
}
void Metrics::Gauge::Set(double value) { gauge_->Set(value); }
void Metrics::Histogram::Observe(double value) { histogram_->Observe(value); }

Metrics::Metrics() : registry_(std::make_unique<prometheus::Registry>()) {}
Metrics::~Metrics() = default;

Metrics::Counter Metrics::AddCounter(const std::string& name, const std::string& help,
                                     MetricLabels labels) {
  WEIR_CHECK(EndsWith(name, "_total"));
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  return Counter(&family.Add(labels));
}

Metrics::Gauge Metrics::AddGauge(const std::string& name, const std::string& help,
                                 MetricLabels labels) {
  WEIR_CHECK(!EndsWith(name, "_total"));
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(*registry_);
  return Gauge(&family.Add(labels));
}

Metrics::Histogram Metrics::AddHistogram(const std::string& name, const std::string& help,
                                         std::vector<double> bounds, MetricLabels labels) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  return Histogram(&family.Add(labels, std::move(bounds)));
}

void Metrics::OnScrape(std::function<void()> copy) { copies_.push_back(std::move(copy)); }

std::string Metrics::Text() {
  for (const auto& copy : copies_) copy();
  return prometheus::TextSerializer().Serialize(registry_->Collect());
}

}  // namespace weir
