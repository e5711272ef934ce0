/* Compact pools and negative results, range maps, append buffers, arrays, parts of values, several keys at once, and writes
 * that depend on the present value. Each line that must hold is checked; the program ends with 0 if all hold. */
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

static bool collect(const uint8_t *key, size_t key_length, const uint8_t *value, size_t value_length, void *context)
{
    HOLD(key_length == 1 && value_length == 1 && value[0] == key[0]);
    strncat(context, (const char *)key, 1);
    return true;
}

static bool join(const uint8_t *record, size_t length, void *context)
{
    strncat(context, (const char *)record, length);
    return strlen(context) < 8;
}

static void range_maps(const struct ebbtide_cache *cache)
{
    struct ebbtide_value *value = NULL;
    char found[16] = "";
    EXPECT(ebbtide_range_map_each(cache, KEY("range"), NULL, 0, NULL, 0, collect, found), EBBTIDE_STATUS_OK);
    HOLD(strcmp(found, "") == 0);
    for (const char *key = "dbeca"; *key; key++)
        EXPECT(ebbtide_range_map_insert(cache, KEY("range"), (const uint8_t *)key, 1, (const uint8_t *)key, 1, 0),
               EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_range_map_each(cache, KEY("range"), KEY("b"), KEY("d"), collect, found), EBBTIDE_STATUS_OK);
    HOLD(strcmp(found, "bc") == 0);
    EXPECT(ebbtide_range_map_get(cache, KEY("range"), KEY("a"), &value), EBBTIDE_STATUS_OK);
    HOLD(ebbtide_value_length(value) == 1);
    ebbtide_value_free(value);
    EXPECT(ebbtide_range_map_remove(cache, KEY("range"), KEY("b")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_range_map_remove(cache, KEY("range"), KEY("b")), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_range_map_get(cache, KEY("range"), KEY("b"), &value), EBBTIDE_STATUS_MISS);
    found[0] = 0;
    EXPECT(ebbtide_range_map_each(cache, KEY("range"), NULL, 0, NULL, 0, collect, found), EBBTIDE_STATUS_OK);
    HOLD(strcmp(found, "acde") == 0);
    EXPECT(ebbtide_map_get(cache, KEY("range"), KEY("a"), &value), EBBTIDE_STATUS_WRONG_STRUCTURE);
    EXPECT(ebbtide_range_map_each(cache, KEY("range"), NULL, 1, NULL, 0, collect, found),
           EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_range_map_each(cache, KEY("range"), NULL, 0, NULL, 0, NULL, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
}

static void buffers(const struct ebbtide_cache *cache)
{
    char found[64] = "";
    size_t removed = 0;
    EXPECT(ebbtide_buffer_each(cache, KEY("events"), join, found), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_buffer_append(cache, KEY("events"), KEY("one"), 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_buffer_append(cache, KEY("events"), KEY("two"), 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_buffer_append(cache, KEY("events"), KEY("three"), 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_buffer_retain_last(cache, KEY("events"), 2, &removed), EBBTIDE_STATUS_OK);
    HOLD(removed == 1);
    EXPECT(ebbtide_buffer_each(cache, KEY("events"), join, found), EBBTIDE_STATUS_OK);
    HOLD(strcmp(found, "twothree") == 0);
    EXPECT(ebbtide_buffer_each(cache, KEY("events"), NULL, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_buffer_append(cache, KEY("range"), KEY("one"), 0), EBBTIDE_STATUS_WRONG_STRUCTURE);
}

static void add(void *element, void *delta)
{
    *(float *)element += *(const float *)delta;
}

static void arrays(const struct ebbtide_cache *cache)
{
    const float zeros[4] = {0, 0, 0, 0};
    float scores[4], delta = 0.5F, score = 2;
    size_t count = 0;
    EXPECT(ebbtide_array_get(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, scores, 4, &count), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 1, &score), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_array_edit(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 1, add, &delta), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_array_create(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, zeros, 4, 60000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_array_create(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, zeros, 4, 60000), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 1, &score), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_array_edit(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 1, add, &delta), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_array_get(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, scores, 4, &count), EBBTIDE_STATUS_OK);
    HOLD(count == 4 && scores[0] == 0 && scores[1] == 2.5F);
    EXPECT(ebbtide_array_get(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, scores, 3, &count), EBBTIDE_STATUS_TOO_LARGE);
    EXPECT(ebbtide_array_get(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, NULL, 4, &count),
           EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 4, &score), EBBTIDE_STATUS_REFUSED);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 0, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_array_edit(cache, KEY("scores"), EBBTIDE_ELEMENT_F32, 0, NULL, NULL),
           EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), EBBTIDE_ELEMENT_I32, 0, &score), EBBTIDE_STATUS_WRONG_STRUCTURE);
    EXPECT(ebbtide_array_set(cache, KEY("scores"), 10, 0, &score), EBBTIDE_STATUS_INVALID_ARGUMENT);
}

static void lookups(const struct ebbtide_cache *cache)
{
    const uint8_t *keys[3] = {(const uint8_t *)"a", (const uint8_t *)"none", (const uint8_t *)"b"};
    const size_t lengths[3] = {1, 4, 1};
    struct ebbtide_value *values[3];
    char part[4];
    size_t length = 0;
    EXPECT(ebbtide_insert_if_absent(cache, KEY("a"), KEY("first value"), 0), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_insert_if_absent(cache, KEY("a"), KEY("second"), 0), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_insert(cache, KEY("b"), KEY("other"), 0), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compare_and_swap(cache, KEY("b"), KEY("else"), KEY("new"), 0), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_compare_and_swap(cache, KEY("b"), KEY("other"), KEY("new"), 0), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_get_many(cache, keys, lengths, 3, values), EBBTIDE_STATUS_OK);
    HOLD(ebbtide_value_length(values[0]) == 11 && values[1] == NULL && ebbtide_value_length(values[2]) == 3);
    ebbtide_value_free(values[0]);
    ebbtide_value_free(values[2]);
    EXPECT(ebbtide_get_many(cache, NULL, NULL, 0, NULL), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_get_many(cache, NULL, lengths, 3, values), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_get_many(cache, keys, lengths, 3, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_get_range(cache, KEY("a"), 6, (uint8_t *)part, sizeof part, &length), EBBTIDE_STATUS_OK);
    HOLD(length == 4 && memcmp(part, "valu", 4) == 0);
    EXPECT(ebbtide_get_range(cache, KEY("a"), 10, (uint8_t *)part, sizeof part, &length), EBBTIDE_STATUS_OK);
    HOLD(length == 1 && part[0] == 'e');
    EXPECT(ebbtide_get_range(cache, KEY("none"), 0, (uint8_t *)part, sizeof part, &length), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_get_range(cache, KEY("a"), 0, NULL, 1, &length), EBBTIDE_STATUS_INVALID_ARGUMENT);
}

static void compact(struct ebbtide_cache *cache)
{
    struct ebbtide_compact *pool = NULL;
    struct ebbtide_compact_ticket *ticket = NULL;
    struct ebbtide_compact_statistics statistics;
    struct ebbtide_pool_options options;
    struct ebbtide_cache *users = NULL;
    uint8_t value[4] = {0};
    ebbtide_pool_options_init(&options);
    options.max_bytes = 1u << 20;
    EXPECT(ebbtide_compact_add(cache, "tiny", 100, 29, false, NULL), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_compact_add(cache, "tiny", 4, 4, true, &options), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_pool(cache, "default", &pool), EBBTIDE_STATUS_REFUSED);
    EXPECT(ebbtide_compact_pool(cache, "tiny", &pool), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), value, sizeof value), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_compact_insert_negative(pool, KEY("user"), 5000), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), value, sizeof value), EBBTIDE_STATUS_NEGATIVE);
    EXPECT(ebbtide_compact_insert(pool, KEY("user"), KEY("four"), EBBTIDE_TTL_NEVER), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), value, sizeof value), EBBTIDE_STATUS_OK);
    HOLD(memcmp(value, "four", 4) == 0);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), NULL, 0), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), value, 3), EBBTIDE_STATUS_TOO_LARGE);
    EXPECT(ebbtide_compact_remove_negative(pool, KEY("user")), EBBTIDE_STATUS_MISS);
    /* The object is inserted between the ticket and the answer of the backend. */
    EXPECT(ebbtide_compact_take_ticket(pool, KEY("late"), &ticket), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_remove_negative(pool, KEY("late")), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_compact_insert_negative_since(pool, KEY("late"), ticket, 0), EBBTIDE_STATUS_MISS);
    EXPECT(ebbtide_compact_take_ticket(pool, KEY("late"), &ticket), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_insert_negative_since(pool, KEY("late"), ticket, 0), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_remove(pool, KEY("late")), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_insert_negative_since(pool, KEY("late"), NULL, 0), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_compact_insert(pool, KEY("long key"), KEY("four"), 0), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_compact_insert(NULL, KEY("user"), KEY("four"), 0), EBBTIDE_STATUS_INVALID_ARGUMENT);
    EXPECT(ebbtide_compact_stats(pool, &statistics), EBBTIDE_STATUS_OK);
    HOLD(statistics.entries == 1 && statistics.negative_hits == 1 && statistics.capacity > 1000);
    EXPECT(ebbtide_compact_invalidate_all(pool), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), NULL, 0), EBBTIDE_STATUS_MISS);

    EXPECT(ebbtide_pool_add(cache, "users", NULL), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_pool(cache, "users", &users), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_pool_resize(users, 4u << 20, 4u << 20), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_pool_resize(users, 1u << 30, 1u << 30), EBBTIDE_STATUS_INVALID_ARGUMENT);
    ebbtide_free(users);
    EXPECT(ebbtide_close(cache), EBBTIDE_STATUS_OK);
    EXPECT(ebbtide_compact_get(pool, KEY("user"), NULL, 0), EBBTIDE_STATUS_CLOSED);
    ebbtide_compact_free(pool);
    ebbtide_compact_free(NULL);
}

int main(void)
{
    struct ebbtide_options options;
    struct ebbtide_cache *cache = NULL;
    ebbtide_options_init(&options);
    options.memory_bytes = 32u << 20;
    EXPECT(ebbtide_open(&options, &cache), EBBTIDE_STATUS_OK);
    range_maps(cache);
    buffers(cache);
    arrays(cache);
    lookups(cache);
    compact(cache);
    ebbtide_free(cache);
    puts("everything holds");
    return 0;
}
