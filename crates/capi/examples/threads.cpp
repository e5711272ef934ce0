// The C interface from C++: several threads share a cache; each counts in entries of all.
#include "ebbtide.h"

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Free {
    void operator()(ebbtide_cache *cache) const { ebbtide_free(cache); }
    void operator()(ebbtide_value *value) const { ebbtide_value_free(value); }
};

const uint8_t *bytes(const std::string &text) { return reinterpret_cast<const uint8_t *>(text.data()); }

constexpr int THREADS = 4, ROUNDS = 500, KEYS = 10;

} // namespace

int main()
{
    ebbtide_cache *opened = nullptr;
    ebbtide_options options;
    ebbtide_options_init(&options);
    options.memory_ceiling_bytes = options.memory_bytes;
    if (ebbtide_open(&options, &opened) != EBBTIDE_STATUS_OK) {
        std::fprintf(stderr, "%s\n", ebbtide_last_error());
        return 1;
    }
    std::unique_ptr<ebbtide_cache, Free> cache(opened);
    for (int key = 0; key < KEYS; key++) {
        const std::string name = "count" + std::to_string(key);
        ebbtide_insert(cache.get(), bytes(name), name.size(), bytes("0"), 1, EBBTIDE_TTL_NEVER);
    }
    std::vector<std::thread> threads;
    for (int thread = 0; thread < THREADS; thread++) {
        threads.emplace_back([&cache] {
            for (int round = 0; round < ROUNDS; round++) {
                const std::string name = "count" + std::to_string(round % KEYS);
                ebbtide_increment(cache.get(), bytes(name), name.size(), 1, nullptr);
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (int key = 0; key < KEYS; key++) {
        const std::string name = "count" + std::to_string(key);
        ebbtide_value *found = nullptr;
        if (ebbtide_get(cache.get(), bytes(name), name.size(), &found) != EBBTIDE_STATUS_OK) {
            return 1;
        }
        std::unique_ptr<ebbtide_value, Free> value(found);
        const std::string text(reinterpret_cast<const char *>(ebbtide_value_data(found)), ebbtide_value_length(found));
        if (text != std::to_string(THREADS * ROUNDS / KEYS)) {
            std::fprintf(stderr, "%s is %s\n", name.c_str(), text.c_str());
            return 1;
        }
    }
    std::puts("every increment was counted");
    return 0;
}
