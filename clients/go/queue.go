package oplog

import "sync"

// queued is an operation as it is sent.
type queued struct {
	label  string
	raw    []byte
	number int // 1 for the first operation of a queue
}

// queue holds the operations that are not settled, in their order. It is safe for use by several goroutines.
type queue struct {
	mutex      sync.Mutex
	operations []queued
	bytes      int
	last       int // number of the last operation added
}

// add appends an operation. It reports whether a batch is full.
func (q *queue) add(op queued) (isFull bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.last++
	op.number = q.last
	q.operations = append(q.operations, op)
	q.bytes += len(op.raw) + 1
	return len(q.operations) >= batchOperations || q.bytes >= batchBytes
}

func (q *queue) length() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.operations)
}

// end returns the number of the last operation added.
func (q *queue) end() int {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return q.last
}

// isSettled reports whether no operation up to this number is left.
func (q *queue) isSettled(number int) bool {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	return len(q.operations) == 0 || q.operations[0].number > number
}

// first returns up to count operations. They stay in the queue.
func (q *queue) first(count int) []queued {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	count = min(count, len(q.operations))
	return q.operations[:count:count]
}

// remove removes the first operations, those of a batch, except for the ones that keep names by their places.
func (q *queue) remove(batch []queued, keep func(place int) bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	kept := make([]queued, 0, len(q.operations))
	for place, op := range q.operations {
		if place >= len(batch) || keep(place) {
			kept = append(kept, op)
		} else {
			q.bytes -= len(op.raw) + 1
		}
	}
	q.operations = kept
}
