import java.io.*;
import java.nio.ByteBuffer;
import org.apache.kafka.common.protocol.*;

/** Reads and writes messages: class, version and bytes in; bytes, or an exception after the length -1, out. */
public class MessageJudge {
    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        for (int count = in.readInt(); count > 0; count--) {
            Message message = (Message) Class.forName(in.readUTF()).getDeclaredConstructor().newInstance();
            short version = in.readShort();
            ByteBuffer data = ByteBuffer.wrap(in.readNBytes(in.readInt()));
            try {
                message.read(new ByteBufferAccessor(data), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(written), cache, version);
                if (data.hasRemaining())
                    throw new IllegalArgumentException(data.remaining() + " bytes are left over");
                out.writeInt(written.capacity());
                out.write(written.array());
            } catch (RuntimeException error) {
                out.writeInt(-1);
                out.writeUTF(error.toString());
            }
        }
        for (Errors error : Errors.values()) {
            out.writeUTF(error.name());
            out.writeShort(error.code());
        }
        out.flush();
    }
}
