import static java.util.concurrent.TimeUnit.SECONDS;

import java.util.HashMap;
import java.util.Map;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;

/** Runs spymemcached through what it offers, against the server at HOST:PORT, in the protocol TEXT or BINARY. */
public final class Spymemcached {
    private static MemcachedClient client;
    /** Only then can the client get and touch. */
    private static boolean binary;

    public static void main(String[] arguments) throws Exception {
        binary = arguments[1].equals("BINARY");
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
        SerializingTranscoder plain = new SerializingTranscoder();
        plain.setCompressionThreshold(Integer.MAX_VALUE);
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
                .setProtocol(ConnectionFactoryBuilder.Protocol.valueOf(arguments[1]))
                .setOpTimeout(Check.PATIENCE_SECONDS * 1000L)
                .setTranscoder(plain);
        client = new MemcachedClient(builder.build(), AddrUtil.getAddresses(arguments[0]));
        try {
            Check.expect("versions", client.getVersions().size(), 1);
            Check.expect("flush", client.flush().get(), true);
            stores();
            tokens();
            counts();
            many();
            values();
            lives();
        } finally {
            client.shutdown(1, SECONDS);
        }
    }

    private static void stores() throws Exception {
        Check.expect("get of nothing", client.get("k"), null);
        Check.expect("replace of nothing", client.replace("k", 0, "v").get(), false);
        Check.expect("append to nothing", client.append("k", "v").get(), false);
        Check.expect("set", client.set("k", 0, "v").get(), true);
        Check.expect("get", client.get("k"), "v");
        Check.expect("add to something", client.add("k", 0, "w").get(), false);
        Check.expect("replace", client.replace("k", 0, "w").get(), true);
        Check.expect("append", client.append("k", "x").get(), true);
        Check.expect("prepend", client.prepend("k", "u").get(), true);
        Check.expect("get of what was put together", client.get("k"), "uwx");
        Check.expect("delete", client.delete("k").get(), true);
        Check.expect("delete of nothing", client.delete("k").get(), false);
        Check.expect("add", client.add("k", 0, "v").get(), true);
        Check.expect("get of what was added", client.get("k"), "v");
    }

    private static void tokens() throws Exception {
        Check.expect("set", client.set("k", 0, "1").get(), true);
        CASValue<Object> first = client.gets("k");
        Check.expect("gets", first.getValue(), "1");
        Check.expect("cas", client.cas("k", first.getCas(), "2"), CASResponse.OK);
        Check.expect("cas with an old token", client.cas("k", first.getCas(), "3"), CASResponse.EXISTS);
        Check.expect("get after cas", client.get("k"), "2");
        Check.expect("cas on nothing", client.cas("absent", first.getCas(), "3"), CASResponse.NOT_FOUND);
    }

    private static void counts() throws Exception {
        Check.expect("incr of nothing", client.incr("n", 1), -1L);
        Check.expect("set", client.set("n", 0, "9").get(), true);
        Check.expect("incr", client.incr("n", 1), 10L);
        Check.expect("decr below zero", client.decr("n", 20), 0L);
        Check.expect("incr with a start", client.incr("started", 1, 7, 1000), 7L);
        Check.expect("incr of what was started", client.incr("started", 2, 7, 1000), 9L);
        Check.expect("set", client.set("word", 0, "word").get(), true);
        Check.expect("incr of a word", client.asyncIncr("word", 1).getStatus().isSuccess(), false);
    }

    private static void many() throws Exception {
        Map<String, Object> wanted = new HashMap<>();
        for (int at = 0; at < 500; at++) {
            wanted.put("key" + at, "value" + at);
            Check.expect("set", client.set("key" + at, 0, "value" + at).get(), true);
        }
        Map<String, Object> asked = new HashMap<>(wanted);
        asked.put("absent", "");
        Check.expect("get of many", client.getBulk(asked.keySet()), wanted);
    }

    private static void values() throws Exception {
        Check.expect("set of all bytes", client.set("k", 0, Check.allBytes()).get(), true);
        Check.expect("all bytes", client.get("k"), Check.allBytes());
        Check.expect("set of an empty value", client.set("k", 0, "").get(), true);
        Check.expect("get of an empty value", client.get("k"), "");
        Check.expect("set near the limit", client.set("large", 0, Check.bytes(Check.NEAR_LIMIT)).get(), true);
        Check.expect("get near the limit", client.get("large"), Check.bytes(Check.NEAR_LIMIT));
        Check.refused("set above the limit", () -> client.set("large", 0, Check.bytes(Check.OVER_LIMIT)).get());
        Check.expect("get of what was refused", client.get("large"), null);
    }

    private static void lives() throws Exception {
        Check.expect("set for a second", client.set("short", 1, "v").get(), true);
        for (String key : new String[] {"long", "touched", "got"}) {
            Check.expect("set for long", client.set(key, 1000, "v").get(), true);
        }
        Check.expect("touch", client.touch("touched", 1).get(), true);
        Check.expect("touch of nothing", client.touch("absent", 1).get(), false);
        if (binary) {
            Check.expect("get and touch", client.getAndTouch("got", 1).getValue(), "v");
        } else {
            Check.expect("touch", client.touch("got", 1).get(), true);
        }
        for (String key : new String[] {"short", "touched", "got"}) {
            Check.gone(key, () -> client.get(key));
        }
        Check.expect("get of what lives long", client.get("long"), "v");
    }
}
