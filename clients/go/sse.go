package oplog

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"
)

// An operation has at most 64 KiB when it is sent. Escaping and "ref" make it a few times larger, but not this large.
const maxBlockBytes = 1 << 20

// block holds the fields of one event of the stream. A blank line ends it.
type block struct {
	id, event, data string
	hasID, hasData  bool
}

// parser splits a stream of server-sent events into blocks, as the WHATWG HTML standard defines. Lines end in \n, \r\n or \r.
type parser struct {
	line    []byte // its start; the end has not come yet
	afterCR bool   // a \n now belongs to the previous line
	begun   bool   // a byte order mark is only removed before this
	size    int    // bytes of the block so far
	block   block
}

// feed calls deliver for each block as soon as its blank line has come. It stops at the first error.
func (p *parser) feed(chunk []byte, deliver func(block) error) error {
	for len(chunk) > 0 {
		if p.afterCR && chunk[0] == '\n' {
			chunk = chunk[1:]
		}
		p.afterCR = false
		end := bytes.IndexAny(chunk, "\r\n")
		whole := end >= 0
		if !whole {
			end = len(chunk)
		}
		p.line = append(p.line, chunk[:end]...)
		if p.size+len(p.line) > maxBlockBytes {
			return errors.New("a block of the stream has more than 1 MB")
		}
		if !whole {
			return nil
		}
		p.afterCR = chunk[end] == '\r'
		chunk = chunk[end+1:]
		if err := p.endLine(deliver); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) endLine(deliver func(block) error) error {
	line := p.line
	p.line = p.line[:0]
	if !p.begun {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
		p.begun = true
	}
	if len(line) == 0 {
		done := p.block
		p.block, p.size = block{}, 0
		return deliver(done)
	}
	if line[0] == ':' {
		return nil
	}
	if !utf8.Valid(line) {
		return errors.New("a line of the stream is not UTF-8")
	}
	p.size += len(line)
	name, value, _ := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "id":
		p.block.id, p.block.hasID = value, true
	case "event":
		p.block.event = value
	case "data":
		if p.block.hasData {
			value = p.block.data + "\n" + value
		}
		p.block.data, p.block.hasData = value, true
	}
	return nil
}
