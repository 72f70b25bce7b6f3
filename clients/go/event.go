package oplog

import (
	"fmt"
	"regexp"
	"time"

	"oplog.example/oplog/internal/wire"
)

// Names of events. Insert, Update and Delete are operations.
const (
	Insert = "insert"
	Update = "update"
	Delete = "delete"
	Reset  = "reset" // a copy of all objects follows, as inserts, until Live: forget the objects known before
	Live   = "live"  // the copy, or the changes since the position, are complete; operations follow
)

var eventID = regexp.MustCompile(`^(?:[0-9]{1,13}|[0-9a-f]{24})$`)

// Event is an operation, Reset or Live. Reset and Live have only a Position and a Name.
type Event struct {
	Position  string // a consumer that starts here gets the events after this one
	Name      string // Insert, Update, Delete, Reset or Live
	Type      string
	ID        string
	Parents   []string // never nil in an operation
	Timestamp time.Time
	Ref       string // URL of the object, if the agent sends one
}

// IsOperation reports whether the event is an insert, update or delete.
func (e Event) IsOperation() bool { return e.Name != Reset && e.Name != Live }

// Key returns the key of the object, "type/id".
func (e Event) Key() string { return e.Type + "/" + e.ID }

// parseEvent reads an event from a block. known is false for an event of an unknown name.
func parseEvent(b block, position string) (event Event, known bool, err error) {
	event = Event{Position: position, Name: b.event}
	switch b.event {
	case Reset, Live:
		return event, true, nil
	case Insert, Update, Delete:
		if err = event.readData([]byte(b.data)); err != nil {
			err = fmt.Errorf("the operation %s cannot be read: %w", position, err)
		}
		return event, true, err
	}
	return event, false, nil
}

func (e *Event) readData(data []byte) error {
	fields, err := wire.Object(data)
	if err != nil {
		return err
	}
	if e.Type, err = wire.Text(fields, "type"); err != nil {
		return err
	}
	if e.ID, err = wire.Text(fields, "id"); err != nil {
		return err
	}
	if e.Parents, err = wire.Parents(fields); err != nil {
		return err
	}
	e.Ref, _ = wire.Text(fields, "ref") // optional
	timestamp, err := wire.Text(fields, "timestamp")
	if err != nil {
		return err
	}
	e.Timestamp, err = wire.Time(timestamp)
	return err
}
