// The program runs gomemcache through what it offers, against the server at HOST:PORT.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	nearLimit = 1<<20 - 512
	overLimit = 1<<20 + 1
	patience  = 60 * time.Second
)

var client *memcache.Client

func main() {
	client = memcache.New(os.Args[1])
	client.Timeout = patience
	expect("ping", client.Ping(), nil)
	expect("flush", client.FlushAll(), nil)
	stores()
	tokens()
	counts()
	many()
	values()
	lives()
	expect("close", client.Close(), nil)
}

func stores() {
	expect("get of nothing", read("k"), "miss")
	expect("replace of nothing", client.Replace(item("k", "v")), memcache.ErrNotStored)
	expect("append to nothing", client.Append(item("k", "v")), memcache.ErrNotStored)
	expect("set", client.Set(item("k", "v")), nil)
	expect("get", read("k"), "v")
	expect("add to something", client.Add(item("k", "w")), memcache.ErrNotStored)
	expect("replace", client.Replace(item("k", "w")), nil)
	expect("append", client.Append(item("k", "x")), nil)
	expect("prepend", client.Prepend(item("k", "u")), nil)
	expect("get of what was put together", read("k"), "uwx")
	expect("delete", client.Delete("k"), nil)
	expect("delete of nothing", client.Delete("k"), memcache.ErrCacheMiss)
	expect("add", client.Add(item("k", "v")), nil)
	expect("get of what was added", read("k"), "v")
}

func tokens() {
	expect("set", client.Set(item("k", "1")), nil)
	first, err := client.Get("k")
	expect("get with a token", err, nil)
	second, err := client.Get("k")
	expect("get with a token", err, nil)
	first.Value, second.Value = []byte("2"), []byte("3")
	expect("cas", client.CompareAndSwap(first), nil)
	expect("cas with an old token", client.CompareAndSwap(second), memcache.ErrCASConflict)
	expect("get after cas", read("k"), "2")
	expect("delete", client.Delete("k"), nil)
	expect("cas on nothing", client.CompareAndSwap(second), memcache.ErrCacheMiss)
}

func counts() {
	_, err := client.Increment("n", 1)
	expect("increment of nothing", err, memcache.ErrCacheMiss)
	expect("set", client.Set(item("n", "9")), nil)
	number, err := client.Increment("n", 1)
	expect("increment", []any{number, err}, []any{uint64(10), nil})
	number, err = client.Decrement("n", 20)
	expect("decrement below zero", []any{number, err}, []any{uint64(0), nil})
	expect("set", client.Set(item("n", "18446744073709551615")), nil)
	number, err = client.Increment("n", 2)
	expect("increment past the end", []any{number, err}, []any{uint64(1), nil})
	expect("set", client.Set(item("n", "word")), nil)
	_, err = client.Increment("n", 1)
	expect("increment of a word fails", err != nil && strings.Contains(err.Error(), "non-numeric"), true)
}

func many() {
	want := map[string]string{}
	keys := []string{"absent"}
	for i := range 500 {
		key := fmt.Sprintf("key%d", i)
		want[key] = fmt.Sprintf("value%d", i)
		keys = append(keys, key)
		expect("set", client.Set(item(key, want[key])), nil)
	}
	items, err := client.GetMulti(keys)
	expect("get of many", err, nil)
	got := map[string]string{}
	for key, item := range items {
		got[key] = string(item.Value)
	}
	expect("get of many", got, want)
}

func values() {
	var all []byte
	for i := range 1024 {
		all = append(all, byte(i))
	}
	all = append(all, "\r\nEND\r\nVALUE k 0 1\r\n"...)
	expect("set of all bytes", client.Set(&memcache.Item{Key: "k", Value: all, Flags: 4294967295}), nil)
	got, err := client.Get("k")
	expect("get of all bytes", err, nil)
	expect("all bytes", got.Value, all)
	expect("flags", got.Flags, uint32(4294967295))

	expect("set of an empty value", client.Set(item("k", "")), nil)
	expect("get of an empty value", read("k"), "")

	big := strings.Repeat("0123456789abcde\n", nearLimit/16)
	expect("set near the limit", client.Set(item("large", big)), nil)
	expect("get near the limit", read("large") == big, true)
	err = client.Set(&memcache.Item{Key: "large", Value: bytes.Repeat([]byte("x"), overLimit)})
	expect("set above the limit is refused", err != nil && strings.Contains(err.Error(), "too large"), true)
	expect("what was there before is gone", read("large"), "miss")
}

func lives() {
	expect("set for a second", client.Set(&memcache.Item{Key: "short", Value: []byte("v"), Expiration: 1}), nil)
	expect("set for long", client.Set(&memcache.Item{Key: "long", Value: []byte("v"), Expiration: 1000}), nil)
	expect("set in the past", client.Set(&memcache.Item{Key: "past", Value: []byte("v"), Expiration: -1}), nil)
	for _, key := range []string{"touched", "got"} {
		expect("set for long", client.Set(&memcache.Item{Key: key, Value: []byte("v"), Expiration: 1000}), nil)
	}
	expect("get from the past", read("past"), "miss")
	expect("touch", client.Touch("touched", 1), nil)
	expect("touch of nothing", client.Touch("absent", 1), memcache.ErrCacheMiss)
	got, err := client.GetAndTouch("got", 1)
	expect("get and touch", err, nil)
	expect("get and touch", string(got.Value), "v")
	for _, key := range []string{"short", "touched", "got"} {
		for start := time.Now(); read(key) != "miss"; time.Sleep(50 * time.Millisecond) {
			expect(key+" is gone in time", time.Since(start) < patience, true)
		}
	}
	expect("get of what lives long", read("long"), "v")
}

func item(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func read(key string) string {
	got, err := client.Get(key)
	if errors.Is(err, memcache.ErrCacheMiss) {
		return "miss"
	}
	expect("get of "+key, err, nil)
	return string(got.Value)
}

func expect(what string, got, want any) {
	if reflect.DeepEqual(got, want) {
		return
	}
	fmt.Printf("%s: got %.500v, expected %.500v\n", what, got, want)
	os.Exit(1)
}
