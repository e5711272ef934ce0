import java.util.Map;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;

/** Prints "CLASS SETS" for each slab class that a client reads from the server at HOST:PORT. */
public final class Classes {
    private Classes() {}

    public static void main(String[] arguments) throws Exception {
        String server = arguments[0];
        switch (arguments[1]) {
            case "spymemcached TEXT", "spymemcached BINARY" -> readBySpymemcached(server, arguments[1].split(" ")[1]);
            case "xmemcached" -> readByXmemcached(server);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
    }

    private static void readBySpymemcached(String server, String protocol) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SLF4JLogger");
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
                .setProtocol(ConnectionFactoryBuilder.Protocol.valueOf(protocol))
                .setOpTimeout(Check.PATIENCE_SECONDS * 1000L);
        MemcachedClient client =
                new MemcachedClient(builder.build(), net.spy.memcached.AddrUtil.getAddresses(server));
        client.getStats("slabs").values().forEach(Classes::print);
        client.shutdown();
    }

    private static void readByXmemcached(String server) throws Exception {
        XMemcachedClientBuilder builder =
                new XMemcachedClientBuilder(net.rubyeye.xmemcached.utils.AddrUtil.getAddresses(server));
        builder.setOpTimeout(Check.PATIENCE_SECONDS * 1000L);
        net.rubyeye.xmemcached.MemcachedClient client = builder.build();
        client.getStatsByItem("slabs").values().forEach(Classes::print);
        client.shutdown();
    }

    private static void print(Map<String, String> statistics) {
        statistics.forEach((name, value) -> {
            if (name.endsWith(":cmd_set")) {
                System.out.println(name.substring(0, name.indexOf(':')) + " " + value);
            }
        });
    }
}
