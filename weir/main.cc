// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <exception>
#include <new>

#include <CLI/CLI.hpp>

#include "weir/build_id.h"
#include "weir/commands.h"
#include "weir/kv_commands.h"
#include "weir/version.h"

namespace {

void AddService(CLI::App* app, weir::ServiceArgs* args) {
  app->add_option("--config", args->config_file, "YAML or JSON file (deploy/config has examples)");
  app->add_option("--set", args->sets, "Override one setting, for example router.deadline_ms=5000");
  app->add_option("--model", args->model, "Checkpoint directory (model.path)");
  app->add_flag("--dump-config", args->dump_config, "Print the effective configuration and exit");
  app->add_flag("--check-config", args->check_config,
                "Exit with 0 if the configuration is good, 2 if not");
}

constexpr int kExitBadUsage = 2;

// CLI11 would complain of a missing subcommand, whatever was written in its place.
bool IsSubcommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (one->get_name() == name) return true;
  }
  return false;
}

void AddChat(CLI::App* chat, weir::ChatArgs* args) {
  chat->add_option("--url", args->url, "Address of the server; a trailing /v1 may be there")
      ->capture_default_str();
  chat->add_option("--model", args->model, "Model name; the server's only one if not given");
  chat->add_option("--system", args->system, "System prompt");
  chat->add_option("--once", args->once, "Ask this, print the answer, leave");
  chat->add_option("--api-key", args->api_key, "Sent as a bearer token");
  chat->add_option("--max-tokens", args->max_tokens, "Limit of the answer");
  chat->add_option("--temperature", args->temperature, "0 for greedy");
}

CLI::App* AddInspect(CLI::App* app, weir::InspectArgs* args) {
  CLI::App* inspect = app->add_subcommand("inspect", "Say what a checkpoint holds and needs");
  inspect->description(
      "Says what a checkpoint holds: parameters and bytes by part, KV per token, state per\n"
      "sequence, and the memory each role needs. Reads config.json; checks weights and\n"
      "tokenizer.json where they are there.\n\n"
      "Examples:\n"
      "  weir inspect build/models/tiny-v3\n"
      "  weir inspect DIR --sequences 256 --tokens 32768\n"
      "  weir inspect DIR --json | jq .roles.decode");
  inspect->add_option("directory", args->directory, "Checkpoint directory")->required();
  inspect->add_flag("--json", args->json, "Print one JSON object");
  inspect->add_option("--tokens", args->tokens, "Tokens of each sequence in the memory plan")
      ->check(CLI::Range(1, 1 << 28))
      ->capture_default_str();
  inspect->add_option("--sequences", args->sequences, "Sequences in the memory plan")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  return inspect;
}

CLI::App* AddTokenize(CLI::App* app, weir::TokenizeArgs* args) {
  CLI::App* tokenize = app->add_subcommand("tokenize", "Show the prompt that a request becomes");
  tokenize->description(
      "Renders bodies of /v1/chat/completions or /v1/completions and prints their prompts' token\n"
      "ids, or shows where the prompts of two requests part.\n\n"
      "Examples:\n"
      "  weir tokenize --model DIR request.json\n"
      "  weir tokenize --model DIR --diff first.json second.json");
  tokenize->add_option("--model", args->model, "Checkpoint directory")->required();
  tokenize->add_option("--template", args->template_name, "As router.template");
  tokenize->add_option("--earlier-reasoning", args->earlier_reasoning,
                       "As router.earlier_reasoning");
  tokenize->add_flag("--keep-attribution", args->keep_attribution, "As router.keep_attribution");
  tokenize->add_flag("--json", args->json, "Print a JSON object for each prompt, with its text");
  CLI::Option* diff =
      tokenize->add_option("--diff", args->diff, "Two files: show where their prompts part; exits 1")
          ->expected(2);
  tokenize->add_option("body", args->bodies, "Files; - is the standard input")->excludes(diff);
  return tokenize;
}

CLI::App* AddBench(CLI::App* app, weir::BenchArgs* args) {
  constexpr char kParts[] = "steploop, router, transfer, ops, tokenize or dialects";
  CLI::App* bench = app->add_subcommand("bench", "Measure a part of the program");
  bench->add_option("what", args->what, kParts)->required();
  bench->allow_extras();
  bench->footer("After it: --quick takes seconds, --json prints one JSON object.");
  return bench;
}

CLI::App* AddKv(CLI::App* app, weir::KvArgs* args, weir::KvNodeBenchArgs* node) {
  CLI::App* kv = app->add_subcommand("kv", "Look into a disk tier of KV, or measure the store");
  kv->description(
      "Looks into the folder of a disk tier that no server uses, or measures the store.\n\n"
      "Examples:\n"
      "  weir kv ls --dir DIR            every record: domain, blocks, last key, place\n"
      "  weir kv stat --dir DIR          how much there is\n"
      "  weir kv verify --dir DIR        reads everything; 1 if something is damaged\n"
      "  weir kv erase --dir DIR --domain ID   forgets a domain, durably\n"
      "  weir kv bench --trace tests/golden/traces/mooncake_conversation.jsonl.gz --payload none");
  kv->add_option("what", args->what, "ls, stat, verify, erase or bench")->required();
  kv->add_option("--dir", args->dir, "Folder of the disk tier");
  kv->add_option("--domain", args->domain, "Whose records to erase: an id as ls prints it");
  kv->add_option("--trace", args->trace, "bench: replay these requests (JSON lines, may be packed)");
  kv->add_option("--payload", args->payload, "bench: none counts blocks; real keeps and checks bytes")
      ->check(CLI::IsMember({"none", "real"}));
  kv->add_option("--capacity", args->capacity, "bench: blocks of the host tier; several may be given");
  kv->add_option("--node", node->address, "bench: a running store, at its --listen address");
  kv->add_flag("--speed", args->speed, "bench: copies, disk and lookup beside what bounds them");
  kv->add_flag("--restart", args->restart, "bench: memory and start-up time of a large disk tier");
  kv->add_flag("--quick", args->quick, "Take seconds");
  kv->add_flag("--json", args->json, "Print one JSON object");
  return kv;
}

int RunKvOrNodeBench(const weir::KvArgs& args, weir::KvNodeBenchArgs node) {
  if (args.what != "bench" || node.address.empty()) return weir::RunKv(args);
  node.quick = args.quick;
  node.json = args.json;
  return weir::RunKvNodeBench(node);
}

CLI::App* AddSimulate(CLI::App* app) {
  CLI::App* simulate =
      app->add_subcommand("simulate", "Run a cluster of the production cores on a fake clock");
  simulate->allow_extras();
  simulate->prefix_command();
  simulate->footer(
      "Options: --seed N the first seed (1), --count N so many seeds (1), --trace 1 every message.");
  return simulate;
}

CLI::App* AddKvStore(CLI::App* app, weir::KvStoreArgs* args) {
  CLI::App* store = app->add_subcommand("kvstore", "Run the store of a host for its engines");
  store->description(
      "Keeps KV of several engine processes of this host in shared memory and on a local disk.\n\n"
      "Example:\n"
      "  weir kvstore --role node --listen unix:/run/weir/kv.sock --host-bytes 64GiB \\\n"
      "      --dir /var/lib/weir/kv --disk-bytes 1TiB");
  store->add_option("--role", args->role, "node")->capture_default_str();
  store->add_option("--listen", args->listen, "Where engines dial: unix:PATH or host:port")
      ->required();
  store->add_option("--admin-address", args->admin, "HTTP for /metrics, /health and /debug/state")
      ->capture_default_str();
  store->add_option("--host-bytes", args->host_bytes, "Memory of the host tier")
      ->transform(CLI::AsSizeValue(false));
  store->add_option("--dir", args->dir, "Folder of the disk tier; none without it");
  store->add_option("--window-bytes", args->window_bytes, "Memory for window states; none without")
      ->transform(CLI::AsSizeValue(false));
  store->add_option("--state-bytes", args->state_bytes, "The largest window state")
      ->transform(CLI::AsSizeValue(false));
  store->add_option("--state-seconds", args->state_seconds, "How long a window state may be used")
      ->capture_default_str();
  store->add_option("--disk-bytes", args->disk_bytes, "What the disk tier may hold")
      ->transform(CLI::AsSizeValue(false));
  return store;
}

}  // namespace

static int RunProgram(int argc, char** argv) {
  CLI::App app{
      "weir serves DeepSeek-family language models.\n\n"
      "Examples:\n"
      "  weir serve --model deploy/models/script\n"
      "  weir chat --url http://127.0.0.1:8080\n"
      "  weir decode --config deploy/config/decode.yaml --set decode.slots=64\n"};
  app.set_version_flag("--version",
                       std::string("weir ") + weir::kVersion + " (build " + weir::BuildId() + ")");
  app.require_subcommand(1);

  weir::ServiceArgs service;
  CLI::App* serve = app.add_subcommand("serve", "Run every role in one process");
  AddService(serve, &service);
  serve->add_option("--port", service.port, "HTTP port; 0 picks one")->check(CLI::Range(0, 65535));
  CLI::App* router = app.add_subcommand("router", "Run the router: HTTP in front, engines behind");
  AddService(router, &service);
  router->add_option("--port", service.port, "HTTP port; 0 picks one")->check(CLI::Range(0, 65535));
  CLI::App* prefill = app.add_subcommand("prefill", "Run a prefill engine");
  AddService(prefill, &service);
  CLI::App* decode = app.add_subcommand("decode", "Run a decode engine");
  AddService(decode, &service);

  weir::ChatArgs chat_args;
  CLI::App* chat = app.add_subcommand("chat", "Talk to a running server in the terminal");
  AddChat(chat, &chat_args);

  weir::InspectArgs inspect_args;
  CLI::App* inspect = AddInspect(&app, &inspect_args);

  weir::TokenizeArgs tokenize_args;
  CLI::App* tokenize = AddTokenize(&app, &tokenize_args);

  weir::BenchArgs bench_args;
  CLI::App* bench = AddBench(&app, &bench_args);

  weir::KvArgs kv_args;
  weir::KvNodeBenchArgs kv_node_args;
  CLI::App* kv = AddKv(&app, &kv_args, &kv_node_args);
  weir::KvStoreArgs kvstore_args;
  CLI::App* kvstore = AddKvStore(&app, &kvstore_args);

  CLI::App* simulate = AddSimulate(&app);

  if (argc > 1 && argv[1][0] != '-' && !IsSubcommand(app, argv[1])) {
    std::fprintf(stderr, "weir: unknown subcommand '%s'; `weir --help` lists them\n", argv[1]);
    return kExitBadUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitBadUsage;  // prints the error, or what was asked for
  }
  if (serve->parsed()) return weir::RunServe(service);
  if (router->parsed()) return weir::RunRouter(service);
  if (prefill->parsed()) return weir::RunEngine(weir::Role::kPrefill, service);
  if (decode->parsed()) return weir::RunEngine(weir::Role::kDecode, service);
  if (chat->parsed()) return weir::RunChat(chat_args);
  if (inspect->parsed()) return weir::RunInspect(inspect_args);
  if (tokenize->parsed()) return weir::RunTokenize(tokenize_args);
  if (bench->parsed()) {
    bench_args.rest = bench->remaining();
    return weir::RunBench(bench_args);
  }
  if (kv->parsed()) return RunKvOrNodeBench(kv_args, kv_node_args);
  if (kvstore->parsed()) return weir::RunKvStore(kvstore_args);
  if (simulate->parsed()) return weir::RunSimulate(simulate->remaining());
  return 2;
}

int main(int argc, char** argv) {
  // What third parties throw: threads that cannot be made, memory that is not there.
  try {
    return RunProgram(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "weir: there is not enough memory for what is configured\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "weir: %s\n", error.what());
  }
  return 1;
}
