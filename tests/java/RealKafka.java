import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

import kafka.Kafka;
import kafka.tools.StorageTool;
import org.apache.kafka.common.utils.Exit;

/**
 * Formats the log folder of a KRaft broker, where that was not done, and runs the broker in the same JVM:
 * RealKafka server.properties cluster-id [feature=level ...] [--option ...]. Halts when stdin ends, so that no broker outlives
 * the process that started it. The other side is tests/oracle/kafka.py.
 */
public class RealKafka {
    public static void main(String[] args) {
        Thread lifeline = new Thread(RealKafka::haltWithParent, "lifeline");
        lifeline.setDaemon(true);
        lifeline.start();
        int status = StorageTool.execute(formatCommand(args), System.out);
        if (status != 0) {
            Exit.exit(status);
        }
        Kafka.main(new String[] {args[0]});
    }

    static String[] formatCommand(String[] args) {
        List<String> command = new ArrayList<>(List.of("format", "--ignore-formatted"));
        command.addAll(List.of("--config", args[0], "--cluster-id", args[1]));
        for (int i = 2; i < args.length; i++) {
            command.addAll(args[i].startsWith("--") ? List.of(args[i]) : List.of("--feature", args[i]));
        }
        return command.toArray(new String[0]);
    }

    static void haltWithParent() {
        try {
            while (System.in.read() >= 0) { }
        } catch (IOException closed) {
            // As good as its end.
        }
        Runtime.getRuntime().halt(1);
    }
}
