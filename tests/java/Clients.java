import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java clients as jobs, one after the other: a line of JSON on stdin is a job, {"command":
 * consume|share|read|copy|transact|produce|admin|judge, "bootstrap.servers": ..., ...}. On stdout a line each says
 * {"answer": ...}, and the last one of a job {"end": true} or {"failure": a stack trace}. Whatever a client logs
 * goes to stderr. Ends when stdin does. The other side is tests/oracle/java_clients.py.
 */
public class Clients {
    static final ObjectMapper JSON = new ObjectMapper();
    static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // a logger's line must not land between two answers
        for (String line = IN.readLine(); line != null; line = IN.readLine()) {
            try {
                run(JSON.readTree(line));
                say("end", true);
            } catch (Exception failure) {
                StringWriter trace = new StringWriter();
                failure.printStackTrace(new PrintWriter(trace));
                say("failure", trace.toString());
            }
        }
    }

    static void run(JsonNode job) throws Exception {
        switch (job.get("command").asText()) {
            case "consume" -> Consume.run(job);
            case "share" -> Share.run(job);
            case "read" -> Read.run(job);
            case "copy" -> Copy.run(job);
            case "transact" -> Transact.run(job);
            case "produce" -> Produce.run(job);
            case "admin" -> AdminCalls.run(job);
            case "judge" -> AdminJudge.run(job);
            default -> throw new IllegalArgumentException("no command " + job.get("command"));
        }
    }

    static void print(Object answer) throws Exception {
        say("answer", answer);
    }

    static void say(String what, Object value) throws Exception {
        OUT.println(JSON.writeValueAsString(Collections.singletonMap(what, value)));
    }

    /** The job's "properties" over the given ones. */
    static Properties properties(JsonNode job, Object... defaults) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", job.get("bootstrap.servers").asText());
        for (int i = 0; i < defaults.length; i += 2) {
            properties.put(defaults[i], defaults[i + 1]);
        }
        job.path("properties").fields().forEachRemaining(p -> properties.put(p.getKey(), p.getValue().asText()));
        return properties;
    }

    static KafkaConsumer<byte[], byte[]> consumer(JsonNode job) {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(properties(job,
            "group.id", job.get("group").asText(),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "isolation.level", job.path("isolation.level").asText("read_uncommitted")), bytes, bytes);
    }

    static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(node -> texts.add(node.asText()));
        return texts;
    }
}

/** Prints the records of a topic, read as a member of a group, until there are enough or none come any more. */
class Consume {
    static void run(JsonNode job) throws Exception {
        long wanted = job.get("max_records").asLong();
        long idle = Duration.ofMillis(job.get("first_ms").asLong()).toNanos(); // until the first one
        try (KafkaConsumer<byte[], byte[]> consumer = Clients.consumer(job)) {
            if (job.has("pattern")) {
                consumer.subscribe(new SubscriptionPattern(job.get("pattern").asText()));
            } else {
                consumer.subscribe(Clients.texts(job.get("topics")));
            }
            long last = System.nanoTime();
            for (long count = 0; count < wanted && System.nanoTime() - last < idle; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    Clients.print(row(record));
                    count++;
                    last = System.nanoTime();
                    idle = Duration.ofMillis(job.get("idle_ms").asLong()).toNanos();
                }
                try {
                    consumer.commitSync();
                } catch (RebalanceInProgressException rebalance) {
                    // the next poll completes it, and then all is committed that was read before
                }
            }
        }
    }

    static Map<String, Object> row(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(header.key(), text(header.value())));
        }
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", record.topic());
        row.put("partition", record.partition());
        row.put("offset", record.offset());
        row.put("timestamp", record.timestamp());
        row.put("key", text(record.key()));
        row.put("value", text(record.value()));
        row.put("headers", headers);
        return row;
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}

/**
 * Prints what a member of a share group gets: [partition, offset, delivery count, whether it was accepted]. It
 * releases the first delivery of each record whose offset is a multiple of "releases", and accepts all others.
 */
class Share {
    static void run(JsonNode job) throws Exception {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        long releases = job.get("releases").asLong();
        long idle = Duration.ofMillis(job.get("first_ms").asLong()).toNanos(); // until the first one
        Properties properties = Clients.properties(job,
            "group.id", job.get("group").asText(), "share.acknowledgement.mode", "explicit");
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties, bytes, bytes)) {
            consumer.subscribe(Clients.texts(job.get("topics")));
            for (long last = System.nanoTime(); System.nanoTime() - last < idle; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    int count = record.deliveryCount().get();
                    boolean accepts = record.offset() % releases != 0 || count > 1;
                    consumer.acknowledge(record, accepts ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    Clients.print(Arrays.asList(record.partition(), record.offset(), count, accepts));
                    last = System.nanoTime();
                    idle = Duration.ofMillis(job.get("idle_ms").asLong()).toNanos();
                }
                consumer.commitSync().values().forEach(failure -> failure.ifPresent(Share::raise));
            }
        }
    }

    static void raise(KafkaException failure) {
        throw failure;
    }
}

/**
 * Prints the records of a topic, from its beginning to a position of each partition, under each of the isolation
 * levels, without a group: [isolation level, partition, offset, timestamp, timestamp type, leader epoch, key, value,
 * headers], bytes in hex. The job's "ends": {isolation level: {partition: position}}.
 */
class Read {
    static void run(JsonNode job) throws Exception {
        for (Iterator<String> levels = job.get("ends").fieldNames(); levels.hasNext(); ) {
            String isolation = levels.next();
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            Properties properties = Clients.properties(job,
                "isolation.level", isolation, "auto.offset.reset", "none", "enable.auto.commit", "false");
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(properties, bytes, bytes)) {
                readAll(consumer, isolation, ends(job.get("topic").asText(), job.get("ends").get(isolation)));
            }
        }
    }

    static Map<TopicPartition, Long> ends(String topic, JsonNode positions) {
        Map<TopicPartition, Long> ends = new HashMap<>();
        positions.fields().forEachRemaining(end ->
            ends.put(new TopicPartition(topic, Integer.parseInt(end.getKey())), end.getValue().asLong()));
        return ends;
    }

    static void readAll(KafkaConsumer<byte[], byte[]> consumer, String isolation, Map<TopicPartition, Long> ends)
            throws Exception {
        consumer.assign(ends.keySet());
        consumer.seekToBeginning(ends.keySet());
        while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                Clients.print(row(record, isolation));
            }
        }
    }

    static List<Object> row(ConsumerRecord<byte[], byte[]> record, String isolation) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(Arrays.asList(hex(header.key().getBytes(StandardCharsets.UTF_8)), hex(header.value())));
        }
        return Arrays.asList(
            isolation,
            record.partition(),
            record.offset(),
            record.timestamp(),
            record.timestampType().toString(),
            record.leaderEpoch().orElse(-1),
            hex(record.key()),
            hex(record.value()),
            headers);
    }

    static String hex(byte[] bytes) {
        return bytes == null ? null : HexFormat.of().formatHex(bytes);
    }
}

/**
 * Read, process, write, exactly once: what is committed in a topic goes to another in transactions that commit
 * the group's offsets too. Every so many transactions one is aborted, and its records are read again.
 */
class Copy {
    final KafkaConsumer<byte[], byte[]> consumer;
    final KafkaProducer<byte[], byte[]> producer;
    final String target;
    final int abortEvery;
    final Map<String, Integer> counts = new TreeMap<>(Map.of("copied", 0, "committed", 0, "aborted", 0));

    Copy(JsonNode job) {
        consumer = Clients.consumer(job);
        ByteArraySerializer bytes = new ByteArraySerializer();
        producer = new KafkaProducer<>(
            Clients.properties(job, "transactional.id", job.get("transactional_id").asText()), bytes, bytes);
        target = job.get("target").asText();
        abortEvery = job.get("abort_every").asInt();
    }

    static void run(JsonNode job) throws Exception {
        Copy copy = new Copy(job);
        try (copy.consumer; copy.producer) {
            copy.copyAll(job.get("source").asText(), job.get("batch_records").asInt());
        }
        Clients.print(copy.counts);
    }

    void copyAll(String source, int batchRecords) {
        producer.initTransactions();
        List<TopicPartition> partitions = new ArrayList<>();
        for (PartitionInfo info : consumer.partitionsFor(source)) {
            partitions.add(new TopicPartition(source, info.partition()));
        }
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        consumer.subscribe(List.of(source));
        List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
        while (!isAtEnd(ends)) {
            consumer.poll(Duration.ofMillis(100)).forEach(batch::add);
            boolean last = isAtEnd(ends);
            while (batch.size() >= batchRecords || last && !batch.isEmpty()) {
                List<ConsumerRecord<byte[], byte[]>> head = batch.subList(0, Math.min(batchRecords, batch.size()));
                transact(head);
                head.clear();
            }
        }
    }

    boolean isAtEnd(Map<TopicPartition, Long> ends) {
        return consumer.assignment().containsAll(ends.keySet())
            && ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }

    void transact(List<ConsumerRecord<byte[], byte[]>> records) {
        int transactions = counts.get("committed") + counts.get("aborted") + 1;
        if (abortEvery > 0 && transactions % abortEvery == 0) {
            send(records);
            producer.abortTransaction();
            counts.merge("aborted", 1, Integer::sum);
        }
        send(records);
        producer.commitTransaction();
        counts.merge("committed", 1, Integer::sum);
        counts.merge("copied", records.size(), Integer::sum);
    }

    void send(List<ConsumerRecord<byte[], byte[]>> records) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(new ProducerRecord<>(
                target, null, record.timestamp(), record.key(), record.value(), record.headers()));
            offsets.put(
                new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }
}

/**
 * A transaction that stays open until a line comes on stdin: prints "open" when its record is in the log, and
 * then "committed", or the class of what the commit threw.
 */
class Transact {
    static void run(JsonNode job) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        Properties properties =
            Clients.properties(job, "transactional.id", job.get("transactional_id").asText(), "linger.ms", "0");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            producer.initTransactions();
            producer.beginTransaction();
            byte[] value = job.get("value").asText().getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(job.get("topic").asText(), value)).get();
            Clients.print("open");
            Clients.IN.readLine();
            try {
                producer.commitTransaction();
                Clients.print("committed");
            } catch (KafkaException failure) {
                Clients.print(failure.getClass().getSimpleName());
            }
        }
    }
}

/**
 * Sends a record with a producer of its own for each of the job's "records", {"topic", "value", "properties"}:
 * prints {"partition": ..., "offset": ...} or {"error": ..., "message": ...}.
 */
class Produce {
    static void run(JsonNode job) throws Exception {
        for (JsonNode record : job.get("records")) {
            Clients.print(answer(record));
        }
    }

    static Map<String, Object> answer(JsonNode record) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        Properties properties = new Properties();
        record.get("properties").fields().forEachRemaining(p -> properties.put(p.getKey(), p.getValue().asText()));
        byte[] value = record.get("value").asText().getBytes(StandardCharsets.UTF_8);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties, bytes, bytes)) {
            var sent = producer.send(new ProducerRecord<>(record.get("topic").asText(), value)).get();
            return AdminCalls.row("partition", sent.partition(), "offset", sent.offset());
        } catch (ExecutionException | KafkaException failure) {
            Throwable last = failure;
            while (last.getCause() != null) {
                last = last.getCause();
            }
            return AdminCalls.row("error", last.getClass().getSimpleName(), "message", String.valueOf(last.getMessage()));
        }
    }
}

/** Runs the job's "calls", each {"call": name, ...}, and prints {"result": ...} or {"error": ..., "message": ...}. */
class AdminCalls {
    interface Call {
        Object answer(Admin admin, JsonNode arguments) throws Exception;
    }

    static final Map<String, Call> CALLS = new HashMap<>();

    static {
        CALLS.put("describeCluster", (admin, a) -> {
            var cluster = admin.describeCluster();
            return Map.of(
                "cluster_id", cluster.clusterId().get(),
                "nodes", list(cluster.nodes().get(), node -> List.of(node.id(), node.host(), node.port())));
        });
        CALLS.put("createTopics", (admin, a) -> {
            List<NewTopic> topics = new ArrayList<>();
            a.get("topics").fields().forEachRemaining(topic -> topics.add(newTopic(topic)));
            return admin.createTopics(topics).all().get();
        });
        CALLS.put("createPartitions", (admin, a) -> admin.createPartitions(
            Map.of(a.get("topic").asText(), NewPartitions.increaseTo(a.get("count").asInt()))).all().get());
        CALLS.put("deleteTopics", (admin, a) -> admin.deleteTopics(Clients.texts(a.get("topics"))).all().get());
        CALLS.put("listTopics", (admin, a) -> admin.listTopics().names().get().stream().sorted().toList());
        CALLS.put("describeTopics", (admin, a) ->
            values(admin.describeTopics(Clients.texts(a.get("topics"))).allTopicNames().get(), AdminCalls::topic));
        CALLS.put("describeConfigs", AdminCalls::describeConfigs);
        CALLS.put("listOffsets", AdminCalls::listOffsets);
        CALLS.put("listGroups", (admin, a) -> list(admin.listGroups().all().get(), group -> row(
            "group", group.groupId(),
            "type", text(group.type()),
            "protocol", group.protocol(),
            "state", text(group.groupState()))));
        CALLS.put("describeConsumerGroups", (admin, a) -> values(
            admin.describeConsumerGroups(Clients.texts(a.get("groups"))).all().get(), group -> row(
                "type", group.type().toString(),
                "state", group.groupState().toString(),
                "assignor", group.partitionAssignor(),
                "members", list(group.members(), AdminCalls::member))));
        CALLS.put("describeClassicGroups", (admin, a) -> values(
            admin.describeClassicGroups(Clients.texts(a.get("groups"))).all().get(), group -> row(
                "protocol", group.protocol(),
                "protocol_data", group.protocolData(),
                "state", group.state().toString(),
                "members", list(group.members(), AdminCalls::member))));
        CALLS.put("listConsumerGroupOffsets", (admin, a) -> values(
            admin.listConsumerGroupOffsets(a.get("group").asText()).partitionsToOffsetAndMetadata().get(),
            offset -> offset == null ? null : offset.offset()));
        CALLS.put("describeProducers", AdminCalls::describeProducers);
        CALLS.put("upgradeFeature", (admin, a) -> admin.updateFeatures(
            Map.of(a.get("feature").asText(), new FeatureUpdate(
                (short) a.get("level").asInt(), FeatureUpdate.UpgradeType.UPGRADE)),
            new UpdateFeaturesOptions()).all().get());
        CALLS.put("createDelegationToken", (admin, a) -> {
            DelegationToken token = admin.createDelegationToken().delegationToken().get();
            while (!admin.describeDelegationToken().delegationTokens().get().contains(token)) {
                Thread.onSpinWait(); // the controller has it; the broker knows it a little later
            }
            return row("id", token.tokenInfo().tokenId(), "hmac", token.hmacAsBase64String());
        });
        CALLS.put("listTransactions", (admin, a) -> list(admin.listTransactions().all().get(), transaction -> row(
            "transactional_id", transaction.transactionalId(),
            "producer_id", transaction.producerId(),
            "state", transaction.state().toString())));
        CALLS.put("describeTransactions", (admin, a) -> values(
            admin.describeTransactions(Clients.texts(a.get("transactional_ids"))).all().get(), transaction -> row(
                "coordinator", transaction.coordinatorId(),
                "state", transaction.state().toString(),
                "producer_id", transaction.producerId(),
                "producer_epoch", transaction.producerEpoch(),
                "timeout_ms", transaction.transactionTimeoutMs(),
                "partitions", list(transaction.topicPartitions(), TopicPartition::toString))));
    }

    static void run(JsonNode job) throws Exception {
        try (Admin admin = Admin.create(Clients.properties(job, "request.timeout.ms", "20000", "default.api.timeout.ms", "20000"))) {
            for (JsonNode arguments : job.get("calls")) {
                Clients.print(answer(admin, arguments));
            }
        }
    }

    static Map<String, Object> answer(Admin admin, JsonNode arguments) throws Exception {
        try {
            return row("result", CALLS.get(arguments.get("call").asText()).answer(admin, arguments));
        } catch (ExecutionException failure) {
            Throwable cause = failure.getCause();
            return row("error", cause.getClass().getSimpleName(), "message", String.valueOf(cause.getMessage()));
        }
    }

    static NewTopic newTopic(Map.Entry<String, JsonNode> topic) {
        JsonNode wanted = topic.getValue();
        Map<String, String> configs = new HashMap<>();
        wanted.path("configs").fields().forEachRemaining(c -> configs.put(c.getKey(), c.getValue().asText()));
        short replicas = (short) wanted.path("replication_factor").asInt(1);
        return new NewTopic(topic.getKey(), wanted.path("partitions").asInt(1), replicas).configs(configs);
    }

    static Object topic(TopicDescription topic) {
        return row(
            "internal", topic.isInternal(),
            "partitions", list(topic.partitions(), partition -> row(
                "partition", partition.partition(),
                "leader", partition.leader() == null ? null : partition.leader().id(),
                "replicas", list(partition.replicas(), node -> node.id()),
                "isr", list(partition.isr(), node -> node.id()))));
    }

    static Object describeConfigs(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource.Type type = ConfigResource.Type.valueOf(arguments.get("type").asText());
        ConfigResource resource = new ConfigResource(type, arguments.get("name").asText());
        Map<String, String> configs = new TreeMap<>();
        admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
            .forEach(entry -> configs.put(entry.name(), entry.value()));
        return configs;
    }

    static Object listOffsets(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        OffsetSpec at = switch (arguments.get("at").asText()) {
            case "earliest" -> OffsetSpec.earliest();
            case "latest" -> OffsetSpec.latest();
            case "max_timestamp" -> OffsetSpec.maxTimestamp();
            default -> OffsetSpec.forTimestamp(arguments.get("at").asLong());
        };
        String isolation = arguments.path("isolation.level").asText("read_uncommitted").toUpperCase();
        ListOffsetsOptions options = new ListOffsetsOptions(IsolationLevel.valueOf(isolation));
        var found = admin.listOffsets(Map.of(partition, at), options).partitionResult(partition).get();
        return row("offset", found.offset(), "timestamp", found.timestamp());
    }

    static Object describeProducers(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        var state = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
        return list(state.activeProducers(), producer -> row(
            "producer_id", producer.producerId(),
            "producer_epoch", producer.producerEpoch(),
            "last_sequence", producer.lastSequence(),
            "coordinator_epoch", producer.coordinatorEpoch().orElse(-1),
            "transaction_start_offset", producer.currentTransactionStartOffset().orElse(-1)));
    }

    static Object member(MemberDescription member) {
        return row(
            "client_id", member.clientId(),
            "assignment", list(member.assignment().topicPartitions(), TopicPartition::toString));
    }

    static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(arguments.get("topic").asText(), arguments.get("partition").asInt());
    }

    static Map<String, Object> row(Object... namesAndValues) {
        Map<String, Object> row = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            row.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return row;
    }

    static <T> List<Object> list(Iterable<T> items, Function<T, Object> view) {
        List<Object> list = new ArrayList<>();
        items.forEach(item -> list.add(view.apply(item)));
        return list;
    }

    static <K, V> Map<String, Object> values(Map<K, V> map, Function<V, Object> view) {
        Map<String, Object> values = new TreeMap<>();
        map.forEach((key, value) -> values.put(key.toString(), view.apply(value)));
        return values;
    }

    static String text(Optional<?> value) {
        return value.map(Object::toString).orElse(null);
    }
}
