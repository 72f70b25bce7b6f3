// Command consumer follows an oplog agent and prints each event. It needs nothing but the standard library.
//
//	consumer -url http://localhost:8042 -types video,user -start 0 -state consumer.state
//
// With -state it goes on where it was. The position is saved after an event was dealt with, never before, so a crash
// repeats events and loses none. With -count N it ends after N operations.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const (
	heartbeatTimeout = 40 * time.Second // agents send something at least every 25 s
	firstPause       = time.Second
	lastPause        = 30 * time.Second
	saveInterval     = time.Second
)

var positions = regexp.MustCompile(`^(?:[0-9]{0,13}|[0-9a-f]{24})$`)

// Event is a block of the stream. Data is an Operation, and empty for reset and live.
type Event struct {
	ID, Name, Data string
}

// Operation is the JSON of an insert, update or delete.
type Operation struct {
	Timestamp time.Time `json:"timestamp"`
	Parents   []string  `json:"parents"`
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Ref       string    `json:"ref,omitempty"`
}

// errEnough ends the consumer behind the event that was dealt with.
var errEnough = errors.New("enough")

// refused is an answer that trying again does not change.
type refused struct{ status string }

func (r refused) Error() string { return "the agent refuses: " + r.status }

type consumer struct {
	url, password, stateFile string
	client                   http.Client
	position                 string
	saved                    string
	savedAt                  time.Time
	handle                   func(Event) error // errEnough: this event was the last
}

// run follows until ctx ends, handle returns errEnough or the agent refuses for good.
func (c *consumer) run(ctx context.Context) error {
	pause := firstPause
	for {
		received, err := c.follow(ctx)
		if ctx.Err() != nil {
			return c.save()
		}
		if errors.Is(err, errEnough) {
			return c.save()
		}
		var final refused
		if errors.As(err, &final) {
			return errors.Join(err, c.save())
		}
		if received {
			pause = firstPause
		}
		wait := pause + time.Duration(rand.Int63n(int64(pause)))
		if wait > lastPause {
			wait = lastPause
		}
		log.Printf("%v; trying again in %.1f s", err, wait.Seconds())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		if pause *= 2; pause > lastPause/2 {
			pause = lastPause / 2
		}
	}
}

// follow reads one connection to its end, and tells whether any event came.
func (c *consumer) follow(parent context.Context) (received bool, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	silence := time.AfterFunc(heartbeatTimeout, cancel)
	defer silence.Stop()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return false, refused{err.Error()}
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Accept-Encoding", "identity")
	if c.position != "" {
		request.Header.Set("Last-Event-ID", c.position)
	}
	if c.password != "" {
		request.SetBasicAuth("", c.password)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	switch status := response.StatusCode; {
	case status >= 500, status == 408, status == 425, status == 429:
		return false, errors.New(response.Status)
	case status != 200:
		detail, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return false, refused{response.Status + " " + string(detail)}
	}
	var event Event
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		silence.Reset(heartbeatTimeout)
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			event.ID = value
		case "event":
			event.Name = value
		case "data":
			event.Data = value
		}
		if lines.Text() == "" && event.ID != "" {
			var err error
			if event.Name != "" { // else only the position moves
				if err = c.handle(event); err != nil && err != errEnough {
					return received, refused{err.Error()}
				}
			}
			received = true
			c.position = event.ID
			if err != nil {
				return received, err
			}
			event = Event{}
			if time.Since(c.savedAt) > saveInterval {
				if err := c.save(); err != nil {
					log.Print(err)
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		return received, err
	}
	return received, errors.New("the agent ended the stream")
}

// save replaces the state file in one step.
func (c *consumer) save() error {
	c.savedAt = time.Now()
	if c.stateFile == "" || c.position == c.saved {
		return nil
	}
	file, err := os.CreateTemp(filepath.Dir(c.stateFile), filepath.Base(c.stateFile)+".*.new")
	if err != nil {
		return err
	}
	_, err = file.WriteString(c.position)
	err = errors.Join(err, file.Sync(), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), c.stateFile)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	c.saved = c.position
	return nil
}

func load(path string) (string, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	position := strings.TrimSuffix(string(raw), "\n")
	if err == nil && !positions.MatchString(position) {
		err = fmt.Errorf("%s holds %q, which is no position", path, position)
	}
	return position, err
}

func show(event Event) error {
	if event.Name == "reset" || event.Name == "live" {
		_, err := fmt.Println(event.Name)
		return err
	}
	var operation Operation
	if err := json.Unmarshal([]byte(event.Data), &operation); err != nil {
		return fmt.Errorf("the operation %s cannot be read: %w", event.ID, err)
	}
	_, err := fmt.Printf("%s %s/%s %v\n", event.Name, operation.Type, operation.ID, operation.Parents)
	return err
}

// showing prints events, and returns errEnough with the last of so many operations; 0: there is no last one.
func showing(operations int) func(Event) error {
	return func(event Event) error {
		if err := show(event); err != nil {
			return err
		}
		if event.Name != "reset" && event.Name != "live" {
			if operations--; operations == 0 {
				return errEnough
			}
		}
		return nil
	}
}

func main() {
	base := flag.String("url", "http://localhost:8042", "the agent")
	types := flag.String("types", "", "only these types, comma-separated")
	parents := flag.String("parents", "", "only with one of these parents, comma-separated")
	start := flag.String("start", "", "event id to start after; 0 for a full copy")
	state := flag.String("state", "", "file that keeps the position; it comes before -start")
	count := flag.Int("count", 0, "end after so many operations; 0: never")
	flag.Parse()

	query := url.Values{"checkpoint": {"1"}}
	for name, value := range map[string]string{"types": *types, "parents": *parents} {
		if value != "" {
			query.Set(name, value)
		}
	}
	c := &consumer{
		url:       strings.TrimSuffix(*base, "/") + "/ops?" + query.Encode(),
		password:  os.Getenv("OPLOG_PASSWORD"),
		stateFile: *state,
		handle:    showing(*count),
	}
	if *state != "" {
		position, err := load(*state)
		if err != nil {
			log.Fatal(err)
		}
		c.position, c.saved = position, position
	}
	if c.position == "" {
		c.position = *start
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		log.Fatal(err)
	}
}
