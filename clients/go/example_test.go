package oplog_test

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"oplog.example/oplog"
)

const copyOfOneVideo = `id: 1
event: reset
data:

id: 1415271879041
event: insert
data: {"timestamp":"2014-11-06T11:04:39.041Z","parents":["user/x3kd2"],"type":"video","id":"xekw"}

id: 545b55c7f095528dd0f3863c
event: live
data:

`

// agent stands for an agent: it stores nothing, and streams a copy of one object.
func agent() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.Method == http.MethodPost {
			lines := 0
			for scanner := bufio.NewScanner(request.Body); scanner.Scan(); {
				lines++
			}
			fmt.Fprintf(writer, `{"ingested": %d}`, lines)
			return
		}
		writer.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(writer, copyOfOneVideo)
		writer.(http.Flusher).Flush()
		<-request.Context().Done()
	}))
}

func ExampleConsumer_Follow() {
	server := agent()
	defer server.Close()
	folder, err := os.MkdirTemp("", "oplog")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)

	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{
		Types: []string{"video"}, Start: "0", StateFile: filepath.Join(folder, "videos.state"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	err = consumer.Follow(context.Background(), func(event oplog.Event) error {
		if !event.IsOperation() {
			fmt.Println(event.Name)
		} else {
			fmt.Println(event.Name, event.Key(), event.Parents)
		}
		if event.Name == oplog.Live {
			return oplog.ErrStop
		}
		return nil
	})
	fmt.Println(consumer.Position(), err)
	// Output:
	// reset
	// insert video/xekw [user/x3kd2]
	// live
	// 545b55c7f095528dd0f3863c <nil>
}

func ExampleConsumer_Events() {
	server := agent()
	defer server.Close()

	consumer, err := oplog.NewConsumer(server.URL, oplog.ConsumerOptions{Start: "0"})
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	for event, err := range consumer.Events(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Name)
		if event.Name == oplog.Live {
			break // not handled: the position stays before it
		}
	}
	fmt.Println(consumer.Position())
	// Output:
	// reset
	// insert
	// live
	// 1415271879041
}

func ExampleProducer() {
	server := agent()
	defer server.Close()
	ctx := context.Background()

	producer, err := oplog.NewProducer(server.URL, oplog.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	video := oplog.Operation{Event: oplog.Insert, Type: "video", ID: "xekw", Parents: []string{"user/x3kd2"}}
	if err := producer.Send(ctx, video); err != nil {
		log.Fatal(err)
	}
	fmt.Println(producer.Send(ctx, oplog.Operation{Event: oplog.Insert, Type: "a/b", ID: "xekw"}))
	if err := producer.Close(ctx); err != nil {
		log.Fatal(err) // operations are left
	}
	fmt.Printf("%+v\n", producer.Counters())
	// Output:
	// a/b/xekw is rejected: type must have 1 to 255 bytes, and neither '/' nor ','
	// {Sent:1 Delivered:1 Rejected:0 Waiting:0}
}

func ExampleNewProducer_udp() {
	ctx := context.Background()
	producer, err := oplog.NewProducer("udp://127.0.0.1:9", oplog.ProducerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close(ctx)
	fmt.Println(producer.Send(ctx, oplog.Operation{Event: oplog.Delete, Type: "video", ID: "xekw"}))
	// Output: <nil>
}
