package main

import (
	"fmt"
	"regexp"

	"oplog.example/clients/internal/wire"
)

var eventID = regexp.MustCompile(`^(?:[0-9]{1,13}|[0-9a-f]{24})$`)

// Event is an operation (insert, update, delete), or reset or live, which have an ID and a Name only.
type Event struct {
	ID        string   `json:"id"` // the position after this event
	Name      string   `json:"event"`
	Type      string   `json:"type"`
	Object    string   `json:"object"`
	Parents   []string `json:"parents"`
	Timestamp string   `json:"timestamp"` // RFC 3339 in UTC with milliseconds
}

// IsOperation is false for reset and live.
func (e Event) IsOperation() bool { return e.Name != "reset" && e.Name != "live" }

// read makes an event of a block. One of an unknown name is none.
func read(b block, position string) (event Event, known bool, err error) {
	event = Event{ID: position, Name: b.event}
	switch b.event {
	case "reset", "live":
		return event, true, nil
	case "insert", "update", "delete":
		err = event.operation([]byte(b.data))
		if err != nil {
			err = fmt.Errorf("the operation %s cannot be read: %w", position, err)
		}
		return event, true, err
	}
	return event, false, nil
}

func (e *Event) operation(data []byte) error {
	fields, err := wire.Object(data)
	if err != nil {
		return err
	}
	if e.Type, err = wire.Text(fields, "type"); err != nil {
		return err
	}
	if e.Object, err = wire.Text(fields, "id"); err != nil {
		return err
	}
	if e.Parents, err = wire.Parents(fields); err != nil {
		return err
	}
	text, err := wire.Text(fields, "timestamp")
	if err != nil {
		return err
	}
	at, err := wire.Time(text)
	e.Timestamp = at.Format("2006-01-02T15:04:05.000Z")
	return err
}
