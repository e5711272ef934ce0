"""Sets to draw from at random."""


class Sampled:
    """A set of keys to draw from."""

    def __init__(self):
        self.keys = []
        self.places = {}

    def add(self, key):
        if key not in self.places:
            self.places[key] = len(self.keys)
            self.keys.append(key)

    def discard(self, key):
        place = self.places.pop(key, None)
        if place is None:
            return
        last = self.keys.pop()
        if last != key:
            self.keys[place] = last
            self.places[last] = place

    def draw(self, generator, count):
        keys = self.keys
        size = len(keys)
        return [keys[int(generator.random() * size)] for _ in range(count)] if size else []
