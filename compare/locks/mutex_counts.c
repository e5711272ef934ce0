/* Counts the mutexes that a program locks: `LD_PRELOAD=mutex_counts.so MUTEX_COUNTS=FILE program`.
 *
 * FILE, which must exist, becomes three numbers of 64 bits that grow as long as the program runs: mutexes taken, tries
 * that found a mutex held, and mutexes whose last holder was another thread. The last is a transfer of a cache line at
 * least, however the threads are scheduled.
 *
 * Not counted: the mutex that a thread gets back after a wait for a condition, and locks inside the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TABLE = 1 << 20 };

struct counts {
	atomic_uint_least64_t taken, failed, transfers;
};

static struct counts unshared;
static struct counts *counts = &unshared;
/* The last holder of each mutex. Two mutexes with the same place make too many transfers: the table is sparse. */
static atomic_uint holders[TABLE];
static int (*real_lock)(pthread_mutex_t *), (*real_trylock)(pthread_mutex_t *);
static atomic_uint threads;
static _Thread_local unsigned me;

static void find(void) {
	real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
	real_trylock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_trylock");
}

__attribute__((constructor)) static void share(void) {
	const char *path = getenv("MUTEX_COUNTS");
	int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	find();
	if (file < 0 || ftruncate(file, sizeof *counts))
		return;
	void *map = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (map != MAP_FAILED)
		counts = map;
	close(file);
}

static void note(pthread_mutex_t *mutex) {
	if (!me)
		me = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) + 1;
	uint64_t mixed = (uint64_t)(uintptr_t)mutex * UINT64_C(0x9E3779B97F4A7C15);
	atomic_uint *holder = &holders[mixed >> 44];
	unsigned last = atomic_exchange_explicit(holder, me, memory_order_relaxed);
	atomic_fetch_add_explicit(&counts->taken, 1, memory_order_relaxed);
	if (last && last != me)
		atomic_fetch_add_explicit(&counts->transfers, 1, memory_order_relaxed);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex) {
	if (!real_trylock)
		find();
	int error = real_trylock(mutex);
	if (error == 0)
		note(mutex);
	else if (error == EBUSY)
		atomic_fetch_add_explicit(&counts->failed, 1, memory_order_relaxed);
	return error;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
	if (!real_lock)
		find();
	if (real_trylock(mutex) == 0) {
		note(mutex);
		return 0;
	}
	atomic_fetch_add_explicit(&counts->failed, 1, memory_order_relaxed);
	int error = real_lock(mutex);
	if (error == 0)
		note(mutex);
	return error;
}
