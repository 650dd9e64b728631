// SPDX-License-Identifier: Apache-2.0
#include "base/obs/metrics.h"

#include <mutex>
#include <sstream>
#include <string_view>

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

void CheckName(std::string_view name, bool counter) {
  WEIR_CHECK(name.substr(0, 5) == "weir_");
  WEIR_CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") ==
             std::string_view::npos);
  WEIR_CHECK(EndsWith(name, "_total") == counter);
}

}  // namespace

struct Metrics::Impl {
  struct Callback {
    std::string name;
    std::string help;
    Labels labels;
    std::function<double()> value;
  };

  // One family per name; series of one name are told apart by labels.
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  mutable std::mutex mu;
  std::vector<Callback> callbacks;  // guarded by mu
};

Metrics::Metrics() : impl_(std::make_unique<Impl>()) {}
Metrics::~Metrics() = default;

void Counter::Add(double value) { impl_->Increment(value); }
void Gauge::Set(double value) { impl_->Set(value); }
void Gauge::Add(double value) { impl_->Increment(value); }
void Histogram::Observe(double value) { impl_->Observe(value); }

Counter Metrics::AddCounter(const std::string& name, const std::string& help, const Labels& labels) {
  CheckName(name, true);
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(impl_->registry);
  return Counter(&family.Add(labels));
}

Gauge Metrics::AddGauge(const std::string& name, const std::string& help, const Labels& labels) {
  CheckName(name, false);
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(impl_->registry);
  return Gauge(&family.Add(labels));
}

Histogram Metrics::AddHistogram(const std::string& name, const std::string& help,
                                const std::vector<double>& upper_bounds, const Labels& labels) {
  CheckName(name, false);
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(impl_->registry);
  return Histogram(&family.Add(labels, prometheus::Histogram::BucketBoundaries(upper_bounds)));
}

void Metrics::AddCallback(const std::string& name, const std::string& help, const Labels& labels,
                          std::function<double()> value) {
  CheckName(name, EndsWith(name, "_total"));
  std::lock_guard lock(impl_->mu);
  impl_->callbacks.push_back({name, help, labels, std::move(value)});
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = impl_->registry.Collect();
  std::vector<Impl::Callback> callbacks;
  {
    // Copied, so that a callback may take its own lock.
    std::lock_guard lock(impl_->mu);
    callbacks = impl_->callbacks;
  }
  std::map<std::string, prometheus::MetricFamily> by_name;
  for (const Impl::Callback& callback : callbacks) {
    const bool counter = EndsWith(callback.name, "_total");
    prometheus::MetricFamily& family = by_name[callback.name];
    family.name = callback.name;
    family.help = callback.help;
    family.type = counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge;
    prometheus::ClientMetric metric;
    for (const auto& [key, value] : callback.labels) metric.label.push_back({key, value});
    (counter ? metric.counter.value : metric.gauge.value) = callback.value();
    family.metric.push_back(std::move(metric));
  }
  for (auto& [name, family] : by_name) families.push_back(std::move(family));
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

std::vector<double> Metrics::LatencyBounds() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120};
}

}  // namespace weir
