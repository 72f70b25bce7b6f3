// Command producer sends the operations it reads from standard input, one JSON object a line, to an oplog agent. It
// needs nothing but the standard library.
//
//	producer -url udp://localhost:8042 < operations   # fire and forget
//	producer -url http://localhost:8042 < operations  # at least once, in batches
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	batchLines = 1000
	batchBytes = 1 << 20
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// Operation is what a producer sends.
type Operation struct {
	Event     string     `json:"event"`
	Type      string     `json:"type"`
	ID        string     `json:"id"`
	Parents   []string   `json:"parents,omitempty"`
	Timestamp *time.Time `json:"timestamp,omitempty"`
}

type sender interface {
	send(line []byte) error
	flush() error
}

// udp sends each operation as a datagram.
type udp struct {
	conn *net.UDPConn
	to   *net.UDPAddr
}

func newUDP(hostPort string) (*udp, error) {
	to, err := net.ResolveUDPAddr("udp", hostPort)
	if err != nil {
		return nil, err
	}
	// Not connected: a connected socket spends a send on reporting that the one before found no agent.
	conn, err := net.ListenUDP("udp", nil)
	return &udp{conn, to}, err
}

func (u *udp) send(line []byte) error {
	_, err := u.conn.WriteToUDP(line, u.to)
	return err
}

func (u *udp) flush() error { return u.conn.Close() }

// batches sends operations over HTTP, the same batch again until the agent has it.
type batches struct {
	url, password string
	client        http.Client
	lines         int
	body          bytes.Buffer
}

func (b *batches) send(line []byte) error {
	b.body.Write(line)
	b.body.WriteByte('\n')
	b.lines++
	if b.lines < batchLines && b.body.Len() < batchBytes {
		return nil
	}
	return b.flush()
}

func (b *batches) flush() error {
	for pause := firstPause; b.lines > 0; pause = min(2*pause, lastPause) {
		again, err := b.post()
		if err == nil {
			b.body.Reset()
			b.lines = 0
			break
		}
		if again < 0 {
			return err
		}
		wait := max(pause, again) + time.Duration(rand.Int63n(int64(pause)))
		log.Printf("%v; trying again in %.1f s", err, wait.Seconds())
		time.Sleep(wait)
	}
	return nil
}

// post tells what went wrong and when to try again at the earliest; negative: never.
func (b *batches) post() (time.Duration, error) {
	request, err := http.NewRequest(http.MethodPost, b.url, bytes.NewReader(b.body.Bytes()))
	if err != nil {
		return -1, err
	}
	request.Header.Set("Content-Type", "application/x-ndjson")
	if b.password != "" {
		request.SetBasicAuth("", b.password)
	}
	response, err := b.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	detail, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
	if response.StatusCode == http.StatusOK {
		return 0, nil
	}
	err = fmt.Errorf("%s %s", response.Status, detail)
	switch status := response.StatusCode; {
	case status >= 500, status == 408, status == 425, status == 429:
	default:
		return -1, err
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, err
}

func newSender(address string) (sender, error) {
	where, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	switch where.Scheme {
	case "udp":
		return newUDP(where.Host)
	case "http", "https":
		to := strings.TrimSuffix(address, "/") + "/ops"
		return &batches{url: to, password: os.Getenv("OPLOG_PASSWORD"), client: http.Client{Timeout: 30 * time.Second}}, nil
	}
	return nil, errors.New(address + " is neither udp://host:port nor http://host:port")
}

func run(address string, input io.Reader) error {
	to, err := newSender(address)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(input)
	for lines.Scan() {
		var operation Operation
		if err := json.Unmarshal(lines.Bytes(), &operation); err != nil {
			return err
		}
		line, err := json.Marshal(operation)
		if err != nil {
			return err
		}
		if err := to.send(line); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), to.flush())
}

func main() {
	address := flag.String("url", "udp://localhost:8042", "the agent: udp://host:port or http://host:port")
	flag.Parse()
	if err := run(*address, os.Stdin); err != nil {
		log.Fatal(err)
	}
}
