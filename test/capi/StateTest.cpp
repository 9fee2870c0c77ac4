// SPDX-License-Identifier: Apache-2.0
// State files: resuming bit by bit, refusing files that are not this model's or not whole, and replacing files
// atomically.
#include "Check.h"
#include "core/Json.h"
#include "core/SafeTensors.h"
#include "mpt-c/abi.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" const mpt_module_desc mpt_module;

namespace {

std::string folder;

std::string at(const char *name) { return folder + "/" + name; }

std::string readFile(const std::string &path) {
  std::string text;
  if (FILE *f = fopen(path.c_str(), "rb")) {
    char part[4096];
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
      text.append(part, n);
    fclose(f);
  }
  return text;
}

void writeFile(const std::string &path, const std::string &text) {
  FILE *f = fopen(path.c_str(), "wb");
  EXPECT(f && fwrite(text.data(), 1, text.size(), f) == text.size());
  if (f)
    fclose(f);
}

int countFiles() {
  int count = 0;
  if (FILE *list = popen(("ls -A " + folder + " | wc -l").c_str(), "r")) {
    if (fscanf(list, "%d", &count) != 1)
      count = -1;
    pclose(list);
  }
  return count;
}

/// Names of the temporary files that saves have left.
std::vector<std::string> temporaries() {
  std::vector<std::string> names;
  DIR *dir = opendir(folder.c_str());
  while (dirent *entry = dir ? readdir(dir) : nullptr)
    if (strstr(entry->d_name, ".tmp-"))
      names.push_back(entry->d_name);
  closedir(dir);
  return names;
}

mpt_trainer *newTrainer() {
  mpt_model *model = nullptr;
  EXPECT(mpt_model_from_desc(&mpt_module, folder.c_str(), &model) == MPT_OK);
  mpt_trainer *trainer = nullptr;
  if (!EXPECT(mpt_trainer_create(model, nullptr, &trainer) == MPT_OK))
    fprintf(stderr, "  %s\n", mpt_last_error());
  mpt_model_destroy(model);
  return trainer;
}

void train(mpt_trainer *t, int steps) {
  static float xs[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, ys[] = {1, 2, 3, 4, 5, 6, 10, 13};
  static const int64_t shapeX[] = {4, 3}, shapeY[] = {4, 2};
  mpt_tensor inputs[] = {{"x", MPT_FLOAT32, 2, shapeX, xs}, {"y", MPT_FLOAT32, 2, shapeY, ys}};
  for (int i = 0; i < steps; ++i)
    EXPECT(mpt_trainer_step(t, inputs, 2, nullptr) == MPT_OK);
}

std::string stateOf(mpt_trainer *t) {
  mpt_tensor first{};
  EXPECT(mpt_trainer_state(t, 0, &first, nullptr) == MPT_OK);
  return {static_cast<char *>(first.data), static_cast<size_t>(mpt_module.state_bytes)};
}

void testResume() {
  mpt_trainer *whole = newTrainer(), *half = newTrainer(), *rest = newTrainer();
  train(whole, 40);
  train(half, 20);
  EXPECT(mpt_trainer_save(half, at("half").c_str()) == MPT_OK);
  EXPECT(mpt_trainer_load(rest, at("half").c_str()) == MPT_OK);
  EXPECT(stateOf(rest) == stateOf(half));
  train(rest, 20);
  EXPECT(stateOf(rest) == stateOf(whole));
  mpt::rt::SafeTensorsReader file;
  EXPECT(file.open(at("half").c_str()) == MPT_OK && file.metadata("step") == "20" &&
         file.metadata("model") == "linear");
  EXPECT(file.metadata("fingerprint") == mpt_module.fingerprint && file.find("w.momentum") && !file.find("x"));
  EXPECT(file.find("w")->begin % 64 == 0);
  for (mpt_trainer *t : {whole, half, rest})
    mpt_trainer_destroy(t);
}

/// Loading must fail with that status and text, and change nothing.
void refuses(const std::string &text, mpt_status status, const char *says) {
  mpt_trainer *t = newTrainer();
  train(t, 3);
  std::string before = stateOf(t);
  writeFile(at("bad"), text);
  mpt_status got = mpt_trainer_load(t, at("bad").c_str());
  if (!EXPECT(got == status && strstr(mpt_last_error(), says)))
    fprintf(stderr, "  status %d, '%s'; expected %d, '%s'\n", got, mpt_last_error(), status, says);
  EXPECT(stateOf(t) == before);
  unlink(at("bad").c_str());
  mpt_trainer_destroy(t);
}

std::string withHeader(const std::string &header, size_t data, uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i)
    text += static_cast<char>(length >> (8 * i));
  return text + header + std::string(data, 'x');
}

std::string withHeader(const std::string &header, size_t data) { return withHeader(header, data, header.size()); }

void testHostile() {
  std::string good = readFile(at("half"));
  for (size_t length = 0; length < good.size(); length += length < 16 ? 1 : 97) {
    mpt_trainer *t = newTrainer();
    writeFile(at("bad"), good.substr(0, length));
    EXPECT(mpt_trainer_load(t, at("bad").c_str()) == MPT_BAD_FILE);
    mpt_trainer_destroy(t);
  }
  std::string other = good;
  other.replace(other.find("5eed"), 4, "beef");
  refuses(other, MPT_INCOMPATIBLE, "fingerprint 5eed");
  std::string renamed = good;
  renamed.replace(renamed.find("b.momentum"), 1, "c");
  refuses(renamed, MPT_INCOMPATIBLE, "'b.momentum'");
  std::string retyped = good;
  retyped.replace(retyped.find("\"I64\""), 5, "\"U64\"");
  refuses(retyped, MPT_INCOMPATIBLE, "'step' of type int64");
  refuses(withHeader("{}", 0), MPT_BAD_FILE, "no fingerprint");
  refuses(withHeader("{}", 0, ~0ull), MPT_BAD_FILE, "header within");
  refuses(withHeader("[]", 0), MPT_BAD_FILE, "JSON object");
  refuses(withHeader("{\"a\":", 0), MPT_BAD_FILE, "bad header");
  refuses(withHeader(std::string(100000, '['), 0), MPT_BAD_FILE, "too deep");
  auto tensor = [](const char *rest) { return std::string("{\"a\":{\"dtype\":\"F32\",") + rest + "}"; };
  refuses(withHeader(tensor("\"shape\":[1],\"data_offsets\":[0,8]}"), 8), MPT_BAD_FILE, "expected 4 bytes");
  refuses(withHeader(tensor("\"shape\":[1],\"data_offsets\":[4,8]}"), 4), MPT_BAD_FILE, "truncated");
  refuses(withHeader(tensor("\"shape\":[1],\"data_offsets\":[-4,0]}"), 4), MPT_BAD_FILE, "offsets within");
  refuses(withHeader(tensor("\"shape\":[1],\"data_offsets\":[8,4]}"), 8), MPT_BAD_FILE, "offsets within");
  refuses(withHeader(tensor("\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}"), 0), MPT_BAD_FILE,
          "for its shape");
  refuses(withHeader(tensor("\"shape\":[-1],\"data_offsets\":[0,0]}"), 0), MPT_BAD_FILE, "for its shape");
  refuses(withHeader(tensor("\"shape\":[1.5],\"data_offsets\":[0,4]}"), 4), MPT_BAD_FILE, "integers");
  refuses(withHeader(tensor("\"shape\":[1]}"), 4), MPT_BAD_FILE, "data_offsets");
  refuses(
      withHeader(
          tensor("\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[3,4]}"),
          4),
      MPT_BAD_FILE, "share");
  refuses(
      withHeader(
          tensor("\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"),
          0),
      MPT_BAD_FILE, "twice");
  refuses(withHeader("{\"a\":{\"dtype\":\"Q7\",\"shape\":[],\"data_offsets\":[0,4]}}", 4), MPT_BAD_FILE,
          "unknown dtype");
  mpt_trainer *t = newTrainer();
  EXPECT(mpt_trainer_load(t, at("none").c_str()) == MPT_NOT_FOUND);
  EXPECT(mpt_trainer_load(t, folder.c_str()) == MPT_IO_ERROR);
  EXPECT(mkfifo(at("pipe").c_str(), 0600) == 0 && mpt_trainer_load(t, at("pipe").c_str()) == MPT_IO_ERROR);
  unlink(at("pipe").c_str());
  // Every flipped bit is refused, or lies where nothing that is loaded depends on it.
  mpt_trainer *whole = newTrainer();
  EXPECT(mpt_trainer_load(whole, at("half").c_str()) == MPT_OK);
  std::string loaded = stateOf(whole);
  int refused = 0;
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    std::string flipped = good;
    flipped[i / 8] ^= static_cast<char>(1 << i % 8);
    writeFile(at("bad"), flipped);
    if (mpt_trainer_load(t, at("bad").c_str()) != MPT_OK)
      ++refused;
    else
      EXPECT(stateOf(t) == loaded);
  }
  size_t header = static_cast<unsigned char>(good[0]) + 256u * static_cast<unsigned char>(good[1]);
  EXPECT(refused > static_cast<int>(8 * (good.size() - 8 - header))); // all of the data's, and more
  unlink(at("bad").c_str());
  mpt_trainer_destroy(t);
  mpt_trainer_destroy(whole);
}

void testWriting() {
  mpt_trainer *t = newTrainer();
  train(t, 5);
  EXPECT(mpt_trainer_save(t, at("kept").c_str()) == MPT_OK);
  std::string old = readFile(at("kept"));
  int files = countFiles();
  EXPECT(mpt_trainer_save(t, "/proc/none/file") == MPT_IO_ERROR && strstr(mpt_last_error(), "/proc/none/file"));
  EXPECT(mpt_trainer_save(t, folder.c_str()) == MPT_IO_ERROR); // a folder is in the way
  train(t, 1);
  // A disk that takes no more bytes: the limit on file size acts like it.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before{}, small{256, RLIM_INFINITY};
  getrlimit(RLIMIT_FSIZE, &before);
  small.rlim_max = before.rlim_max;
  setrlimit(RLIMIT_FSIZE, &small);
  mpt_status status = mpt_trainer_save(t, at("kept").c_str());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT(status == MPT_IO_ERROR && strstr(mpt_last_error(), "kept"));
  EXPECT(readFile(at("kept")) == old && countFiles() == files);
  mpt_trainer_destroy(t);
}

/// A process that saves without pause is killed at some moment, fifty times: the file is always a whole one.
void testKill() {
  mpt_trainer *t = newTrainer();
  EXPECT(mpt_trainer_save(t, at("killed").c_str()) == MPT_OK);
  for (int i = 0; i < 50; ++i) {
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
      for (;;)
        mpt_trainer_save(t, at("killed").c_str());
    }
    usleep(static_cast<useconds_t>(500 + i * 137 % 3000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT(mpt_trainer_load(t, at("killed").c_str()) == MPT_OK);
    EXPECT(temporaries().size() <= 1); // the next process removes the file that this one has left
  }
  // Whatever the killed have left goes with the next save; the file that a living process writes stays.
  std::string stale = at("killed.tmp-1-0"), busy = at("killed.tmp-1-1");
  writeFile(stale, "half");
  writeFile(busy, "half");
  int lock = open(busy.c_str(), O_RDONLY);
  EXPECT(lock >= 0 && flock(lock, LOCK_EX) == 0);
  EXPECT(mpt_trainer_save(t, at("killed").c_str()) == MPT_OK);
  EXPECT(temporaries() == std::vector<std::string>{"killed.tmp-1-1"});
  close(lock);
  EXPECT(mpt_trainer_save(t, at("killed").c_str()) == MPT_OK && temporaries().empty());
  mpt_trainer_destroy(t);
}

/// The same with files that take a while to write: each save fills the file with one number; any file found has one.
void testKillLarge() {
  constexpr int64_t count = 1 << 19;
  std::vector<int32_t> values(count);
  std::string path = at("large");
  auto save = [&](int32_t version) {
    std::fill(values.begin(), values.end(), version);
    return mpt::rt::writeSafeTensors(path.c_str(), {{"v", MPT_INT32, {count}, values.data(), 4 * count}}, {});
  };
  EXPECT(save(0) == MPT_OK);
  int changed = 0;
  int32_t last = 0;
  useconds_t longest = 19000; // of a process's life; more where that is too short for a single save
  for (int i = 0; i < 50; ++i) {
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
      for (int32_t version = 1000 * i;; ++version)
        save(version);
    }
    usleep(1000 + static_cast<useconds_t>(i) * 7919 % longest);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    mpt::rt::SafeTensorsReader file;
    EXPECT(file.open(path.c_str()) == MPT_OK && file.find("v") && file.read(*file.find("v"), values.data()) == MPT_OK);
    EXPECT(std::count(values.begin(), values.end(), values[0]) == count);
    changed += values[0] != last;
    last = values[0];
    if (i % 10 == 9 && !changed)
      longest *= 4;
  }
  EXPECT(changed > 0 && temporaries().size() <= 1);
  EXPECT(save(0) == MPT_OK && temporaries().empty());
}

void testJson() {
  mpt::rt::Json json;
  std::string error;
  EXPECT(mpt::rt::parseJson(" {\"a\" : [1, -2.5e3, true, null], \"b\\u00e9\\ud83d\\ude00\\n\" : \"\"} ", json, error));
  EXPECT(json.find("a")->array[0].integer == 1 && json.find("a")->array[1].number == -2500);
  EXPECT(json.find("b\xc3\xa9\xf0\x9f\x98\x80\n"));
  for (const char *bad :
       {"", "{", "[1,]", "{\"a\" 1}", "01", "1.", "-", "\"\\x\"", "\"\\ud800\"", "nul", "1 2", "\"a", "\"\n\""})
    EXPECT(!mpt::rt::parseJson(bad, json, error) && !error.empty());
  std::string quoted;
  mpt::rt::appendJsonString(quoted, "a\"\\\n\x01");
  EXPECT(mpt::rt::parseJson(quoted, json, error) && json.string == "a\"\\\n\x01");
}

} // namespace

int main() {
  char name[] = "/tmp/mpt-state-XXXXXX";
  folder = mkdtemp(name);
  float w[] = {0.1f, 0.2f, 0.3f, -0.4f, 0.5f, 0.6f}, b[] = {0, 0.25f}, scale = 1024;
  EXPECT(mpt::rt::writeSafeTensors(at("linear.safetensors").c_str(),
                                   {{"w.master", MPT_FLOAT32, {3, 2}, w, 24},
                                    {"b", MPT_FLOAT32, {2}, b, 8},
                                    {"scale", MPT_FLOAT32, {}, &scale, 4}},
                                   {}) == MPT_OK);
  testJson();
  testResume();
  testHostile();
  testWriting();
  testKill();
  testKillLarge();
  EXPECT(system(("rm -rf " + folder).c_str()) == 0);
  return mpt::test::finish("state");
}
