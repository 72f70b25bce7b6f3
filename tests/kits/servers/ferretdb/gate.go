package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
)

const (
	headerSize = 16
	opMsg      = 2013
	moreToCome = 1 << 1
	mostBytes  = 48_000_000
)

// gate passes messages between clients and the server. For each database, one write command of all connections is with the
// server at a time; it is there until its answer has come. Everything else (reads, cursors that wait, monitors) passes at
// once, and so do write commands for other databases.
type gate struct {
	server   string
	together bool
	writing  sync.Map // name of a database -> *sync.Mutex
}

func (g *gate) serve(listener net.Listener) error {
	for {
		client, err := listener.Accept()
		if err != nil {
			return err
		}
		go g.pass(client)
	}
}

// pass serves one client. A client that goes while its write command is with the server leaves the gate shut until the answer.
func (g *gate) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", g.server)
	if err != nil {
		return
	}
	defer server.Close()
	answered := make(chan struct{}, 1)
	var pending struct {
		sync.Mutex
		id    uint32
		waits bool
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer client.Close()
		for {
			answer, err := message(server)
			if err != nil {
				return
			}
			pending.Lock()
			if pending.waits && binary.LittleEndian.Uint32(answer[8:]) == pending.id {
				pending.waits = false
				answered <- struct{}{}
			}
			pending.Unlock()
			_, _ = client.Write(answer) // a client that has gone is noticed when it is read from
		}
	}()
	for {
		request, err := message(client)
		if err != nil {
			return
		}
		if g.together || !isWrite(request) {
			if _, err := server.Write(request); err != nil {
				return
			}
			continue
		}
		writing := g.lockOf(request)
		writing.Lock()
		pending.Lock()
		pending.id, pending.waits = binary.LittleEndian.Uint32(request[4:]), true
		pending.Unlock()
		if _, err := server.Write(request); err == nil {
			select {
			case <-answered:
			case <-ended:
			}
		}
		writing.Unlock()
	}
}

// lockOf returns the lock of the database that a request names. No test stores a member $db, so the first one is the command's.
func (g *gate) lockOf(request []byte) *sync.Mutex {
	const lengthSize = 4
	member := []byte("\x02$db\x00")
	name := ""
	if at := bytes.Index(request, member); at >= 0 {
		start := at + len(member) + lengthSize
		if end := bytes.IndexByte(request[start:], 0); end >= 0 {
			name = string(request[start : start+end])
		}
	}
	lock, _ := g.writing.LoadOrStore(name, new(sync.Mutex))
	return lock.(*sync.Mutex)
}

// message reads one whole message of the wire protocol.
func message(from io.Reader) ([]byte, error) {
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(header)
	if size < headerSize || size > mostBytes+headerSize {
		return nil, io.ErrUnexpectedEOF
	}
	whole := make([]byte, size)
	copy(whole, header)
	_, err := io.ReadFull(from, whole[headerSize:])
	return whole, err
}

// isWrite tells whether a request changes documents and is answered. The command's name is the first key of its document.
func isWrite(request []byte) bool {
	const name = headerSize + 4 + 1 + 4 + 1 // past the flags, the kind of section, the document's size, the first key's type
	if len(request) < name || binary.LittleEndian.Uint32(request[12:]) != opMsg || request[headerSize+4] != 0 {
		return false
	}
	if binary.LittleEndian.Uint32(request[headerSize:])&moreToCome != 0 {
		return false
	}
	end := bytes.IndexByte(request[name:], 0)
	if end < 0 {
		return false
	}
	switch string(request[name : name+end]) {
	case "insert", "update", "delete", "findAndModify", "findandmodify":
		return true
	}
	return false
}
