import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;

import javax.security.auth.login.AppConfigurationEntry;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.internals.FetchMetricsRegistry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.clients.producer.internals.SenderMetricsRegistry;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.MetricNameTemplate;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.LogContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What Kafka's producer says of itself: a JSON request a line on stdin, a JSON answer a line on stdout. Ends
 * when stdin does. The other side is tests/oracle/java_config.py.
 */
public class ProducerFacts {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger's line must not land between two answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            out.println(JSON.writeValueAsString(answer(request)));
            out.flush();
        }
    }

    static Object answer(JsonNode request) throws Exception {
        switch (request.get("ask").asText()) {
            case "keys":
                return keys(
                    request.path("client").asText().equals("consumer")
                        ? ConsumerConfig.configDef() : ProducerConfig.configDef());
            case "configuration":
                return configuration(request.get("settings"));
            case "jaas":
                return jaas(request.get("line").asText());
            case "properties":
                return properties(request.get("text").asText());
            case "metrics":
                return metrics();
            case "fetch metrics":
                return fetchMetrics();
            case "share metrics":
                return shareMetrics();
            case "windows":
                return windows(request);
            case "load":
                return load(request);
            default:
                throw new IllegalArgumentException(request.toString());
        }
    }

    /** Every key: type, default, importance; no default is the text NO_DEFAULT. */
    static Object keys(ConfigDef table) {
        Map<String, Object> rows = new TreeMap<>();
        for (ConfigDef.ConfigKey key : table.configKeys().values()) {
            Object standard = key.defaultValue;
            if (standard == ConfigDef.NO_DEFAULT_VALUE) {
                standard = "NO_DEFAULT";
            } else if (standard instanceof Class) {
                standard = ((Class<?>) standard).getName();
            }
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("type", key.type.name().toLowerCase());
            row.put("default", standard);
            row.put("importance", key.importance.name().toLowerCase());
            rows.put(key.name, row);
        }
        return rows;
    }

    /** The values that ProducerConfig makes of settings, as text, or the class of what it throws. */
    static Object configuration(JsonNode settings) throws Exception {
        Map<String, Object> given = serializers();
        given.putAll(JSON.convertValue(settings, new TypeReference<Map<String, Object>>() { }));
        try {
            ProducerConfig config = new ProducerConfig(given);
            Map<String, Object> values = new TreeMap<>();
            Map<String, ConfigDef.ConfigKey> rows = ProducerConfig.configDef().configKeys();
            config.values().forEach((name, value) -> values.put(name, text(value, rows.get(name).type)));
            values.put("delivery.timeout.ms", String.valueOf(deliveryTimeout(config)));
            return values;
        } catch (ConfigException error) {
            return Map.of("error", String.valueOf(error.getMessage()));
        }
    }

    /** Module and options of a line of sasl.jaas.config. */
    static Object jaas(String line) {
        try {
            Map<String, Object> given = Map.of("sasl.jaas.config", new Password(line));
            AppConfigurationEntry entry = JaasContext.loadClientContext(given).configurationEntries().get(0);
            return Map.of("module", entry.getLoginModuleName(), "options", entry.getOptions());
        } catch (RuntimeException error) {
            return Map.of("error", String.valueOf(error.getMessage()));
        }
    }

    /** What java.util.Properties reads from a text. */
    static Object properties(String text) throws Exception {
        Properties read = new Properties();
        try {
            read.load(new StringReader(text));
        } catch (IllegalArgumentException error) {
            return Map.of("error", String.valueOf(error.getMessage()));
        }
        return Map.of("properties", read);
    }

    static String text(Object value, ConfigDef.Type type) {
        return value == null ? null : ConfigDef.convertToString(value, type);
    }

    /** KafkaProducer.configureDeliveryTimeout, which the configuration alone does not call. */
    static int deliveryTimeout(ProducerConfig config) throws ConfigException {
        try {
            Method method = KafkaProducer.class.getDeclaredMethod(
                "configureDeliveryTimeout", ProducerConfig.class, Logger.class);
            method.setAccessible(true);
            return (int) method.invoke(null, config, LoggerFactory.getLogger(ProducerFacts.class));
        } catch (InvocationTargetException error) {
            throw (ConfigException) error.getCause();
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    static Map<String, Object> serializers() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return settings;
    }

    /** Group, name and tags of every metric that a producer with one connection has, and of its topics'. */
    static Object metrics() throws Exception {
        List<Object> rows = new ArrayList<>();
        Map<String, Object> settings = serializers();
        settings.put("client.id", "client");
        settings.put("enable.metrics.push", false);
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            settings.put("bootstrap.servers", "localhost:" + server.getLocalPort());
            KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
            try (Socket connection = server.accept()) {
                connection.getInputStream().read(); // its first request: the metrics of the node are there
                for (MetricName name : producer.metrics().keySet()) {
                    rows.add(List.of(name.group(), name.name(), new TreeMap<>(name.tags()).keySet()));
                }
            } finally {
                producer.close(Duration.ZERO);
            }
        }
        try (Metrics metrics = new Metrics()) {
            for (MetricNameTemplate template : new SenderMetricsRegistry(metrics).allTemplates()) {
                if (template.tags().contains("topic")) {
                    rows.add(List.of(template.group(), template.name(), List.of("client-id", "topic")));
                }
            }
        }
        return rows;
    }

    /** The metrics of a consumer's fetches: group, name and tags. */
    static Object fetchMetrics() {
        List<Object> rows = new ArrayList<>();
        for (MetricNameTemplate each : new FetchMetricsRegistry("consumer").getAllTemplates()) {
            rows.add(List.of(each.group(), each.name(), each.tags().stream().sorted().toList()));
        }
        return rows;
    }

    /** The metrics of a share consumer: group, name and tags. */
    static Object shareMetrics() {
        Map<String, Object> settings = Map.of("bootstrap.servers", "localhost:1", "group.id", "g");
        List<Object> rows = new ArrayList<>();
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
                settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (MetricName each : consumer.metrics().keySet()) {
                rows.add(List.of(each.group(), each.name(), each.tags().keySet().stream().sorted().toList()));
            }
            consumer.close(Duration.ZERO);
        }
        return rows;
    }

    /**
     * A stat of each kind, records and reads in turn: [time, value] records, [time] reads all of them, in the
     * order avg, max, rate, total, rate and total of occurrences, ratio.
     */
    static Object windows(JsonNode request) {
        MetricConfig config = new MetricConfig().samples(request.get("samples").asInt())
            .timeWindow(request.get("window_ms").asLong(), TimeUnit.MILLISECONDS);
        List<MeasurableStat> stats = List.of(new Avg(), new Max(), new Rate(), new CumulativeSum(),
            new Rate(new WindowedCount()), new CumulativeCount(), new Rate(TimeUnit.NANOSECONDS));
        List<Object> reads = new ArrayList<>();
        for (JsonNode step : request.get("steps")) {
            long timeMs = step.get(0).asLong();
            if (step.size() == 2) {
                stats.forEach(stat -> stat.record(config, step.get(1).asDouble(), timeMs));
            } else {
                List<String> read = new ArrayList<>();
                stats.forEach(stat -> read.add(Double.toString(stat.measure(config, timeMs))));
                reads.add(read);
            }
        }
        return reads;
    }

    /** The cumulative table that queue sizes of the first `length` partitions give; null for none. */
    static Object load(JsonNode request) throws Exception {
        int[] queueSizes = JSON.convertValue(request.get("queue_sizes"), int[].class);
        int[] partitions = JSON.convertValue(request.get("partitions"), int[].class);
        BuiltInPartitioner partitioner = new BuiltInPartitioner(new LogContext(), "topic", 1);
        partitioner.updatePartitionLoadStats(queueSizes, partitions, request.get("length").asInt());
        Field field = BuiltInPartitioner.class.getDeclaredField("partitionLoadStats");
        field.setAccessible(true);
        if (field.get(partitioner) == null) {
            return null;
        }
        List<Integer> table = new ArrayList<>();
        for (int i = 0; i < request.get("length").asInt(); i++) {
            table.add(queueSizes[i]); // it was made in place
        }
        return table;
    }
}
