package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log"
	"net"
	"strconv"
)

const readBufferSize = 64 << 10

// answerReader returns a function that reads one whole answer. It fails if the answer is an error.
func answerReader(protocol string, connection net.Conn) func() error {
	reader := bufio.NewReaderSize(connection, readBufferSize)
	switch protocol {
	case "http":
		return func() error { return readHTTP(reader) }
	case "nats":
		return func() error { return readNATS(reader, connection) }
	}
	log.Fatalf("unknown protocol %q", protocol)
	return nil
}

func readHTTP(reader *bufio.Reader) error {
	status, err := reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 2")) {
		return fmt.Errorf("the server answered %q", status)
	}
	length := 0
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return fmt.Errorf("the length of the answer is unknown: %q", line)
		}
	}
	_, err = reader.Discard(length)
	return err
}

// readNATS reads until a message comes. Only answers are subscribed to.
func readNATS(reader *bufio.Reader, connection net.Conn) error {
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		words := bytes.Fields(line)
		if len(words) == 0 {
			return fmt.Errorf("the server sent an empty line")
		}
		switch string(words[0]) {
		case "MSG", "HMSG":
			length, err := strconv.Atoi(string(words[len(words)-1]))
			if err != nil {
				return err
			}
			return readMessage(reader, length)
		case "PING":
			if _, err := connection.Write([]byte("PONG\r\n")); err != nil {
				return err
			}
		case "INFO", "PONG":
		default:
			return fmt.Errorf("the server sent %q", line)
		}
	}
}

// readMessage reads the content of a message and its line break.
func readMessage(reader *bufio.Reader, length int) error {
	content, err := reader.Peek(length)
	if err != nil {
		return err
	}
	if bytes.Contains(content, []byte(`"error"`)) || bytes.HasPrefix(content, []byte("NATS/1.0 ")) {
		return fmt.Errorf("the server answered %q", content)
	}
	_, err = reader.Discard(length + len("\r\n"))
	return err
}
