package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
)

// udpSender sends each operation as a datagram. Nothing tells whether it arrives.
type udpSender struct {
	conn *net.UDPConn
	to   *net.UDPAddr
}

func newUDPSender(target *url.URL) (*udpSender, error) {
	port := target.Port()
	if port == "" {
		port = "8042"
	}
	to, err := net.ResolveUDPAddr("udp", net.JoinHostPort(target.Hostname(), port))
	if err != nil {
		return nil, err
	}
	// Not connected: a connected socket spends a send on reporting that the one before found no agent.
	conn, err := net.ListenUDP("udp", nil)
	return &udpSender{conn, to}, err
}

func (u *udpSender) send(_ context.Context, op operation) error {
	if len(op.raw) > maxDatagram {
		reject(op.line, fmt.Errorf("it has %d bytes, more than a datagram holds: send it over HTTP", len(op.raw)))
	} else if _, err := u.conn.WriteToUDP(op.raw, u.to); err != nil {
		reject(op.line, err)
	}
	return nil
}

func (u *udpSender) flush(context.Context) error { return nil }
