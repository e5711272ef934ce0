import java.util.Arrays;
import java.util.Objects;
import java.util.concurrent.Callable;

/** What both programs expect, and the values that they store. */
final class Check {
    static final int NEAR_LIMIT = (1 << 20) - 512;
    static final int OVER_LIMIT = (1 << 20) + 1;
    static final int PATIENCE_SECONDS = 60;

    private Check() {}

    static void expect(String what, Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            throw new AssertionError(what + ": got " + shown(got) + ", expected " + shown(wanted));
        }
    }

    static void refused(String what, Callable<Boolean> write) {
        try {
            expect(what, write.call(), false);
        } catch (Exception refusal) {
            expect(what + ": " + refusal, refusal.toString().matches("(?s).*too (large|big).*"), true);
        }
    }

    static void gone(String what, Callable<Object> read) throws Exception {
        long start = System.nanoTime();
        while (read.call() != null) {
            expect(what + " is gone in time", System.nanoTime() - start < PATIENCE_SECONDS * 1_000_000_000L, true);
            Thread.sleep(50);
        }
    }

    static byte[] allBytes() {
        byte[] head = new byte[1024];
        for (int at = 0; at < head.length; at++) {
            head[at] = (byte) at;
        }
        byte[] tail = "\r\nEND\r\nVALUE k 0 1\r\n".getBytes();
        byte[] all = Arrays.copyOf(head, head.length + tail.length);
        System.arraycopy(tail, 0, all, head.length, tail.length);
        return all;
    }

    static byte[] bytes(int length) {
        byte[] value = new byte[length];
        for (int at = 0; at < length; at++) {
            value[at] = (byte) (at * 31 / 7);
        }
        return value;
    }

    private static String shown(Object value) {
        String text = value instanceof byte[] ? Arrays.toString((byte[]) value) : String.valueOf(value);
        return text.length() > 500 ? text.substring(0, 500) + "..." : text;
    }
}
