package oplog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"oplog.example/oplog/internal/wire"
)

const maxOperationBytes = 64 << 10

// Operation tells that an object was inserted, updated or deleted.
type Operation struct {
	Event     string    // Insert, Update or Delete
	Type      string    // 1 to 255 bytes without '/' and ','; the agent stores it in lower case
	ID        string    // 1 to 1,024 bytes
	Parents   []string  // keys of related objects, such as "user/x3kd2"; none may be empty
	Timestamp time.Time // time of the change; zero: when the agent receives the operation
}

// JSON returns the operation as one line of JSON. It returns an error for an operation that an agent refuses.
func (o Operation) JSON() ([]byte, error) {
	fields := struct {
		Event     string     `json:"event"`
		Type      string     `json:"type"`
		ID        string     `json:"id"`
		Parents   []string   `json:"parents,omitempty"`
		Timestamp *time.Time `json:"timestamp,omitempty"`
	}{Event: o.Event, Type: o.Type, ID: o.ID, Parents: o.Parents}
	if !o.Timestamp.IsZero() {
		utc := o.Timestamp.UTC()
		fields.Timestamp = &utc
	}
	for _, given := range append([]string{o.Type, o.ID}, o.Parents...) { // encoding/json would replace invalid bytes
		if strings.ToValidUTF8(given, "") != given {
			return nil, errors.New("it is not UTF-8")
		}
	}
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(fields); err != nil {
		return nil, err
	}
	raw := bytes.TrimSuffix(line.Bytes(), []byte("\n"))
	return raw, checkOperation(raw)
}

// checkOperation returns an error for an operation that an agent refuses.
func checkOperation(raw []byte) error {
	if len(raw) > maxOperationBytes {
		return fmt.Errorf("it has more than %d bytes", maxOperationBytes)
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
	case Insert, Update, Delete:
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
