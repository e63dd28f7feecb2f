import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The jobs of driver.py with the Java client; a job is a line of JSON. Ends with stdin. */
public class Driver {
    static final ObjectMapper JSON = new ObjectMapper();
    static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    static final byte[] FIRST = "first".getBytes(StandardCharsets.UTF_8);

    final String topic;
    final int records;
    final byte[][] keys;
    final byte[][] values;
    final AtomicLong delivered = new AtomicLong();
    final Map<String, Object> answer = new HashMap<>();

    Driver(JsonNode job) {
        topic = job.get("topic").asText();
        records = job.get("records").asInt();
        keys = column(job.get("rows"), 0);
        values = column(job.get("rows"), 1);
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // a logger's line must not land between two answers
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(new Driver(JSON.readTree(line)).run(JSON.readTree(line))));
            out.flush();
        }
    }

    Map<String, Object> run(JsonNode job) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        if (job.get("job").asText().equals("crowd")) {
            crowd(job, bytes);
            answer.put("delivered", delivered.get());
            return answer;
        }
        if (job.get("job").asText().equals("read")) {
            read(job);
            return answer;
        }
        if (job.get("job").asText().equals("follow")) {
            follow(job);
            return answer;
        }
        if (job.get("job").asText().equals("settle")) {
            settle(job);
            return answer;
        }
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings(job), bytes, bytes)) {
            switch (job.get("job").asText()) {
                case "load" -> load(producer);
                case "pace" -> pace(producer, job.get("interval_ns").asLong());
                case "transact" -> transact(producer, job.get("transactions").asInt());
                default -> throw new IllegalArgumentException(job.get("job").asText());
            }
        }
        answer.put("delivered", delivered.get());
        return answer;
    }

    void load(KafkaProducer<byte[], byte[]> producer) throws Exception {
        producer.send(new ProducerRecord<>(topic, FIRST, new byte[0])).get();
        Meter meter = new Meter();
        sendAll(producer, false);
        producer.flush();
        meter.read(answer);
    }

    void sendAll(KafkaProducer<byte[], byte[]> producer, boolean others) {
        for (int i = 0; i < records; i++) {
            int row = i % keys.length;
            producer.send(new ProducerRecord<>(topic, keys[row], values[row]), (metadata, error) -> {
                if (error == null && others) { // other producers' threads count too
                    delivered.incrementAndGet();
                } else if (error == null) {
                    delivered.setPlain(delivered.getPlain() + 1);
                }
            });
        }
    }

    /** Threads that send the rows again and again, each to one of the producers, until the time is over. */
    void crowd(JsonNode job, ByteArraySerializer bytes) throws Exception {
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < job.get("producers").asInt(); i++) {
            producers.add(new KafkaProducer<>(settings(job), bytes, bytes));
            producers.get(i).send(new ProducerRecord<>(topic, FIRST, new byte[0])).get();
        }
        long[] sent = new long[job.get("senders").asInt()];
        Thread[] threads = new Thread[sent.length];
        Meter meter = new Meter();
        long deadline = System.nanoTime() + (long) (job.get("seconds").asDouble() * 1e9);
        for (int i = 0; i < threads.length; i++) {
            int number = i;
            KafkaProducer<byte[], byte[]> producer = producers.get(i % producers.size());
            threads[i] = new Thread(() -> {
                while (System.nanoTime() - deadline < 0) {
                    sendAll(producer, producers.size() > 1);
                    sent[number] += records;
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            producer.flush();
        }
        meter.read(answer);
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            producer.close();
        }
        answer.put("sent", sent);
    }

    /** Read the topic from its beginning; with "verifies", hash all keys and values as readers.py does. */
    void read(JsonNode job) throws Exception {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        List<TopicPartition> partitions = new ArrayList<>();
        for (int i = 0; i < job.get("partitions").asInt(); i++) {
            partitions.add(new TopicPartition(topic, i));
        }
        boolean verifies = job.get("verifies").asBoolean();
        long count = 0;
        long digest = 0;
        long size = 0; // what a program does that reads key and value
        Meter meter = new Meter();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(job), bytes, bytes)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (count < records) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    count++;
                    size += record.key().length + record.value().length;
                    if (verifies) {
                        digest += (crc(record.key()) << 32) + crc(record.value());
                    }
                }
            }
            meter.read(answer);
        }
        answer.put("delivered", count);
        answer.put("size", size);
        answer.put("digest", Long.toUnsignedString(digest));
    }

    /** Note when each stamped record comes, as followers.py does. */
    void follow(JsonNode job) throws Exception {
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        long[] delays = new long[records];
        int missing = records;
        int counted = records - job.get("lead").asInt();
        int repeated = 0;
        Meter meter = new Meter();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings(job), bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int i = 0; i < job.get("starts").size(); i++) {
                partitions.add(new TopicPartition(topic, i));
            }
            consumer.assign(partitions);
            for (int i = 0; i < partitions.size(); i++) {
                consumer.seek(partitions.get(i), job.get("starts").get(i).asLong());
            }
            while (missing > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    long now = System.nanoTime();
                    ByteBuffer stamp = ByteBuffer.wrap(record.value());
                    int number = (int) stamp.getLong();
                    if (delays[number] != 0) {
                        repeated++;
                        continue;
                    }
                    delays[number] = now - stamp.getLong();
                    if (--missing == counted) {
                        meter = new Meter();
                    }
                    JsonNode mark = job.path("marks").path(String.valueOf(records - missing));
                    if (!mark.isMissingNode()) {
                        Files.createFile(Path.of(mark.asText()));
                    }
                }
            }
            meter.read(answer);
        }
        answer.put("delays_ns", delays);
        answer.put("repeated", repeated);
    }

    /** The time until a group has settled after a member more has come, and after one has died: members.py. */
    void settle(JsonNode job) throws Exception {
        int partitions = job.get("partitions").asInt();
        Properties mortalSettings = settings(job);
        mortalSettings.put("bootstrap.servers", job.get("mortal_servers").asText());
        Member mortal = new Member(mortalSettings, topic);
        List<Member> members = new ArrayList<>(List.of(mortal));
        for (int i = 1; i < job.get("members").asInt(); i++) {
            members.add(new Member(settings(job), topic));
        }
        awaitSettled(members, partitions);
        long begun = System.nanoTime();
        members.add(new Member(settings(job), topic));
        awaitSettled(members, partitions);
        answer.put("joined_ns", System.nanoTime() - begun);
        members.remove(mortal);
        Thread.sleep((long) (job.get("rest_seconds").asDouble() * 1e3));
        begun = System.nanoTime();
        new Socket(job.get("death_host").asText(), job.get("death_port").asInt()).close();
        awaitSettled(members, partitions);
        answer.put("died_ns", System.nanoTime() - begun);
        mortal.end(CloseOptions.timeout(Duration.ZERO));
        for (Member member : members) {
            member.end(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        }
    }

    static void awaitSettled(List<Member> members, int partitions) throws Exception {
        long deadline = System.nanoTime() + 120_000_000_000L;
        while (true) {
            Set<TopicPartition> all = new HashSet<>();
            int shown = 0;
            boolean allHaveSome = true;
            for (Member member : members) {
                Set<TopicPartition> own = member.shown;
                all.addAll(own);
                shown += own.size();
                allHaveSome &= !own.isEmpty();
            }
            if (allHaveSome && shown == partitions && all.size() == partitions) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the group has not settled: " + shown + " of " + partitions);
            }
            Thread.sleep(1);
        }
    }

    /** A consumer that polls on a thread of its own, and shows its partitions after each poll. */
    static class Member extends Thread {
        final Properties settings;
        final String topic;
        volatile Set<TopicPartition> shown = Set.of();
        volatile CloseOptions ending;

        Member(Properties settings, String topic) {
            this.settings = settings;
            this.topic = topic;
            setDaemon(true);
            start();
        }

        @Override
        public void run() {
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes);
            consumer.subscribe(List.of(topic));
            while (ending == null) {
                consumer.poll(Duration.ofMillis(50));
                shown = Set.copyOf(consumer.assignment());
            }
            consumer.close(ending);
        }

        void end(CloseOptions how) throws InterruptedException {
            ending = how;
            join();
        }
    }

    static long crc(byte[] data) {
        CRC32 crc = new CRC32();
        crc.update(data);
        return crc.getValue();
    }

    void pace(KafkaProducer<byte[], byte[]> producer, long intervalNs) throws Exception {
        producer.send(new ProducerRecord<>(topic, FIRST, new byte[0])).get();
        long[] fromSent = new long[records];
        long[] fromDue = new long[records];
        Meter meter = new Meter();
        long start = System.nanoTime();
        for (int i = 0; i < records; i++) {
            int row = i % keys.length;
            int number = i;
            long due = start + i * intervalNs;
            long left = due - System.nanoTime();
            if (left > 0) {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            }
            long sent = System.nanoTime();
            producer.send(new ProducerRecord<>(topic, keys[row], values[row]), (metadata, error) -> {
                long settled = System.nanoTime();
                fromSent[number] = settled - sent;
                fromDue[number] = settled - due;
                if (error == null) {
                    delivered.incrementAndGet();
                }
            });
        }
        producer.flush();
        meter.read(answer);
        answer.put("from_sent_ns", fromSent);
        answer.put("from_due_ns", fromDue);
    }

    void transact(KafkaProducer<byte[], byte[]> producer, int transactions) throws Exception {
        producer.initTransactions();
        Meter meter = null;
        for (int i = 0; i <= transactions; i++) {
            producer.beginTransaction();
            sendAll(producer, false);
            producer.commitTransaction();
            if (i == 0) {
                meter = new Meter();
                delivered.set(0);
            }
        }
        meter.read(answer);
    }

    /** As the Meter of driver.py; the kernel's share comes in clock ticks. */
    static class Meter {
        final long start = System.nanoTime();
        final long cpu = PROCESS.getProcessCpuTime();
        final long system = systemNs();
        final long resident = status("VmRSS");

        void read(Map<String, Object> answer) {
            long elapsed = System.nanoTime() - start;
            long used = PROCESS.getProcessCpuTime() - cpu;
            long inKernel = Math.min(systemNs() - system, used);
            answer.put("elapsed_ns", elapsed);
            answer.put("cpu_ns", used);
            answer.put("system_ns", inKernel);
            answer.put("user_ns", used - inKernel);
            answer.put("before_kib", resident);
            answer.put("peak_kib", status("VmHWM"));
        }

        static long systemNs() {
            try {
                String stat = Files.readString(Path.of("/proc/self/stat"));
                return Long.parseLong(stat.substring(stat.lastIndexOf(')') + 2).split(" ")[12]) * 10_000_000;
            } catch (IOException error) {
                return 0;
            }
        }

        static long status(String field) {
            try {
                for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                    if (line.startsWith(field + ":")) {
                        return Long.parseLong(line.split("\\s+")[1]);
                    }
                }
            } catch (IOException error) {
                // not on Linux
            }
            return 0;
        }
    }

    static Properties settings(JsonNode job) {
        Properties properties = new Properties();
        job.get("settings").properties().forEach(s -> properties.put(s.getKey(), s.getValue().asText()));
        return properties;
    }

    static byte[][] column(JsonNode rows, int number) {
        byte[][] column = new byte[rows.size()][];
        for (int i = 0; i < column.length; i++) {
            column[i] = rows.get(i).get(number).asText().getBytes(StandardCharsets.UTF_8);
        }
        return column;
    }
}
