/* The C interface of Ebbtide. Made by cbindgen from crates/capi: change it there.
 *
 * A cache is opened by ebbtide_open() and ends with ebbtide_close() and ebbtide_free(). Every function may be called from
 * any thread, but for ebbtide_free() and ebbtide_value_free(), which no other call with the same pointer may overlap.
 * A function that can fail answers an ebbtide_status; ebbtide_last_error() has the reason in words.
 * Keys and values are bytes with a length, and may contain zeros. */

#ifndef EBBTIDE_H
#define EBBTIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Elements of an array are `int8_t`.
#define EBBTIDE_ELEMENT_I8 0

// Elements of an array are `uint8_t`.
#define EBBTIDE_ELEMENT_U8 1

// Elements of an array are `int16_t`.
#define EBBTIDE_ELEMENT_I16 2

// Elements of an array are `uint16_t`.
#define EBBTIDE_ELEMENT_U16 3

// Elements of an array are `int32_t`.
#define EBBTIDE_ELEMENT_I32 4

// Elements of an array are `uint32_t`.
#define EBBTIDE_ELEMENT_U32 5

// Elements of an array are `int64_t`.
#define EBBTIDE_ELEMENT_I64 6

// Elements of an array are `uint64_t`.
#define EBBTIDE_ELEMENT_U64 7

// Elements of an array are `float`.
#define EBBTIDE_ELEMENT_F32 8

// Elements of an array are `double`.
#define EBBTIDE_ELEMENT_F64 9

// The TTL that the options of the cache name.
#define EBBTIDE_TTL_DEFAULT 0

// A TTL that never ends.
#define EBBTIDE_TTL_NEVER UINT64_MAX

// The largest number of words of a value.
#define EBBTIDE_WORDS_MAX 64

// Result of a function.
typedef enum ebbtide_status {
    // It was done.
    EBBTIDE_STATUS_OK = 0,
    // The key is absent; nothing was changed.
    EBBTIDE_STATUS_MISS = 1,
    // A null pointer, a string that is no UTF-8, or an option that cannot work.
    EBBTIDE_STATUS_INVALID_ARGUMENT = 2,
    // The key has no byte or too many.
    EBBTIDE_STATUS_KEY_LENGTH = 3,
    // The value is longer than the cache takes, or than the buffer given.
    EBBTIDE_STATUS_TOO_LARGE = 4,
    // No memory is free, and nothing can be evicted now.
    EBBTIDE_STATUS_OUT_OF_MEMORY = 5,
    // The value of an increment is not a decimal number.
    EBBTIDE_STATUS_NOT_NUMERIC = 6,
    // No pool has this name, or it was removed.
    EBBTIDE_STATUS_UNKNOWN_POOL = 7,
    // The cache was closed.
    EBBTIDE_STATUS_CLOSED = 8,
    // Every other refusal; `ebbtide_last_error` names it.
    EBBTIDE_STATUS_REFUSED = 9,
    // The cache has found itself broken. Nothing may be relied on after this.
    EBBTIDE_STATUS_BROKEN = 10,
    // The value is another structure than the function is for, or none.
    EBBTIDE_STATUS_WRONG_STRUCTURE = 11,
    // A compact pool has a negative result for the key.
    EBBTIDE_STATUS_NEGATIVE = 12,
} ebbtide_status;

// A cache, or one of its pools.
typedef struct ebbtide_cache ebbtide_cache;

// A compact pool.
typedef struct ebbtide_compact ebbtide_compact;

// The state of a key before the backend is asked, for `ebbtide_compact_insert_negative_since`.
typedef struct ebbtide_compact_ticket ebbtide_compact_ticket;

// The value of a hit. It stays as it is whatever happens to its key, until `ebbtide_value_free`.
typedef struct ebbtide_value ebbtide_value;

// Receives a record, whose bytes are good during the call; false ends the walk.
typedef bool (*ebbtide_record_visitor)(const uint8_t *record, size_t length, void *context);

// Changes an element in place; called with the context that was given. It may be called more than once for one edit:
// only the last call counts.
typedef void (*ebbtide_element_editor)(void *element, void *context);

// Options of a cache. `ebbtide_options_init` fills in the defaults; strings end with a zero byte, null is "none".
typedef struct ebbtide_options {
    // Bytes of this struct, set by `ebbtide_options_init`: a program that was compiled with an older header is
    // recognized by it.
    size_t size;
    // All memory that the cache may use: entries, index and spares. Default 64 MiB.
    uint64_t memory_bytes;
    // The most memory that `ebbtide_resize` accepts; address space is reserved for it. Default 0: four times
    // `memory_bytes`, or the memory of the machine where it is larger.
    uint64_t memory_ceiling_bytes;
    // The largest value. 0: the default of the cache, 1 MiB.
    uint64_t max_value_bytes;
    // Milliseconds that an entry lives which is inserted with the TTL `EBBTIDE_TTL_DEFAULT`. 0: for ever.
    uint64_t default_ttl_ms;
    // Milliseconds after its last use that an entry lives which is inserted without a TTL. 0: for ever.
    uint64_t time_to_idle_ms;
    // A file that `ebbtide_close` saves the entries to, and the next cache with the same file begins with.
    const char *memory_file;
    // A file or block device that is the flash tier.
    const char *flash_path;
    // Bytes of the flash tier.
    uint64_t flash_bytes;
    // The name of the eviction policy.
    const char *policy;
} ebbtide_options;

// Options of a pool.
typedef struct ebbtide_pool_options {
    // Bytes of this struct, set by `ebbtide_pool_options_init`.
    size_t size;
    // Memory that the pool has in any case. 0: as little as it works with.
    uint64_t min_bytes;
    // Memory that the pool never exceeds. 0: no bound.
    uint64_t max_bytes;
    // The pool's part of the memory between the bounds, relative to the other pools. Default 1.
    uint32_t weight;
} ebbtide_pool_options;

// Counters since the cache was opened, and gauges, of a compact pool.
typedef struct ebbtide_compact_statistics {
    // Lookups that found a value.
    uint64_t hits;
    // Lookups that found a negative result.
    uint64_t negative_hits;
    // Lookups that found neither.
    uint64_t misses;
    // Entries, negative and expired ones included.
    uint64_t entries;
    // Negative results among the entries.
    uint64_t negatives;
    // Entries that fit.
    uint64_t capacity;
    // The memory budget.
    uint64_t memory_limit_bytes;
    // The used part of the budget.
    uint64_t memory_used_bytes;
    // Writes that stored a value.
    uint64_t inserts;
    // Writes that stored a negative result.
    uint64_t negative_inserts;
    // Entries that left to make space.
    uint64_t evictions;
    // Expired and invalidated entries that left.
    uint64_t expirations;
} ebbtide_compact_statistics;

// Receives an entry of a map, whose bytes are good during the call; false ends the walk.
typedef bool (*ebbtide_map_visitor)(const uint8_t *key,
                                    size_t key_length,
                                    const uint8_t *value,
                                    size_t value_length,
                                    void *context);

// Counters since the cache was opened, and gauges.
typedef struct ebbtide_statistics {
    // Lookups that found a value.
    uint64_t hits;
    // Lookups that found a negative result of a compact pool.
    uint64_t negative_hits;
    // Lookups that found none.
    uint64_t misses;
    // Entries in memory.
    uint64_t entries;
    // The memory budget.
    uint64_t memory_limit_bytes;
    // The used part of the budget.
    uint64_t memory_used_bytes;
    // Writes that stored a value.
    uint64_t inserts;
    // Entries that left memory to make space, also those that flash took.
    uint64_t evictions;
    // Expired and invalidated entries whose memory was freed.
    uint64_t expirations;
} ebbtide_statistics;

// Counters since the cache was opened, and gauges, of flash. Those from `entries` on are of all pools.
typedef struct ebbtide_flash_statistics {
    // Lookups that found a value on flash; they are hits of `ebbtide_statistics`, too.
    uint64_t hits;
    // Bytes of entries on flash. Removed, replaced and expired ones count until their space is reclaimed.
    uint64_t used_bytes;
    // Bytes that a pool may use while flash is full; of the whole cache the capacity.
    uint64_t share_bytes;
    // Bytes of keys and values of the entries that were written.
    uint64_t inserted_bytes;
    // Evicted entries that were not written because the pool used more than its share.
    uint64_t refused_by_share;
    // Entries on flash.
    uint64_t entries;
    // Bytes that entries may use.
    uint64_t capacity_bytes;
    // Entries that were written.
    uint64_t inserts;
    // Bytes that the device was given.
    uint64_t written_bytes;
    // Evicted entries that could not be written.
    uint64_t drops;
    // Entries that left flash to make space.
    uint64_t evictions;
    // Expired entries whose space was reclaimed.
    uint64_t expirations;
    // Reads that the device failed.
    uint64_t read_errors;
    // Writes that the device failed.
    uint64_t write_errors;
    // The device has failed, and is not used any more.
    bool has_failed;
} ebbtide_flash_statistics;

// Changes words in place; called with the context that was given. It may be called more than once for one edit: only
// the last call counts.
typedef void (*ebbtide_words_editor)(uint64_t *words, size_t count, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Appends a record to the buffer of a key. An absent buffer is created, with `ttl_ms` as `ebbtide_insert` knows it; a
// present one keeps its TTL.
//
// # Safety
// `cache` is null or a handle that was not freed; `key` and `record` have as many bytes as said.
enum ebbtide_status ebbtide_buffer_append(const struct ebbtide_cache *cache,
                                          const uint8_t *key,
                                          size_t key_length,
                                          const uint8_t *record,
                                          size_t record_length,
                                          uint64_t ttl_ms);

// Removes all records but the last `count`. `removed` may be null; else it gets their number.
//
// # Safety
// As `ebbtide_buffer_append`; `removed` is null or points to a `size_t`.
enum ebbtide_status ebbtide_buffer_retain_last(const struct ebbtide_cache *cache,
                                               const uint8_t *key,
                                               size_t key_length,
                                               size_t count,
                                               size_t *removed);

// Calls `visit` with every record, the oldest first, as they are at one moment: `OK`, or `MISS` if the buffer is
// absent.
//
// # Safety
// As `ebbtide_buffer_append`; `visit` does not leave by `longjmp`.
enum ebbtide_status ebbtide_buffer_each(const struct ebbtide_cache *cache,
                                        const uint8_t *key,
                                        size_t key_length,
                                        ebbtide_record_visitor visit,
                                        void *context);

// Stores an array of `count` elements if the key is absent: `OK`, or `MISS`, with nothing changed, if it is present.
// `element_type` is one of `EBBTIDE_ELEMENT_...`, and `ttl_ms` is as `ebbtide_insert` knows it.
//
// # Safety
// `cache` is null or a handle that was not freed; `key` has as many bytes as said, and `elements` as many elements of
// this type.
enum ebbtide_status ebbtide_array_create(const struct ebbtide_cache *cache,
                                         const uint8_t *key,
                                         size_t key_length,
                                         uint32_t element_type,
                                         const void *elements,
                                         size_t count,
                                         uint64_t ttl_ms);

// Copies all elements of the array of a key, from one moment: `OK`, or `MISS` if it is absent. `count` is set to their
// number, also where it is more than `capacity`: then nothing is copied, and the answer is `TOO_LARGE`.
//
// # Safety
// As `ebbtide_array_create`; `elements` has memory for `capacity` elements, `count` points to a `size_t`.
enum ebbtide_status ebbtide_array_get(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      uint32_t element_type,
                                      void *elements,
                                      size_t capacity,
                                      size_t *count);

// Writes an element of the array of a key: `OK`, or `MISS` if the array is absent. An index beyond it is `REFUSED`.
//
// # Safety
// As `ebbtide_array_create`; `element` points to an element of this type.
enum ebbtide_status ebbtide_array_set(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      uint32_t element_type,
                                      size_t index,
                                      const void *element);

// Changes an element of the array of a key as one operation: `OK`, or `MISS` if the array is absent. An index beyond
// it is `REFUSED`.
//
// # Safety
// As `ebbtide_array_create`; `edit` writes no more than an element of this type, and does not leave by `longjmp`.
enum ebbtide_status ebbtide_array_edit(const struct ebbtide_cache *cache,
                                       const uint8_t *key,
                                       size_t key_length,
                                       uint32_t element_type,
                                       size_t index,
                                       ebbtide_element_editor edit,
                                       void *context);

// Opens a cache. With a memory file or flash it begins with what these hold. After a failure `cache` is null.
//
// # Safety
// `options` is null (then the defaults are taken) or was filled by `ebbtide_options_init`; `cache` points to memory
// for a pointer.
enum ebbtide_status ebbtide_open(const struct ebbtide_options *options, struct ebbtide_cache **cache);

// Ends the cache: saves it to its memory file, if it has one, and leaves on flash what the next start must know. From
// then on every call with a handle of this cache or of one of its pools answers `CLOSED`; values keep their bytes. The
// handle is still to be freed.
//
// # Safety
// `cache` is null or a handle that was not freed.
enum ebbtide_status ebbtide_close(struct ebbtide_cache *cache);

// Frees a handle of a cache or a pool. The cache lives until its last handle and its last value are freed; without
// `ebbtide_close` what it has in memory is lost. Does nothing with null.
//
// # Safety
// `cache` is null or a handle that was not freed; it is not used afterwards.
void ebbtide_free(struct ebbtide_cache *cache);

// Changes the memory of the whole cache. Shrinking evicts in the background.
//
// # Safety
// `cache` is null or a handle that was not freed.
enum ebbtide_status ebbtide_resize(const struct ebbtide_cache *cache, uint64_t memory_bytes);

// Inserts or overwrites. `ttl_ms` is `EBBTIDE_TTL_DEFAULT`, `EBBTIDE_TTL_NEVER` or milliseconds.
//
// # Safety
// `cache` is null or a handle that was not freed; `key` and `value` have as many bytes as said.
enum ebbtide_status ebbtide_insert(const struct ebbtide_cache *cache,
                                   const uint8_t *key,
                                   size_t key_length,
                                   const uint8_t *value,
                                   size_t value_length,
                                   uint64_t ttl_ms);

// Looks a key up. A hit is a value that is to be freed by `ebbtide_value_free`; a miss leaves null in `value`.
//
// # Safety
// As `ebbtide_insert`; `value` points to memory for a pointer.
enum ebbtide_status ebbtide_get(const struct ebbtide_cache *cache,
                                const uint8_t *key,
                                size_t key_length,
                                struct ebbtide_value **value);

// Looks a key up and copies the value into a buffer. `length` is set to the bytes of the value, also where they are
// more than the buffer has: then nothing is copied, and the answer is `TOO_LARGE`.
//
// # Safety
// As `ebbtide_insert`; `buffer` has `capacity` bytes that may be written, `length` points to a `size_t`.
enum ebbtide_status ebbtide_get_into(const struct ebbtide_cache *cache,
                                     const uint8_t *key,
                                     size_t key_length,
                                     uint8_t *buffer,
                                     size_t capacity,
                                     size_t *length);

// Whether a get would hit: `OK` or `MISS`.
//
// # Safety
// As `ebbtide_insert`.
enum ebbtide_status ebbtide_contains(const struct ebbtide_cache *cache, const uint8_t *key, size_t key_length);

// Removes a key: `OK`, or `MISS` if it was absent.
//
// # Safety
// As `ebbtide_insert`.
enum ebbtide_status ebbtide_remove(const struct ebbtide_cache *cache, const uint8_t *key, size_t key_length);

// Gives an entry a new TTL, as `ebbtide_insert` knows them.
//
// # Safety
// As `ebbtide_insert`.
enum ebbtide_status ebbtide_touch(const struct ebbtide_cache *cache,
                                  const uint8_t *key,
                                  size_t key_length,
                                  uint64_t ttl_ms);

// Adds to the decimal number that a value is, modulo 2^64. `number` may be null; else it gets the new number.
//
// # Safety
// As `ebbtide_insert`; `number` is null or points to a `uint64_t`.
enum ebbtide_status ebbtide_increment(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      uint64_t delta,
                                      uint64_t *number);

// Subtracts from the decimal number that a value is, down to 0.
//
// # Safety
// As `ebbtide_increment`.
enum ebbtide_status ebbtide_decrement(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      uint64_t delta,
                                      uint64_t *number);

// Makes every entry of the cache or pool absent.
//
// # Safety
// `cache` is null or a handle that was not freed.
enum ebbtide_status ebbtide_invalidate_all(const struct ebbtide_cache *cache);

// Adds a compact pool: all keys have `key_length` bytes and all values `value_length`, which may be 0, 128 together at
// most. With `has_ttl` its entries may expire, at 4 more bytes each. `options` may be null.
//
// # Safety
// As `ebbtide_pool_add`.
enum ebbtide_status ebbtide_compact_add(const struct ebbtide_cache *cache,
                                        const char *name,
                                        size_t key_length,
                                        size_t value_length,
                                        bool has_ttl,
                                        const struct ebbtide_pool_options *options);

// A handle of a compact pool, to be freed by `ebbtide_compact_free`. `ebbtide_pool_remove` removes such a pool, too.
// After a failure `pool` is null.
//
// # Safety
// As `ebbtide_pool_add`; `pool` points to memory for a pointer.
enum ebbtide_status ebbtide_compact_pool(const struct ebbtide_cache *cache,
                                         const char *name,
                                         struct ebbtide_compact **pool);

// Frees a handle. Does nothing with null.
//
// # Safety
// `pool` is null or a handle that was not freed; it is not used afterwards.
void ebbtide_compact_free(struct ebbtide_compact *pool);

// Looks a key up: `OK` for a value, `NEGATIVE` for a negative result, or `MISS`. A value is copied to `value`, which
// has memory for the value length of the pool; null copies nothing.
//
// # Safety
// `pool` is null or a handle that was not freed; `key` has as many bytes as said; `value` is null or has memory for
// `value_length` bytes.
enum ebbtide_status ebbtide_compact_get(const struct ebbtide_compact *pool,
                                        const uint8_t *key,
                                        size_t key_length,
                                        uint8_t *value,
                                        size_t value_length);

// Writes a value, in place of a negative result. `ttl_ms` is as `ebbtide_insert` knows it, in whole seconds.
//
// # Safety
// `pool` is null or a handle that was not freed; `key` and `value` have as many bytes as said.
enum ebbtide_status ebbtide_compact_insert(const struct ebbtide_compact *pool,
                                           const uint8_t *key,
                                           size_t key_length,
                                           const uint8_t *value,
                                           size_t value_length,
                                           uint64_t ttl_ms);

// Writes that the backend has nothing for a key, in place of a value. Another thread may insert the object between the
// answer of the backend and this call, which then hides it: `ebbtide_compact_insert_negative_since` does not.
//
// # Safety
// `pool` is null or a handle that was not freed; `key` has as many bytes as said.
enum ebbtide_status ebbtide_compact_insert_negative(const struct ebbtide_compact *pool,
                                                    const uint8_t *key,
                                                    size_t key_length,
                                                    uint64_t ttl_ms);

// A ticket, to be taken before the backend is asked, and given to `ebbtide_compact_insert_negative_since`.
//
// # Safety
// As `ebbtide_compact_insert_negative`; `ticket` points to memory for a pointer.
enum ebbtide_status ebbtide_compact_take_ticket(const struct ebbtide_compact *pool,
                                                const uint8_t *key,
                                                size_t key_length,
                                                struct ebbtide_compact_ticket **ticket);

// Writes that the backend has nothing for a key, unless the key was written or removed since the ticket was taken:
// `OK`, or `MISS` if it was. Frees the ticket in any case.
//
// # Safety
// As `ebbtide_compact_insert_negative`; `ticket` is null or was not freed; it is not used afterwards.
enum ebbtide_status ebbtide_compact_insert_negative_since(const struct ebbtide_compact *pool,
                                                          const uint8_t *key,
                                                          size_t key_length,
                                                          struct ebbtide_compact_ticket *ticket,
                                                          uint64_t ttl_ms);

// Removes a key, negative or not: `OK`, or `MISS` if it was absent.
//
// # Safety
// As `ebbtide_compact_insert_negative`.
enum ebbtide_status ebbtide_compact_remove(const struct ebbtide_compact *pool, const uint8_t *key, size_t key_length);

// Removes the negative result of a key: `OK`, or `MISS` if it has none. A value stays.
//
// # Safety
// As `ebbtide_compact_insert_negative`.
enum ebbtide_status ebbtide_compact_remove_negative(const struct ebbtide_compact *pool,
                                                    const uint8_t *key,
                                                    size_t key_length);

// Makes every entry of the pool absent.
//
// # Safety
// `pool` is null or a handle that was not freed.
enum ebbtide_status ebbtide_compact_invalidate_all(const struct ebbtide_compact *pool);

// The statistics of a compact pool.
//
// # Safety
// `pool` is null or a handle that was not freed; `statistics` is null or points to memory for the struct.
enum ebbtide_status ebbtide_compact_stats(const struct ebbtide_compact *pool,
                                          struct ebbtide_compact_statistics *statistics);

// Looks up many keys at once, which is faster than one after the other. `values` gets a pointer for each key, in their
// order: a value that is to be freed by `ebbtide_value_free`, or null after a miss.
//
// # Safety
// `cache` is null or a handle that was not freed; `keys` and `key_lengths` have `count` elements, and each key has as
// many bytes as said; `values` has memory for `count` pointers.
enum ebbtide_status ebbtide_get_many(const struct ebbtide_cache *cache,
                                     const uint8_t *const *keys,
                                     const size_t *key_lengths,
                                     size_t count,
                                     struct ebbtide_value **values);

// Copies a part of a value: up to `capacity` bytes from `offset` on. `length` is set to the bytes copied: fewer at the
// end of the value, 0 after it. Of a long value only the parts that hold these bytes are read.
//
// # Safety
// As `ebbtide_insert`; `buffer` has `capacity` bytes that may be written, `length` points to a `size_t`.
enum ebbtide_status ebbtide_get_range(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      size_t offset,
                                      uint8_t *buffer,
                                      size_t capacity,
                                      size_t *length);

// Inserts if the key is absent: `OK`, or `MISS`, with nothing changed, if it is present.
//
// # Safety
// As `ebbtide_insert`.
enum ebbtide_status ebbtide_insert_if_absent(const struct ebbtide_cache *cache,
                                             const uint8_t *key,
                                             size_t key_length,
                                             const uint8_t *value,
                                             size_t value_length,
                                             uint64_t ttl_ms);

// Overwrites if the value is `expected` at that moment: `OK`, or `MISS`, with nothing changed, if the key has another
// value or none.
//
// # Safety
// As `ebbtide_insert`; `expected` has as many bytes as said.
enum ebbtide_status ebbtide_compare_and_swap(const struct ebbtide_cache *cache,
                                             const uint8_t *key,
                                             size_t key_length,
                                             const uint8_t *expected,
                                             size_t expected_length,
                                             const uint8_t *value,
                                             size_t value_length,
                                             uint64_t ttl_ms);

// Fills in the defaults. Does nothing with null.
//
// # Safety
// `options` is null or points to memory for the struct.
void ebbtide_options_init(struct ebbtide_options *options);

// Fills in the defaults. Does nothing with null.
//
// # Safety
// `options` is null or points to memory for the struct.
void ebbtide_pool_options_init(struct ebbtide_pool_options *options);

// Adds a pool. `options` may be null.
//
// # Safety
// `cache` is null or a handle that was not freed; `name` is null or ends with a zero byte; `options` is null or was
// filled by `ebbtide_pool_options_init`.
enum ebbtide_status ebbtide_pool_add(const struct ebbtide_cache *cache,
                                     const char *name,
                                     const struct ebbtide_pool_options *options);

// A handle of a pool, for all functions that take a cache; to be freed by `ebbtide_free`. The first handle of a cache
// is of its pool `default`. After a failure `pool` is null.
//
// # Safety
// As `ebbtide_pool_add`; `pool` points to memory for a pointer.
enum ebbtide_status ebbtide_pool(const struct ebbtide_cache *cache, const char *name, struct ebbtide_cache **pool);

// Removes a pool with all its entries. Handles of it miss, and refuse writes as `UNKNOWN_POOL`.
//
// # Safety
// As `ebbtide_pool_add`.
enum ebbtide_status ebbtide_pool_remove(const struct ebbtide_cache *cache, const char *name);

// Changes the bounds of the memory of the pool of this handle. All pools are divided anew.
//
// # Safety
// `pool` is null or a handle that was not freed.
enum ebbtide_status ebbtide_pool_resize(const struct ebbtide_cache *pool, uint64_t min_bytes, uint64_t max_bytes);

// Writes an entry of the range map of a key. An absent map is created, with `ttl_ms` as `ebbtide_insert` knows it; a
// present one keeps its TTL. Entries have keys of 1 to 255 bytes.
//
// # Safety
// `cache` is null or a handle that was not freed; `key`, `entry` and `value` have as many bytes as said.
enum ebbtide_status ebbtide_range_map_insert(const struct ebbtide_cache *cache,
                                             const uint8_t *key,
                                             size_t key_length,
                                             const uint8_t *entry,
                                             size_t entry_length,
                                             const uint8_t *value,
                                             size_t value_length,
                                             uint64_t ttl_ms);

// Looks an entry up, as `ebbtide_map_get`.
//
// # Safety
// As `ebbtide_range_map_insert`; `value` points to memory for a pointer.
enum ebbtide_status ebbtide_range_map_get(const struct ebbtide_cache *cache,
                                          const uint8_t *key,
                                          size_t key_length,
                                          const uint8_t *entry,
                                          size_t entry_length,
                                          struct ebbtide_value **value);

// Removes an entry: `OK`, or `MISS` if it or the map was absent.
//
// # Safety
// As `ebbtide_range_map_insert`.
enum ebbtide_status ebbtide_range_map_remove(const struct ebbtide_cache *cache,
                                             const uint8_t *key,
                                             size_t key_length,
                                             const uint8_t *entry,
                                             size_t entry_length);

// Calls `visit` with the entries whose keys are at least `from` and less than `to`, in the order of their bytes, as
// they are at one moment. Null stands for no bound. An absent map has no entry.
//
// # Safety
// As `ebbtide_range_map_insert`; `from` and `to` are null or have as many bytes as said; `visit` does not leave by
// `longjmp`.
enum ebbtide_status ebbtide_range_map_each(const struct ebbtide_cache *cache,
                                           const uint8_t *key,
                                           size_t key_length,
                                           const uint8_t *from,
                                           size_t from_length,
                                           const uint8_t *to,
                                           size_t to_length,
                                           ebbtide_map_visitor visit,
                                           void *context);

// The statistics of the whole cache, which are the sums of all pools, compact ones included; with a handle that
// `ebbtide_pool` has given, those of its pool.
//
// # Safety
// `cache` is null or a handle that was not freed; `statistics` is null or points to memory for the struct.
enum ebbtide_status ebbtide_stats(const struct ebbtide_cache *cache, struct ebbtide_statistics *statistics);

// The statistics of flash: of the whole cache, or of a pool, as for `ebbtide_stats`. `REFUSED` without flash.
//
// # Safety
// As for `ebbtide_stats`.
enum ebbtide_status ebbtide_flash_stats(const struct ebbtide_cache *cache, struct ebbtide_flash_statistics *statistics);

// Why the last function that failed on this thread did, as text that ends with a zero byte. Empty before the first
// failure; a success does not change it. The pointer is good until the next call on this thread.
const char *ebbtide_last_error(void);

// Adds to the words of a key, each modulo 2^64, as one operation. Absent words are created as zeros, with `ttl_ms` as
// `ebbtide_insert` knows it; present ones keep their TTL. `sums` may be null; else it gets `count` numbers.
//
// # Safety
// `cache` is null or a handle that was not freed; `key` has as many bytes as said, `deltas` has `count` numbers, and
// `sums` is null or has memory for as many.
enum ebbtide_status ebbtide_words_add(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      const uint64_t *deltas,
                                      size_t count,
                                      uint64_t ttl_ms,
                                      uint64_t *sums);

// Reads the words of a key, all from one moment. `count` is set to their number, also where it is more than
// `capacity`: then nothing is copied, and the answer is `TOO_LARGE`.
//
// # Safety
// As `ebbtide_words_add`; `words` has memory for `capacity` numbers, `count` points to a `size_t`.
enum ebbtide_status ebbtide_words_get(const struct ebbtide_cache *cache,
                                      const uint8_t *key,
                                      size_t key_length,
                                      uint64_t *words,
                                      size_t capacity,
                                      size_t *count);

// Changes the words of a key as one operation: `OK`, or `MISS` if it is absent. `edit` must be brief: until it
// returns, writes of all other threads wait where the cache is full, and fail with `OUT_OF_MEMORY` after two seconds.
// It may edit other keys; an edit of the same key within it is `REFUSED`.
//
// # Safety
// As `ebbtide_words_add`; `edit` writes no more than `count` numbers, and does not leave by `longjmp`.
enum ebbtide_status ebbtide_words_edit(const struct ebbtide_cache *cache,
                                       const uint8_t *key,
                                       size_t key_length,
                                       ebbtide_words_editor edit,
                                       void *context);

// Writes an entry of the map of a key. An absent map is created, with `ttl_ms` as `ebbtide_insert` knows it; a present
// one keeps its TTL. Entries have keys of 1 to 255 bytes.
//
// # Safety
// `cache` is null or a handle that was not freed; `key`, `entry` and `value` have as many bytes as said.
enum ebbtide_status ebbtide_map_insert(const struct ebbtide_cache *cache,
                                       const uint8_t *key,
                                       size_t key_length,
                                       const uint8_t *entry,
                                       size_t entry_length,
                                       const uint8_t *value,
                                       size_t value_length,
                                       uint64_t ttl_ms);

// Looks an entry up. A hit is a value that is to be freed by `ebbtide_value_free`; a miss of the entry or the map
// leaves null in `value`.
//
// # Safety
// As `ebbtide_map_insert`; `value` points to memory for a pointer.
enum ebbtide_status ebbtide_map_get(const struct ebbtide_cache *cache,
                                    const uint8_t *key,
                                    size_t key_length,
                                    const uint8_t *entry,
                                    size_t entry_length,
                                    struct ebbtide_value **value);

// Removes an entry: `OK`, or `MISS` if it or the map was absent.
//
// # Safety
// As `ebbtide_map_insert`.
enum ebbtide_status ebbtide_map_remove(const struct ebbtide_cache *cache,
                                       const uint8_t *key,
                                       size_t key_length,
                                       const uint8_t *entry,
                                       size_t entry_length);

// Calls `visit` with every entry of a map, in the order of their keys, as they are at one moment: `OK`, or `MISS` if
// the map is absent.
//
// # Safety
// As `ebbtide_map_insert`; `visit` does not leave by `longjmp`.
enum ebbtide_status ebbtide_map_each(const struct ebbtide_cache *cache,
                                     const uint8_t *key,
                                     size_t key_length,
                                     ebbtide_map_visitor visit,
                                     void *context);

// The bytes of a value. Null for null.
//
// # Safety
// `value` is null or comes from `ebbtide_get` and was not freed.
const uint8_t *ebbtide_value_data(const struct ebbtide_value *value);

// How many bytes a value has. 0 for null.
//
// # Safety
// As `ebbtide_value_data`.
size_t ebbtide_value_length(const struct ebbtide_value *value);

// Frees a value. Does nothing with null.
//
// # Safety
// As `ebbtide_value_data`; the value is not used afterwards.
void ebbtide_value_free(struct ebbtide_value *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* EBBTIDE_H */
