"""Structured values, as users of the package see them."""

import threading

import pytest

import ebbtide


def test_words_are_changed_together(cache):
    words = cache.words("client")
    assert words.get() is None and words.edit(lambda old: old) is None
    assert words.add([1, 500]) == [1, 500]
    assert not words.create([9])
    assert words.edit(lambda old: [old[0] + 1, old[1] * 2]) == [2, 1000]
    assert words.get() == [2, 1000]
    with pytest.raises(ValueError, match="2 words"):
        words.add([1])
    for wrong in ([], [1] * 65):
        for refuse in (words.add, words.create):
            with pytest.raises(ValueError, match=f"{len(wrong)} words: a value has 1 to 64"):
                refuse(wrong)
    with pytest.raises(ValueError, match="3 words for 2"):
        words.edit(lambda old: [1, 2, 3])
    with pytest.raises(ZeroDivisionError):
        words.edit(lambda old: [1 // 0])
    assert words.get() == [2, 1000]


def test_threads_lose_no_edit(cache):
    cache.words("k").create([0])

    def edit():
        for _ in range(500):
            cache.words("k").edit(lambda old: [old[0] + 1])

    threads = [threading.Thread(target=edit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.words("k").get() == [2000]


def test_a_map_is_like_a_dict(cache):
    features = cache.map("user:42")
    assert len(features) == 0 and features.items() == [] and features.get("age") is None
    features["age"] = b"1"
    features.update({"size": b"2", b"\xff": b"3"}, ttl=60)
    assert features["age"] == b"1" and "size" in features and len(features) == 3
    assert dict(features.items()) == {b"age": b"1", b"size": b"2", b"\xff": b"3"}
    del features["age"]
    assert not features.delete("age") and features.get("age", 7) == 7
    with pytest.raises(KeyError, match="age"):
        features["age"]
    with pytest.raises(KeyError):
        del features["age"]


def test_what_does_not_fit_is_refused(cache):
    cache["text"] = b"plain"
    with pytest.raises(ebbtide.WrongStructure, match="plain bytes"):
        cache.map("text")["a"] = b"1"
    cache.words("words").create([1])
    with pytest.raises(ebbtide.WrongStructure, match="words"):
        cache.map("words").get("a")
    with pytest.raises(ebbtide.TooLarge):
        cache.map("map")["k" * 256] = b"1"
    with pytest.raises(ebbtide.TooLarge):
        cache.map("map")["k"] = bytes(2 << 20)
    cache.close()
    with pytest.raises(ebbtide.Closed):
        cache.words("words").get()


def test_a_range_map_answers_ranges(cache):
    prices = cache.range_map("prices")
    assert prices.range() == [] and len(prices) == 0
    prices.update({"c": b"3", "a": b"1", "b": b"2"}, ttl=60)
    prices["d"] = b"4"
    assert prices.range("b", "d") == [(b"b", b"2"), (b"c", b"3")]
    assert [key for key, _ in prices.range(start=b"c")] == [b"c", b"d"]
    assert prices.range(stop="b") == [(b"a", b"1")] and prices["d"] == b"4"
    del prices["a"]
    assert "a" not in prices and prices.items() == prices.range()
    with pytest.raises(ebbtide.WrongStructure, match="range map"):
        cache.map("prices").get("a")
    with pytest.raises(TypeError, match="int"):
        prices.range(5)


def test_a_buffer_keeps_the_order_of_its_records(cache):
    events = cache.append_buffer("events")
    assert events.records() == [] and events.retain_last(1) == 0
    for record in (b"one", b"", bytearray(b"three")):
        events.append(record, ttl=60)
    assert events.records() == [b"one", b"", b"three"]
    assert events.retain_last(2) == 1 and events.records() == [b"", b"three"]
    with pytest.raises(ebbtide.TooLarge):
        events.append(bytes(2 << 20))
    cache["text"] = b"plain"
    with pytest.raises(ebbtide.WrongStructure):
        cache.append_buffer("text").append(b"one")


@pytest.mark.parametrize("typecode", "bBhHiIqQfd")
def test_an_array_keeps_its_numbers(cache, typecode):
    scores = cache.fixed_array(f"scores {typecode}", typecode)
    assert scores.get() is None and len(scores) == 0
    assert scores.create([1, 2, 100]) and not scores.create([5])
    assert scores.get() == [1, 2, 100] == list(scores) and len(scores) == 3
    scores[1] = 7
    assert scores[1] == 7 and scores.update(2, lambda score: score + 5) == 105 and scores.get() == [1, 7, 105]
    for refused in (lambda: scores[3], lambda: scores.update(3, abs), lambda: scores.__setitem__(3, 0)):
        with pytest.raises(IndexError, match="index 3 is outside a structured value of 3 elements"):
            refused()
    for refused in (lambda: scores[-1], lambda: scores.update(-1, abs), lambda: scores.__setitem__(-1, 0)):
        with pytest.raises(IndexError, match="index -1: elements are counted from 0"):
            refused()
    with pytest.raises(ZeroDivisionError):
        scores.update(0, lambda score: 1 / 0)
    assert scores[0] == 1


def test_an_array_refuses_what_it_is_not(cache):
    scores = cache.fixed_array("scores", "B")
    with pytest.raises(KeyError, match="scores"):
        scores[0] = 1
    with pytest.raises(KeyError, match="scores"):
        scores.update(0, abs)
    scores.create([0] * 4)
    with pytest.raises(OverflowError):
        scores[0] = 256
    with pytest.raises(TypeError):
        scores[0] = "text"
    with pytest.raises(ebbtide.WrongStructure, match="array"):
        cache.fixed_array("scores", "d").get()
    with pytest.raises(ValueError, match="typecode = \"x\": one of b B h H i I q Q f d"):
        cache.fixed_array("scores", "x")


def test_concurrent_updates_of_an_array_are_all_kept(cache):
    counts = cache.fixed_array("counts")
    counts.create([0] * 4)

    def count():
        for number in range(400):
            counts.update(number % 4, lambda count: count + 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts.get() == [400] * 4
