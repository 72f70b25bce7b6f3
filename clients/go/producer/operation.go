package main

import (
	"errors"
	"fmt"
	"strings"

	"oplog.example/clients/internal/wire"
)

const (
	maxOperation = 64 << 10
	maxDatagram  = 65_507 // over IPv4
)

// operation is a line of the input. Its bytes are sent as they are.
type operation struct {
	line int // number in the input, from 1
	raw  []byte
}

// check returns an error for an operation that the agent would refuse.
func check(raw []byte) error {
	if len(raw) > maxOperation {
		return fmt.Errorf("it has more than %d bytes", maxOperation)
	}
	fields, err := wire.Object(raw)
	if err != nil {
		return err
	}
	event, err := wire.Text(fields, "event")
	if err != nil {
		return err
	}
	switch strings.ToLower(event) {
	case "insert", "update", "delete":
	default:
		return errors.New("event must be insert, update or delete")
	}
	kind, err := wire.Text(fields, "type")
	switch {
	case err != nil:
		return err
	case kind == "" || len(strings.ToLower(kind)) > 255 || strings.ContainsAny(kind, "/,"):
		return errors.New("type must have 1 to 255 bytes, and neither '/' nor ','")
	}
	id, err := wire.Text(fields, "id")
	switch {
	case err != nil:
		return err
	case id == "" || len(id) > 1024:
		return errors.New("id must have 1 to 1024 bytes")
	}
	parents, err := wire.Parents(fields)
	if err != nil {
		return err
	}
	for _, parent := range parents {
		if parent == "" {
			return errors.New("parents must not hold an empty string")
		}
	}
	if given := fields["timestamp"]; given == nil || string(given) == "null" {
		return nil
	}
	timestamp, err := wire.Text(fields, "timestamp")
	if err == nil {
		_, err = wire.Time(timestamp)
	}
	return err
}
