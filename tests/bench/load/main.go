// Load for benchmarks over connections that stay open. Each sends its next request when the last one is answered.
//
// The program reads a plan as JSON from its input. It prints one line of JSON when the time is over. With the argument "streams" it reads event
// streams instead.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"
)

// lateAnswer is the time that an answer may take before the program fails.
const lateAnswer = 30 * time.Second

// latencyUnit is the resolution of the counted latencies.
const latencyUnit = 10 * time.Microsecond

// plan is the input of the program. Each connection sends its own opening once, then its request again and again. Answers is the number of
// answers to a request.
type plan struct {
	Address       string
	Protocol      string
	Answers       int
	WarmUpSeconds float64
	Seconds       float64
	Connections   []struct{ Opening, Request []byte }
}

// report holds the latencies by milliseconds, and how long the calls took together. Both leave the warm-up out, unlike Requests.
type report struct {
	Requests  int            `json:"requests"`
	Seconds   float64        `json:"seconds"`
	Latencies map[string]int `json:"latencies"`
}

// caller is one connection with its own counts.
type caller struct {
	connection net.Conn
	request    []byte
	answers    int
	readAnswer func() error
	requests   int
	latencies  map[int64]int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "streams" {
		readStreams()
		return
	}
	var input plan
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		log.Fatal(err)
	}
	callers := make([]*caller, len(input.Connections))
	for number, each := range input.Connections {
		connection, err := net.Dial("tcp", input.Address)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := connection.Write(each.Opening); err != nil {
			log.Fatal(err)
		}
		callers[number] = &caller{
			connection: connection,
			request:    each.Request,
			answers:    input.Answers,
			readAnswer: answerReader(input.Protocol, connection),
			latencies:  map[int64]int{},
		}
	}
	run(callers, input.WarmUpSeconds)
	for _, each := range callers {
		clear(each.latencies)
	}
	took := run(callers, input.Seconds)
	if err := json.NewEncoder(os.Stdout).Encode(total(callers, took)); err != nil {
		log.Fatal(err)
	}
}

// run lets all connections call. It returns the time until the last answer, so no request is in flight at either end.
func run(callers []*caller, seconds float64) time.Duration {
	began := time.Now()
	ends := began.Add(time.Duration(seconds * float64(time.Second)))
	var running sync.WaitGroup
	for _, each := range callers {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := each.call(ends); err != nil {
				log.Fatal(err)
			}
		}()
	}
	running.Wait()
	return time.Since(began)
}

// call sends the request again and again until the time is over.
func (c *caller) call(ends time.Time) error {
	if err := c.connection.SetDeadline(ends.Add(lateAnswer)); err != nil {
		return err
	}
	for began := time.Now(); began.Before(ends); {
		if _, err := c.connection.Write(c.request); err != nil {
			return err
		}
		for range c.answers {
			if err := c.readAnswer(); err != nil {
				return err
			}
		}
		now := time.Now()
		c.requests++
		c.latencies[int64(now.Sub(began)/latencyUnit)]++
		began = now
	}
	return nil
}

func total(callers []*caller, took time.Duration) report {
	sum := report{Seconds: took.Seconds(), Latencies: map[string]int{}}
	for _, each := range callers {
		sum.Requests += each.requests
		for units, count := range each.latencies {
			ms := float64(units) * float64(latencyUnit) / float64(time.Millisecond)
			sum.Latencies[fmt.Sprintf("%.2f", ms)] += count
		}
	}
	return sum
}
