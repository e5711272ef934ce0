/* The C interface from end to end: a cache with a memory file, a pool, values, numbers, and what a caller gets wrong.
 * Each line that must hold is checked; the program ends with 0 if all hold. Its only argument is the memory file. */
#include "ebbtide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int line, enum ebbtide_status status, enum ebbtide_status expected)
{
    if (status != expected) {
        fprintf(stderr, "line %d: status %d, not %d: %s\n", line, (int)status, (int)expected, ebbtide_last_error());
        exit(1);
    }
}

static void hold(int line, bool condition)
{
    if (!condition) {
        fprintf(stderr, "line %d does not hold\n", line);
        exit(1);
    }
}

#define EXPECT(call, status) expect(__LINE__, (call), (status))
#define HOLD(condition) hold(__LINE__, (condition))
#define KEY(text) (const uint8_t *)(text), sizeof(text) - 1

static struct ebbtide_cache *open_cache(const char *memory_file)
{
    struct ebbtide_options options;
    struct ebbtide_cache *cache = NULL;
    ebbtide_options_init(&options);
    options.memory_bytes = 16u << 20;
    options.memory_ceiling_bytes = 32u << 20;
    options.memory_file = memory_file;
    EXPECT(ebbtide_open(&options, &cache), EBBTIDE_STATUS_OK);
    return cache;
}

static void halve(uint64_t *words, size_t count, void *context)
{
    for (size_t i = 0; i < count; i++)
        words[i] /= *(const uint64_t *)context;
}

static bool count_entry(const uint8_t *key, size_t key_length, const uint8_t *value, size_t value_length, void *context)
{
    HOLD(key_length == 1 && value_length == 5 && memcmp(value, "value", 5) == 0);
    *(int *)context += key[0];
    return true;
}

static void structured(struct ebbtide_cache *cache)
{
    uint64_t deltas[2] = {10, 500}, words[64] = {0}, two = 2;
    size_t count = 0;
    int sum = 0;
    struct ebbtide_value *value = NULL;
    EXPECT(ebbtide_words_get(cache, KEY("words"), words, 64, &count), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_words_edit(cache, KEY("words"), halve, &two), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_words_add(cache, KEY("words"), deltas, 2, EBBTIDE_TTL_DEFAULT, NULL), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_words_add(cache, KEY("words"), deltas, 2, EBBTIDE_TTL_DEFAULT, words), EBBTIDE_STATUS_OK);
    HOLD(words[0] == 20 && words[1] == 1000);
    EXPECT(ebbtide_words_edit(cache, KEY("words"), halve, &two), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_words_get(cache, KEY("words"), words, 64, &count), EBBTIDE_STATUS_OK);
    HOLD(count == 2 && words[0] == 10 && words[1] == 500);
    EXPECT(ebbtide_words_get(cache, KEY("words"), words, 1, &count), EBBTIDE_STATUS_TOO_LARGE);
    EXPECT(ebbtide_words_add(cache, KEY("words"), deltas, 1, 0, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_words_add(cache, KEY("words"), NULL, 1, 0, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_words_edit(cache, KEY("words"), NULL, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);

    EXPECT(ebbtide_map_each(cache, KEY("map"), count_entry, &sum), EBBTIDE_STATUS_MISS);
    for (uint8_t i = 1; i <= 100; i++)
        EXPECT(ebbtide_map_insert(cache, KEY("map"), &i, 1, KEY("value"), EBBTIDE_TTL_NEVER), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_map_get(cache, KEY("map"), KEY("\x07"), &value), EBBTIDE_STATUS_OK);
    HOLD(ebbtide_value_length(value) == 5);
    ebbtide_value_free(value);
    EXPECT(ebbtide_map_remove(cache, KEY("map"), KEY("\x07")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_map_remove(cache, KEY("map"), KEY("\x07")), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_map_get(cache, KEY("map"), KEY("\x07"), &value), EBBTIDE_STATUS_MISS);
    HOLD(value == NULL);
    EXPECT(ebbtide_map_each(cache, KEY("map"), count_entry, &sum), EBBTIDE_STATUS_OK);
    HOLD(sum == 5050 - 7);
    EXPECT(ebbtide_map_get(cache, KEY("words"), KEY("a"), &value), EBBTIDE_STATUS_WRONG_STRUCTURE);
    HOLD(strstr(ebbtide_last_error(), "words") != NULL);
    EXPECT(ebbtide_map_insert(cache, KEY("map"), KEY(""), KEY("value"), 0), EBBTIDE_STATUS_KEY_LENGTH);
}

static void values(struct ebbtide_cache *cache)
{
    struct ebbtide_value *value = NULL;
    char buffer[8];
    size_t length = 0;
    EXPECT(ebbtide_insert(cache, KEY("key"), KEY("value"), 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_get(cache, KEY("key"), &value), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_insert(cache, KEY("key"), KEY("a longer value"), EBBTIDE_TTL_NEVER), EBBTIDE_STATUS_OK);
    /* The hit is a snapshot. */
    HOLD(ebbtide_value_length(value) == 5 && memcmp(ebbtide_value_data(value), "value", 5) == 0);
    ebbtide_value_free(value);
    EXPECT(ebbtide_get_into(cache, KEY("key"), (uint8_t *)buffer, sizeof buffer, &length), EBBTIDE_STATUS_TOO_LARGE);
    HOLD(length == strlen("a longer value"));
    EXPECT(ebbtide_contains(cache, KEY("key")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_touch(cache, KEY("key"), 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_remove(cache, KEY("key")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_remove(cache, KEY("key")), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_get(cache, KEY("key"), &value), EBBTIDE_STATUS_MISS);
    HOLD(value == NULL);
}

static void numbers(struct ebbtide_cache *cache)
{
    uint64_t number = 0;
    EXPECT(ebbtide_increment(cache, KEY("count"), 1, &number), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_insert(cache, KEY("count"), KEY("41"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_increment(cache, KEY("count"), 1, &number), EBBTIDE_STATUS_OK);
    HOLD(number == 42);
    EXPECT(ebbtide_decrement(cache, KEY("count"), 50, &number), EBBTIDE_STATUS_OK);
    HOLD(number == 0);
    EXPECT(ebbtide_insert(cache, KEY("word"), KEY("text"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_increment(cache, KEY("word"), 1, NULL), EBBTIDE_STATUS_NOT_NUMERIC);
}

static void wrong(struct ebbtide_cache *cache)
{
    struct ebbtide_options options;
    /* Whatever these point to is overwritten by null. */
    struct ebbtide_cache *none = cache;
    struct ebbtide_compact *no_pool = (struct ebbtide_compact *)cache;
    struct ebbtide_value *value = NULL;
    uint8_t key[300] = {0};
    EXPECT(ebbtide_get(NULL, KEY("key"), &value), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_get(cache, NULL, 3, &value), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_get(cache, KEY("key"), NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_get(cache, key, SIZE_MAX, &value), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_insert(cache, key, sizeof key, KEY("value"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_KEY_LENGTH);
    EXPECT(ebbtide_insert(cache, key, 0, KEY("value"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_KEY_LENGTH);
    HOLD(strstr(ebbtide_last_error(), "0 bytes") != NULL);
    ebbtide_options_init(&options);
    options.policy = "none such";
    EXPECT(ebbtide_open(&options, &none), EBBTIDE_STATUS_INVALID_ARGUMENT);
    options.size = 1;
    EXPECT(ebbtide_open(&options, &none), EBBTIDE_STATUS_INVALID_ARGUMENT);
    HOLD(none == NULL);
    none = cache;
    EXPECT(ebbtide_pool(cache, "none such", &none), EBBTIDE_STATUS_UNKNOWN_POOL);
    EXPECT(ebbtide_compact_pool(cache, "none such", &no_pool), EBBTIDE_STATUS_UNKNOWN_POOL);
    HOLD(none == NULL && no_pool == NULL && ebbtide_value_data(NULL) == NULL && ebbtide_value_length(NULL) == 0);
    ebbtide_value_free(NULL);
    ebbtide_free(NULL);
}

static void pools(void)
{
    struct ebbtide_cache *cache = open_cache(NULL), *users = NULL;
    struct ebbtide_statistics whole, own;
    struct ebbtide_flash_statistics flash;
    struct ebbtide_pool_options options;
    struct ebbtide_value *value = NULL;
    ebbtide_pool_options_init(&options);
    options.weight = 2;
    EXPECT(ebbtide_pool(cache, "users", &users), EBBTIDE_STATUS_UNKNOWN_POOL);
    EXPECT(ebbtide_pool_add(cache, "users", &options), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_pool(cache, "users", &users), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_insert(users, KEY("key"), KEY("value"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_get(cache, KEY("key"), &value), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_contains(users, KEY("key")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_stats(cache, &whole), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_stats(users, &own), EBBTIDE_STATUS_OK);
    HOLD(whole.entries == 1 && whole.misses == 1 && own.entries == 1 && own.misses == 0);
    HOLD(own.memory_limit_bytes < whole.memory_limit_bytes);
    EXPECT(ebbtide_flash_stats(users, &flash), EBBTIDE_STATUS_REFUSED);
    HOLD(strstr(ebbtide_last_error(), "no flash") != NULL);
    EXPECT(ebbtide_pool_remove(cache, "users"), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_insert(users, KEY("key"), KEY("value"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_UNKNOWN_POOL);
    ebbtide_free(users);
    ebbtide_free(cache);
}

int main(int count, char **arguments)
{
    struct ebbtide_cache *cache;
    struct ebbtide_value *value = NULL;
    struct ebbtide_statistics statistics;
    HOLD(count == 2);
    cache = open_cache(arguments[1]);
    values(cache);
    structured(cache);
    numbers(cache);
    wrong(cache);
    EXPECT(ebbtide_insert(cache, KEY("kept"), KEY("over a restart"), EBBTIDE_TTL_DEFAULT), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_get(cache, KEY("kept"), &value), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_stats(cache, &statistics), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_resize(cache, 20u << 20), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_resize(cache, 64u << 20), EBBTIDE_STATUS_INVALID_ARGUMENT);
    HOLD(statistics.hits > 0 && statistics.misses > 0 && statistics.entries > 0);
    EXPECT(ebbtide_close(cache), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_contains(cache, KEY("kept")), EBBTIDE_STATUS_CLOSED);
    EXPECT(ebbtide_close(cache), EBBTIDE_STATUS_CLOSED);
    ebbtide_free(cache);
    /* A value outlives its cache. */
    HOLD(ebbtide_value_length(value) == strlen("over a restart"));
    ebbtide_value_free(value);

    cache = open_cache(arguments[1]);
    EXPECT(ebbtide_contains(cache, KEY("kept")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_invalidate_all(cache), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_contains(cache, KEY("kept")), EBBTIDE_STATUS_MISS);
    ebbtide_free(cache);
    pools();
    puts("everything holds");
    return 0;
}
