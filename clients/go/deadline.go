package oplog

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errDeadline = errors.New("the deadline has passed")

// deadline is a time at which waiting ends. It can change while somebody waits.
type deadline struct {
	mutex   sync.Mutex
	at      time.Time     // zero: never
	changed chan struct{} // closed at the next change
}

func (d *deadline) set(at time.Time) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.at = at
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *deadline) get() (time.Time, <-chan struct{}) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.at, d.changed
}

// isOver reports whether the deadline has passed.
func (d *deadline) isOver() bool {
	at, _ := d.get()
	return !at.IsZero() && !at.After(time.Now())
}

// apply returns a context that also ends at the deadline.
func (d *deadline) apply(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		for ctx.Err() == nil {
			at, changed := d.get()
			expired, stop := timer(at)
			select {
			case <-ctx.Done():
			case <-changed:
			case <-expired:
				cancel()
			}
			stop()
		}
	}()
	return ctx, cancel
}

// timer fires at a time; the zero time is never.
func timer(at time.Time) (<-chan time.Time, func() bool) {
	if at.IsZero() {
		return nil, func() bool { return true }
	}
	timer := time.NewTimer(time.Until(at))
	return timer.C, timer.Stop
}

// sleep returns an error if ctx or the deadline ends it. A pause that would end after the deadline ends at once.
func (d *deadline) sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	until := time.Now().Add(pause)
	for {
		at, changed := d.get()
		if !at.IsZero() && at.Before(until) {
			return errDeadline
		}
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
