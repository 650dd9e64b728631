// SPDX-License-Identifier: Apache-2.0
//
// Metrics for Prometheus. Register at start and keep the handle; updating a handle is thread-safe
// and cheap (an atomic; a histogram takes a leaf lock), and handles live as long as the registry.
// Names follow one rule, checked at registration: weir_ first, lower case, the unit last (_seconds,
// _bytes, _tokens, _ratio ...), and _total exactly on counters. Label values come from small fixed
// sets, never from clients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace weir {

class Counter {
 public:
  void Add(double value = 1);

 private:
  friend class Metrics;
  explicit Counter(prometheus::Counter* impl) : impl_(impl) {}
  prometheus::Counter* impl_;
};

class Gauge {
 public:
  void Set(double value);
  void Add(double value);

 private:
  friend class Metrics;
  explicit Gauge(prometheus::Gauge* impl) : impl_(impl) {}
  prometheus::Gauge* impl_;
};

class Histogram {
 public:
  void Observe(double value);

 private:
  friend class Metrics;
  explicit Histogram(prometheus::Histogram* impl) : impl_(impl) {}
  prometheus::Histogram* impl_;
};

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  Metrics();
  ~Metrics();

  Counter AddCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge AddGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram AddHistogram(const std::string& name, const std::string& help,
                         const std::vector<double>& upper_bounds, const Labels& labels = {});
  // Asked at each exposition, on the thread that calls Text; must be thread-safe and quick. A name
  // that ends in _total is exposed as a counter.
  void AddCallback(const std::string& name, const std::string& help, const Labels& labels,
                   std::function<double()> value);

  // The exposition in the Prometheus text format.
  std::string Text() const;

  // Bounds from 1 ms to 2 min, for latencies in seconds.
  static std::vector<double> LatencyBounds();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
