// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of the one program. main.cc parses the command line into these; each runs on the
// main thread until it is done and returns the exit code: 0 done, 1 failed, 2 bad usage or
// configuration, 70 a bug or a poisoned device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/stdx/ids.h"

namespace weir {

// Where the configuration of a service comes from; later ones win: file, environment, --set.
struct ServiceArgs {
  std::string config_file;
  std::vector<std::string> sets;  // "section.key=value"
  std::string model;              // directory; stands for model.path
  int port = -1;                  // stands for the HTTP port of router.http_address
  bool dump_config = false;
  bool check_config = false;
};

// Every role in one process.
int RunServe(const ServiceArgs& args);
// One role in this process.
int RunRouter(const ServiceArgs& args);
int RunEngine(Role role, const ServiceArgs& args);

struct ChatArgs {
  std::string url = "http://127.0.0.1:8080";
  std::string model;
  std::string system;
  std::string once;     // ask this, print the answer, leave
  std::string api_key;
  int max_tokens = 0;   // 0: the server's default
  double temperature = -1;
};
int RunChat(const ChatArgs& args);

struct InspectArgs {
  std::string directory;
  bool json = false;
  int tokens = 4096;  // of each sequence that the memory plan counts
  int sequences = 64;
};
// Prints what a checkpoint directory holds; 2 with one line of reason if it is damaged.
int RunInspect(const InspectArgs& args);

struct TokenizeArgs {
  std::string model;                // checkpoint directory
  std::string template_name;        // empty: by the checkpoint
  std::string earlier_reasoning;
  bool keep_attribution = false;
  bool json = false;
  std::vector<std::string> bodies;  // files of requests; "-" is the standard input
  std::vector<std::string> diff;    // none or two
};
// Prints the prompts that requests become, or where two of them part; 1 if they do.
int RunTokenize(const TokenizeArgs& args);

struct BenchArgs {
  std::string what;  // steploop, router, transfer, ops, tokenize or dialects
  std::vector<std::string> rest;
};
int RunBench(const BenchArgs& args);

struct KvArgs {
  std::string what;    // ls, stat, verify, erase or bench
  std::string dir;     // of a disk tier
  std::string domain;  // whose records to erase; its id as ls prints it
  std::string trace;   // bench: JSON lines, plain or packed by gzip
  std::string payload = "none";
  std::vector<uint64_t> capacity;  // bench: blocks of the trace
  bool speed = false;
  bool restart = false;
  bool quick = false;
  bool json = false;
};
// A disk tier's folder, which no running server may use; or the store's measures.
int RunKv(const KvArgs& args);

int RunSimulate(const std::vector<std::string>& args);

}  // namespace weir
