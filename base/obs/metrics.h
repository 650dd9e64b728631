// SPDX-License-Identifier: Apache-2.0
//
// Metrics in Prometheus' terms. Names follow its rules: counters end in _total, units are base units
// and stand last (_seconds, _bytes), labels are few and never ids of requests. Registering is for
// start-up; the handles are for any thread and live as long as the Metrics. A name that breaks the
// rules or is registered with another kind is a bug and checked.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
}  // namespace prometheus

namespace weir {

using MetricLabels = std::map<std::string, std::string>;

class Metrics {
 public:
  class Counter {
   public:
    void Add(double amount = 1);
    // Moves the counter to a sum kept elsewhere; a smaller sum is ignored.
    void MoveTo(double sum);

   private:
    friend class Metrics;
    explicit Counter(prometheus::Counter* counter) : counter_(counter) {}
    prometheus::Counter* counter_;
  };
  class Gauge {
   public:
    void Set(double value);

   private:
    friend class Metrics;
    explicit Gauge(prometheus::Gauge* gauge) : gauge_(gauge) {}
    prometheus::Gauge* gauge_;
  };
  class Histogram {
   public:
    void Observe(double value);

   private:
    friend class Metrics;
    explicit Histogram(prometheus::Histogram* histogram) : histogram_(histogram) {}
    prometheus::Histogram* histogram_;
  };

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  Counter AddCounter(const std::string& name, const std::string& help, MetricLabels labels = {});
  Gauge AddGauge(const std::string& name, const std::string& help, MetricLabels labels = {});
  // `bounds` are the upper bounds of the buckets, rising.
  Histogram AddHistogram(const std::string& name, const std::string& help,
                         std::vector<double> bounds, MetricLabels labels = {});

  // Runs before each exposition, on the scraping thread: to copy gauges from where they are kept.
  void OnScrape(std::function<void()> copy);

  // The text exposition format, version 0.0.4.
  std::string Text();

 private:
  std::unique_ptr<prometheus::Registry> registry_;
  std::vector<std::function<void()>> copies_;
};

}  // namespace weir
