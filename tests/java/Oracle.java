import java.io.BufferedInputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.tools.DumpLogSegments;

/**
 * Kafka's own record classes behind a pipe: requests on stdin, answers on stdout, each an int32 length and a
 * body. A request's body starts with its operation, an answer's with 0, or with 1 and the exception's class
 * and message. Ends when stdin does. The other side is tests/oracle/java.py.
 */
public class Oracle {
    static final int NO_LEVEL = Integer.MIN_VALUE;

    public static void main(String[] args) throws IOException {
        DataOutputStream out = new DataOutputStream(new FileOutputStream(FileDescriptor.out));
        System.setOut(System.err); // a logger's line must not land between two answers
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        while (true) {
            byte[] request;
            try {
                request = new byte[in.readInt()];
            } catch (EOFException end) {
                return;
            }
            in.readFully(request);
            byte[] answer = answer(new DataInputStream(new ByteArrayInputStream(request)));
            out.writeInt(answer.length);
            out.write(answer);
            out.flush();
        }
    }

    static byte[] answer(DataInputStream in) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try {
            DataOutputStream out = new DataOutputStream(bytes);
            out.writeByte(0);
            run(in.readByte(), in, out);
        } catch (Exception | StackOverflowError | OutOfMemoryError error) {
            bytes.reset();
            Wire.writeError(new DataOutputStream(bytes), error);
        }
        return bytes.toByteArray();
    }

    static void run(byte operation, DataInputStream in, DataOutputStream out) throws IOException {
        switch (operation) {
            case 1 -> Codec.build(in, out);
            case 2 -> Codec.read(in, out);
            case 3 -> Codec.buildEmpty(in, out);
            case 4 -> Keys.murmur2(in, out);
            case 5 -> Keys.partitions(in, out);
            case 6 -> Bench.write(in, out);
            case 7 -> Bench.read(in, out);
            case 8 -> dump(in, out);
            default -> throw new IllegalArgumentException("operation " + operation);
        }
    }

    /** What the tool finds wrong it says on stderr, without an exit status: both streams are its answer. */
    static void dump(DataInputStream in, DataOutputStream out) throws IOException {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        PrintStream stderr = System.err;
        PrintStream both = new PrintStream(text, true, StandardCharsets.UTF_8);
        System.setOut(both);
        System.setErr(both);
        try {
            String[] arguments = {"--deep-iteration", "--print-data-log", "--files", Wire.string(in)};
            DumpLogSegments.main(arguments);
        } finally {
            System.setOut(stderr); // as in main
            System.setErr(stderr);
        }
        Wire.writeBytes(out, text.toByteArray());
    }
}

/** Byte strings and text carry an int32 length; -1 is null. */
class Wire {
    static byte[] bytes(DataInputStream in) throws IOException {
        int length = in.readInt();
        if (length < 0)
            return null;
        byte[] bytes = new byte[length];
        in.readFully(bytes);
        return bytes;
    }

    static String string(DataInputStream in) throws IOException {
        return new String(bytes(in), StandardCharsets.UTF_8);
    }

    static void writeBytes(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes == null ? -1 : bytes.length);
        if (bytes != null)
            out.write(bytes);
    }

    static void writeBytes(DataOutputStream out, ByteBuffer buffer) throws IOException {
        writeBytes(out, Utils.toNullableArray(buffer));
    }

    static void writeString(DataOutputStream out, String text) throws IOException {
        writeBytes(out, text.getBytes(StandardCharsets.UTF_8));
    }

    static void writeError(DataOutputStream out, Throwable error) throws IOException {
        out.writeByte(1);
        writeString(out, error.getClass().getName());
        writeString(out, String.valueOf(error.getMessage()));
    }

    static Compression compression(DataInputStream in) throws IOException {
        CompressionType type = CompressionType.forId(in.readByte());
        int level = in.readInt();
        if (level == Oracle.NO_LEVEL)
            return Compression.of(type).build();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(type + " has no levels");
        };
    }

    static TimestampType timestampType(DataInputStream in) throws IOException {
        return in.readBoolean() ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
    }
}

/** A record to append. */
class Row {
    final long offset;
    final long timestamp;
    final byte[] key;
    final byte[] value;
    final Header[] headers;

    Row(DataInputStream in) throws IOException {
        offset = in.readLong();
        timestamp = in.readLong();
        key = Wire.bytes(in);
        value = Wire.bytes(in);
        headers = new Header[in.readInt()];
        for (int i = 0; i < headers.length; i++)
            headers[i] = new RecordHeader(Wire.string(in), Wire.bytes(in));
    }

    static List<Row> list(DataInputStream in) throws IOException {
        int count = in.readInt();
        List<Row> rows = new ArrayList<>(count);
        for (int i = 0; i < count; i++)
            rows.add(new Row(in));
        return rows;
    }

    static int upperBound(List<Row> rows) {
        int size = DefaultRecordBatch.RECORD_BATCH_OVERHEAD;
        for (Row row : rows) {
            size += 64 + length(row.key) + length(row.value);
            for (Header header : row.headers)
                size += 10 + Utils.utf8Length(header.key()) + length(header.value());
        }
        return size;
    }

    static int length(byte[] content) {
        return content == null ? 0 : content.length;
    }

    SimpleRecord simple() {
        return new SimpleRecord(timestamp, key, value, headers);
    }
}

/** MemoryRecords and its builder, field by field. */
class Codec {
    // DefaultRecordBatch keeps its attributes to itself: they stand at this place of a batch.
    static final int ATTRIBUTES_OFFSET = 21;

    static void build(DataInputStream in, DataOutputStream out) throws IOException {
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            DataInputStream parameters = new DataInputStream(new ByteArrayInputStream(Wire.bytes(in)));
            Wire.writeBytes(out, builder(parameters).build().buffer());
        }
    }

    static MemoryRecordsBuilder builder(DataInputStream in) throws IOException {
        Compression compression = Wire.compression(in);
        long baseOffset = in.readLong();
        TimestampType timestampType = Wire.timestampType(in);
        long logAppendTime = in.readLong();
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        int baseSequence = in.readInt();
        boolean transactional = in.readBoolean();
        boolean control = in.readBoolean();
        int leaderEpoch = in.readInt();
        long deleteHorizon = in.readLong();
        long lastOffset = in.readLong();
        List<Row> rows = Row.list(in);
        int size = Row.upperBound(rows);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(size),
            RecordBatch.MAGIC_VALUE_V2, compression, timestampType, baseOffset, logAppendTime, producerId,
            producerEpoch, baseSequence, transactional, control, leaderEpoch, size, deleteHorizon);
        for (Row row : rows) {
            if (control)
                builder.appendControlRecordWithOffset(row.offset, row.simple());
            else
                builder.appendWithOffset(row.offset, row.simple());
        }
        if (lastOffset >= 0)
            builder.overrideLastOffset(lastOffset);
        return builder;
    }

    /** What compaction leaves of a batch without surviving records. */
    static void buildEmpty(DataInputStream in, DataOutputStream out) throws IOException {
        long producerId = in.readLong();
        short producerEpoch = in.readShort();
        int baseSequence = in.readInt();
        long baseOffset = in.readLong();
        long lastOffset = in.readLong();
        int leaderEpoch = in.readInt();
        TimestampType timestampType = Wire.timestampType(in);
        long timestamp = in.readLong();
        boolean transactional = in.readBoolean();
        boolean control = in.readBoolean();
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.MAGIC_VALUE_V2, producerId, producerEpoch,
            baseSequence, baseOffset, lastOffset, leaderEpoch, timestampType, timestamp, transactional,
            control);
        buffer.flip();
        Wire.writeBytes(out, buffer);
    }

    /** Each batch as 1 and its content; then 0, or 2 and the error that ended it; then the bytes used. */
    static void read(DataInputStream in, DataOutputStream out) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Wire.bytes(in)));
        int used = 0;
        Exception failure = null;
        try {
            for (MutableRecordBatch batch : records.batches()) {
                ByteArrayOutputStream content = new ByteArrayOutputStream();
                describe(batch, new DataOutputStream(content));
                used += batch.sizeInBytes();
                out.writeByte(1);
                out.write(content.toByteArray());
            }
        } catch (RuntimeException error) {
            failure = error;
        }
        out.writeByte(failure == null ? 0 : 2);
        if (failure != null)
            Wire.writeError(out, failure);
        out.writeInt(used);
    }

    static void describe(MutableRecordBatch batch, DataOutputStream out) throws IOException {
        batch.ensureValid();
        ByteBuffer raw = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(raw);
        out.writeByte(batch.magic());
        out.writeShort(raw.getShort(ATTRIBUTES_OFFSET));
        out.writeLong(batch.baseOffset());
        out.writeLong(batch.lastOffset());
        out.writeInt(batch.partitionLeaderEpoch());
        out.writeLong(batch.checksum());
        Wire.writeString(out, batch.compressionType().name);
        out.writeBoolean(batch.timestampType() == TimestampType.LOG_APPEND_TIME);
        out.writeBoolean(batch.isTransactional());
        out.writeBoolean(batch.isControlBatch());
        out.writeLong(((DefaultRecordBatch) batch).baseTimestamp());
        out.writeLong(batch.maxTimestamp());
        out.writeBoolean(batch.deleteHorizonMs().isPresent());
        out.writeLong(batch.deleteHorizonMs().orElse(RecordBatch.NO_TIMESTAMP));
        out.writeLong(batch.producerId());
        out.writeShort(batch.producerEpoch());
        out.writeInt(batch.baseSequence());
        out.writeInt(batch.lastSequence());
        out.writeInt(batch.countOrNull());
        for (Record record : batch)
            describe(record, out);
    }

    static void describe(Record record, DataOutputStream out) throws IOException {
        out.writeLong(record.offset());
        out.writeLong(record.timestamp());
        Wire.writeBytes(out, record.key());
        Wire.writeBytes(out, record.value());
        Header[] headers = record.headers();
        out.writeInt(headers.length);
        for (Header header : headers) {
            Wire.writeString(out, header.key());
            Wire.writeBytes(out, header.value());
        }
    }
}

/** How Java places a key. */
class Keys {
    static void murmur2(DataInputStream in, DataOutputStream out) throws IOException {
        int count = in.readInt();
        for (int i = 0; i < count; i++)
            out.writeInt(Utils.murmur2(Wire.bytes(in)));
    }

    static void partitions(DataInputStream in, DataOutputStream out) throws IOException {
        int partitions = in.readInt();
        int count = in.readInt();
        for (int i = 0; i < count; i++)
            out.writeInt(BuiltInPartitioner.partitionForKey(Wire.bytes(in), partitions));
    }
}

/**
 * Times one batch's way through Java's client, warm. A round repeats the batch as often as took MIN_ROUND_NS at
 * the end of the warm-up, so that neither the clock nor a single collection shows. All memory that a producer or
 * consumer would reuse is reused; everything else is the client's own doing.
 */
class Bench {
    static final long MIN_ROUND_NS = 50_000_000L;
    static volatile long sink; // what keeps the compiler from dropping the work

    interface Work {
        long run();
    }

    static void write(DataInputStream in, DataOutputStream out) throws IOException {
        Compression compression = Wire.compression(in);
        double warmUpSeconds = in.readDouble();
        int rounds = in.readInt();
        List<Row> rows = Row.list(in);
        ByteBuffer buffer = ByteBuffer.allocate(Row.upperBound(rows));
        Work batch = () -> encode(buffer, compression, rows).limit();
        times(batch, rows.size(), warmUpSeconds, rounds, out);
        out.writeInt(encode(buffer, compression, rows).remaining());
    }

    /** As ProducerBatch does it: a builder over a pooled buffer, byte arrays appended, closed. */
    static ByteBuffer encode(ByteBuffer buffer, Compression compression, List<Row> rows) {
        buffer.clear();
        MemoryRecordsBuilder builder =
            MemoryRecords.builder(buffer, compression, TimestampType.CREATE_TIME, 0L);
        for (int i = 0; i < rows.size(); i++) {
            Row row = rows.get(i);
            builder.append(row.timestamp, row.key, row.value, row.headers);
        }
        return builder.build().buffer();
    }

    static void read(DataInputStream in, DataOutputStream out) throws IOException {
        byte[] bytes = Wire.bytes(in);
        boolean checkCrc = in.readBoolean();
        double warmUpSeconds = in.readDouble();
        int rounds = in.readInt();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        int count = MemoryRecords.readableRecords(buffer).batches().iterator().next().countOrNull();
        try (BufferSupplier supplier = BufferSupplier.create()) {
            times(() -> decode(buffer, supplier, checkCrc), count, warmUpSeconds, rounds, out);
        }
        out.writeInt(bytes.length);
    }

    /** As CompletedFetch does it: the streaming iterator over a supplier that is kept; no deserializer. */
    static long decode(ByteBuffer buffer, BufferSupplier supplier, boolean checkCrc) {
        long touched = 0;
        for (RecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
            if (checkCrc)
                batch.ensureValid();
            try (CloseableIterator<Record> records = batch.streamingIterator(supplier)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    touched += touch(record.key()) + touch(record.value());
                }
            }
        }
        return touched;
    }

    static long touch(ByteBuffer content) {
        if (content == null || !content.hasRemaining())
            return 0;
        return content.remaining() + content.get(content.position());
    }

    static void times(Work work, int records, double warmUpSeconds, int rounds, DataOutputStream out)
            throws IOException {
        long start = System.nanoTime();
        int repeats = 1;
        boolean longEnough;
        do {
            longEnough = time(work, repeats) >= MIN_ROUND_NS;
            if (!longEnough)
                repeats *= 2;
        } while (!longEnough || System.nanoTime() - start < warmUpSeconds * 1e9);
        out.writeInt(rounds);
        for (int round = 0; round < rounds; round++)
            out.writeDouble((double) time(work, repeats) / repeats / records);
    }

    static long time(Work work, int repeats) {
        long consumed = 0;
        long start = System.nanoTime();
        for (int i = 0; i < repeats; i++)
            consumed += work.run();
        long elapsed = System.nanoTime() - start;
        sink = consumed;
        return elapsed;
    }
}
