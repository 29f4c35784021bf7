package bus

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Metadata that a Subscriber adds to the headers of a message it delivers. They describe the delivery and are not sent
// on when the message is published again.
const (
	metaPrefix = "cairn.delivery."

	MetaStream = metaPrefix + "stream"
	// MetaSubject is the exact subject.
	MetaSubject = metaPrefix + "subject"
	// MetaDeliveries counts from 1.
	MetaDeliveries = metaPrefix + "count"
	// MetaSequence is the message's sequence in the stream.
	MetaSequence = metaPrefix + "sequence"
)

func isDeliveryMeta(key string) bool {
	return len(key) > len(metaPrefix) && key[:len(metaPrefix)] == metaPrefix
}

// Subject of a delivered message.
func Subject(m *message.Message) string { return m.Metadata.Get(MetaSubject) }

// Deliveries of a delivered message, this one included; 0 where the message did not come from a Subscriber.
func Deliveries(m *message.Message) int {
	n, _ := strconv.Atoi(m.Metadata.Get(MetaDeliveries))
	return n
}

// Sequence of a delivered message in its stream; 0 where the message did not come from a Subscriber.
func Sequence(m *message.Message) uint64 {
	n, _ := strconv.ParseUint(m.Metadata.Get(MetaSequence), 10, 64)
	return n
}
