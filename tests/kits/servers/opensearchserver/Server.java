import java.io.PrintStream;
import java.util.List;
import org.codelibs.opensearch.runner.OpenSearchRunner;
import org.opensearch.action.admin.cluster.node.info.NodeInfo;
import org.opensearch.http.HttpInfo;
import org.opensearch.index.reindex.ReindexPlugin;
import org.opensearch.transport.Netty4Plugin;

/** OpenSearch for tests: Server PORT FOLDER prints its URL and runs until it is killed. */
public class Server {
    // Aggregations and scripts that the tests do not use would make the start slower.
    private static final List<Class<?>> MODULES = List.of(Netty4Plugin.class, ReindexPlugin.class);

    public static void main(String[] arguments) throws InterruptedException {
        PrintStream out = System.out;
        System.setOut(System.err); // the runner tells which folders it creates
        OpenSearchRunner runner = new OpenSearchRunner();
        runner.onBuild(
                        (number, settings) -> {
                            settings.put("http.port", arguments[0]);
                            settings.put("transport.port", "0");
                            settings.put("network.host", "127.0.0.1");
                            settings.put("discovery.type", "single-node");
                            settings.putList("discovery.seed_hosts");
                            settings.put("cluster.routing.allocation.disk.threshold_enabled", false);
                            settings.put("node.processors", 1);
                        })
                .build(
                        OpenSearchRunner.newConfigs()
                                .basePath(arguments[1])
                                .numOfNode(1)
                                .moduleTypes(
                                        String.join(
                                                ",",
                                                MODULES.stream().map(Class::getName).toList()))
                                .disableESLogger());
        NodeInfo node =
                runner.client().admin().cluster().prepareNodesInfo().get().getNodes().get(0);
        out.println("http://" + node.getInfo(HttpInfo.class).address().publishAddress());
        Thread.currentThread().join(); // all threads of the server are daemons
    }
}
