import java.util.HashMap;
import java.util.Map;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.exception.MemcachedException;
import net.rubyeye.xmemcached.transcoders.SerializingTranscoder;
import net.rubyeye.xmemcached.utils.AddrUtil;

/** Runs xmemcached through what it offers, against the server at HOST:PORT, in the protocol TEXT or BINARY. */
public final class Xmemcached {
    private static MemcachedClient client;
    /** Only then can the client get and touch. */
    private static boolean binary;

    public static void main(String[] arguments) throws Exception {
        binary = arguments[1].equals("BINARY");
        SerializingTranscoder plain = new SerializingTranscoder(4 << 20);
        plain.setCompressionThreshold(Integer.MAX_VALUE);
        XMemcachedClientBuilder builder = new XMemcachedClientBuilder(AddrUtil.getAddresses(arguments[0]));
        builder.setTranscoder(plain);
        builder.setOpTimeout(Check.PATIENCE_SECONDS * 1000L);
        if (binary) {
            builder.setCommandFactory(new BinaryCommandFactory());
        }
        client = builder.build();
        try {
            Check.expect("versions", client.getVersions().size(), 1);
            client.flushAll();
            stores();
            tokens();
            counts();
            many();
            values();
            lives();
        } finally {
            client.shutdown();
        }
    }

    private static void stores() throws Exception {
        Check.expect("get of nothing", client.get("k"), null);
        Check.expect("replace of nothing", client.replace("k", 0, "v"), false);
        Check.expect("append to nothing", client.append("k", "v"), false);
        Check.expect("set", client.set("k", 0, "v"), true);
        Check.expect("get", client.get("k"), "v");
        Check.expect("add to something", client.add("k", 0, "w"), false);
        Check.expect("replace", client.replace("k", 0, "w"), true);
        Check.expect("append", client.append("k", "x"), true);
        Check.expect("prepend", client.prepend("k", "u"), true);
        Check.expect("get of what was put together", client.get("k"), "uwx");
        Check.expect("delete", client.delete("k"), true);
        Check.expect("delete of nothing", client.delete("k"), false);
        Check.expect("add", client.add("k", 0, "v"), true);
        Check.expect("get of what was added", client.get("k"), "v");
    }

    private static void tokens() throws Exception {
        Check.expect("set", client.set("k", 0, "1"), true);
        GetsResponse<String> first = client.gets("k");
        Check.expect("gets", first.getValue(), "1");
        Check.expect("cas", client.cas("k", 0, "2", first.getCas()), true);
        Check.expect("cas with an old token", client.cas("k", 0, "3", first.getCas()), false);
        Check.expect("get after cas", client.get("k"), "2");
        Check.expect("cas on nothing", client.cas("absent", 0, "3", first.getCas()), false);
    }

    private static void counts() throws Exception {
        Check.expect("incr with a start", client.incr("n", 1, 9), 9L);
        Check.expect("incr", client.incr("n", 1), 10L);
        Check.expect("decr", client.decr("n", 3), 7L);
        Check.expect("decr below zero", client.decr("n", 20), 0L);
        Check.expect("set", client.set("word", 0, "word"), true);
        try {
            Check.expect("incr of a word", client.incr("word", 1), "a refusal");
        } catch (MemcachedException refusal) {
            Check.expect("incr of a word: " + refusal, refusal.toString().contains("non-numeric"), true);
        }
    }

    private static void many() throws Exception {
        Map<String, String> wanted = new HashMap<>();
        for (int at = 0; at < 500; at++) {
            wanted.put("key" + at, "value" + at);
            Check.expect("set", client.set("key" + at, 0, "value" + at), true);
        }
        Map<String, String> asked = new HashMap<>(wanted);
        asked.put("absent", "");
        Check.expect("get of many", client.<String>get(asked.keySet()), wanted);
    }

    private static void values() throws Exception {
        Check.expect("set of all bytes", client.set("k", 0, Check.allBytes()), true);
        Check.expect("all bytes", client.get("k"), Check.allBytes());
        Check.expect("set of an empty value", client.set("k", 0, ""), true);
        Check.expect("get of an empty value", client.get("k"), "");
        Check.expect("set near the limit", client.set("large", 0, Check.bytes(Check.NEAR_LIMIT)), true);
        Check.expect("get near the limit", client.get("large"), Check.bytes(Check.NEAR_LIMIT));
        Check.refused("set above the limit", () -> client.set("large", 0, Check.bytes(Check.OVER_LIMIT)));
        Check.expect("get of what was refused", client.get("large"), null);
    }

    private static void lives() throws Exception {
        Check.expect("set for a second", client.set("short", 1, "v"), true);
        for (String key : new String[] {"long", "touched", "got"}) {
            Check.expect("set for long", client.set(key, 1000, "v"), true);
        }
        Check.expect("touch", client.touch("touched", 1), true);
        Check.expect("touch of nothing", client.touch("absent", 1), false);
        if (binary) {
            Check.expect("get and touch", client.getAndTouch("got", 1), "v");
        } else {
            Check.expect("touch", client.touch("got", 1), true);
        }
        for (String key : new String[] {"short", "touched", "got"}) {
            Check.gone(key, () -> client.get(key));
        }
        Check.expect("get of what lives long", client.get("long"), "v");
    }
}
