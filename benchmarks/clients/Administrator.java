import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.stream.IntStream;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** The steps of administrators.py with Java's Admin; a step is a line of JSON. Ends with stdin. */
public class Administrator {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final String TIMEOUT_MS = "300000";

    final Admin admin;
    final List<String> topics;
    final List<String> groups;
    final String prefix;

    Administrator(Admin admin, JsonNode job) {
        this.admin = admin;
        prefix = job.get("prefix").asText();
        topics = names(prefix + "-", job.get("count").asInt());
        groups = names(prefix + "-group-", job.get("count").asInt());
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger's line must not land between two answers
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("default.api.timeout.ms", TIMEOUT_MS);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        try (Admin admin = Admin.create(properties)) {
            admin.listTopics().names().get();
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode job = JSON.readTree(line);
                Administrator step = new Administrator(admin, job);
                long begunNs = System.nanoTime();
                long cpuNs = PROCESS.getProcessCpuTime();
                int done = step.run(job.get("step").asText());
                out.println(JSON.writeValueAsString(Map.of(
                    "elapsed_ns", System.nanoTime() - begunNs,
                    "cpu_ns", PROCESS.getProcessCpuTime() - cpuNs,
                    "done", done)));
            }
        }
    }

    int run(String step) throws Exception {
        return switch (step) {
            case "create" -> done(admin.createTopics(
                topics.stream().map(each -> new NewTopic(each, 1, (short) 1)).toList()).values().values());
            case "describe" -> done(admin.describeTopics(topics).topicNameValues().values());
            case "settings" -> done(admin.describeConfigs(resources()).values().values());
            case "alter" -> done(admin.incrementalAlterConfigs(byKey(resources(), each -> List.of(
                new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET))))
                .values().values());
            case "ends" -> ends();
            case "commit" -> commit();
            case "list_groups" -> (int) admin.listGroups().all().get().stream()
                .filter(each -> each.groupId().startsWith(prefix)).count();
            case "describe_groups" -> done(admin.describeConsumerGroups(groups).describedGroups().values());
            case "delete_groups" -> done(admin.deleteConsumerGroups(groups).deletedGroups().values());
            case "delete" -> done(admin.deleteTopics(topics).topicNameValues().values());
            default -> throw new IllegalArgumentException(step);
        };
    }

    int ends() throws Exception {
        List<TopicPartition> partitions = topics.stream().map(each -> new TopicPartition(each, 0)).toList();
        ListOffsetsResult found = admin.listOffsets(byKey(partitions, each -> OffsetSpec.latest()));
        return done(partitions.stream().map(found::partitionResult).toList());
    }

    int commit() throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offset =
            Map.of(new TopicPartition(topics.get(0), 0), new OffsetAndMetadata(0));
        List<KafkaFuture<Void>> calls = new ArrayList<>();
        for (String group : groups) {
            calls.add(admin.alterConsumerGroupOffsets(group, offset).all());
        }
        return done(calls);
    }

    List<ConfigResource> resources() {
        return topics.stream().map(each -> new ConfigResource(ConfigResource.Type.TOPIC, each)).toList();
    }

    static List<String> names(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(number -> prefix + number).toList();
    }

    static <K, V> Map<K, V> byKey(Collection<K> keys, Function<K, V> value) {
        Map<K, V> items = new HashMap<>();
        keys.forEach(each -> items.put(each, value.apply(each)));
        return items;
    }

    /** Waits for the items of a call, and returns how many did not fail. */
    static <V> int done(Collection<KafkaFuture<V>> futures) throws InterruptedException {
        int done = 0;
        for (KafkaFuture<V> future : futures) {
            try {
                future.get();
                done++;
            } catch (ExecutionException failed) {
                // it is not counted
            }
        }
        return done;
    }
}
