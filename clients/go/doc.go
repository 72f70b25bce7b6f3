// Package oplog follows an oplog agent and sends operations to it. It needs only the standard library.
//
// A [Consumer] receives each operation that an agent stores, in the order of its log. It reconnects by itself and
// resumes where it was. With a state file it also resumes after a restart:
//
//	consumer, err := oplog.NewConsumer("http://localhost:8042", oplog.ConsumerOptions{StateFile: "videos.state"})
//	if err != nil {
//		return err
//	}
//	defer consumer.Close()
//	err = consumer.Follow(ctx, func(event oplog.Event) error { return index(event) })
//
// A [Producer] sends operations: over HTTP at least once and in batches, over UDP without any confirmation.
package oplog
