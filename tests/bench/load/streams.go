package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"
)

// streamPlan is the input of the program for event streams. Each connection sends the request and reads until it has got so many events.
type streamPlan struct {
	Address     string
	Request     []byte
	Connections int
	Events      int
	Seconds     float64
}

// streamReport holds the events of all connections, and the time from the first one to the last.
type streamReport struct {
	Events  int     `json:"events"`
	Seconds float64 `json:"seconds"`
}

// readStreams opens the streams of a plan, prints a line when all are open, and reads them to their ends.
func readStreams() {
	var input streamPlan
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		log.Fatal(err)
	}
	connections := make([]net.Conn, input.Connections)
	for number := range connections {
		connection, err := net.Dial("tcp", input.Address)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := connection.Write(input.Request); err != nil {
			log.Fatal(err)
		}
		connections[number] = connection
	}
	for _, connection := range connections {
		if err := skipHead(connection); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("open")
	ends := time.Now().Add(time.Duration(input.Seconds * float64(time.Second)))
	counts := make([]int, len(connections))
	begins, lasts := make([]time.Time, len(connections)), make([]time.Time, len(connections))
	var running sync.WaitGroup
	for number, connection := range connections {
		running.Add(1)
		go func() {
			defer running.Done()
			counts[number], begins[number], lasts[number] = countEvents(connection, input.Events, ends)
		}()
	}
	running.Wait()
	sum, begin, last := 0, time.Now(), time.Time{}
	for number, count := range counts {
		sum += count
		if count > 0 && begins[number].Before(begin) {
			begin = begins[number]
		}
		if lasts[number].After(last) {
			last = lasts[number]
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(streamReport{sum, last.Sub(begin).Seconds()}); err != nil {
		log.Fatal(err)
	}
}

// skipHead reads the head of an answer byte by byte, so that it takes nothing of the stream.
func skipHead(connection net.Conn) error {
	head, one := []byte{}, make([]byte, 1)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if _, err := connection.Read(one); err != nil {
			return err
		}
		head = append(head, one[0])
	}
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("no stream: %s", head)
	}
	return nil
}

// countEvents counts the ends of events. The lines of chunks between them hold none. It returns the times of the first and the last read.
func countEvents(connection net.Conn, events int, ends time.Time) (count int, begin, last time.Time) {
	buffer := make([]byte, 1<<17)
	kept := 0
	_ = connection.SetReadDeadline(ends)
	for count < events {
		read, err := connection.Read(buffer[kept:])
		if err != nil {
			return count, begin, last
		}
		last = time.Now()
		if begin.IsZero() {
			begin = last
		}
		got := buffer[:kept+read]
		count += bytes.Count(got, []byte("\n\n"))
		kept = 0
		if got[len(got)-1] == '\n' && !bytes.HasSuffix(got, []byte("\n\n")) {
			buffer[0], kept = '\n', 1
		}
	}
	return count, begin, last
}
