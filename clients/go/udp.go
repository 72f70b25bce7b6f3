package oplog

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"time"
)

const maxDatagramBytes = 65_507 // over IPv4

// udpDelivery sends each operation as a datagram. Nothing confirms that it arrives.
type udpDelivery struct {
	connection *net.UDPConn
	to         *net.UDPAddr
	delivered  func(count int)
}

func newUDPDelivery(target *url.URL, delivered func(count int)) (*udpDelivery, error) {
	port := target.Port()
	if port == "" {
		port = "8042"
	}
	to, err := net.ResolveUDPAddr("udp", net.JoinHostPort(target.Hostname(), port))
	if err != nil {
		return nil, err
	}
	// Not connected: a connected socket fails at a send if the previous datagram found no agent.
	connection, err := net.ListenUDP("udp", nil)
	return &udpDelivery{connection, to, delivered}, err
}

func (u *udpDelivery) take(op queued) (isFull bool, err error) {
	if len(op.raw) > maxDatagramBytes {
		reason := fmt.Sprintf("it has %d bytes, more than a datagram holds: send it over HTTP", len(op.raw))
		return false, RejectedError{op.label, reason, 1}
	}
	if _, err := u.connection.WriteToUDP(op.raw, u.to); err != nil {
		return false, RejectedError{op.label, err.Error(), 1}
	}
	u.delivered(1)
	return false, nil
}

func (u *udpDelivery) flush(context.Context) error { return nil }

func (u *udpDelivery) waiting() int { return 0 }

func (u *udpDelivery) setDeadline(time.Time) {}

func (u *udpDelivery) close() error { return u.connection.Close() }
