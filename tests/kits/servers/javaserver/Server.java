import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/** A MongoDB server in memory, for tests: Server HOST PORT prints its URL and runs until it is killed. */
public class Server {
    private static final MongoVersion SIX =
            new MongoVersion() {
                @Override
                public List<Integer> getVersionArray() {
                    return List.of(6, 0, 0);
                }

                @Override
                public int getWireVersion() {
                    return 17; // the least that PyMongo takes
                }
            };

    public static void main(String[] arguments) {
        MemoryBackend backend = new MemoryBackend();
        backend.version(SIX);
        MongoServer server = new MongoServer(backend);
        server.bind(arguments[0], Integer.parseInt(arguments[1]));
        System.out.println(server.getConnectionString());
    }
}
